"""Fit a small set of splats to multi-view images."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
import itertools
import time
from collections import deque

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

IMAGE_SIZE = 104
NUM_VIEWS = 6000
NUM_SPLATS = 96
ITERATIONS = 1000
LOG_EVERY = 40
EVAL_EVERY = 160
STEP_PAUSE = 0.09


class SceneViews(Dataset):
    """Renders a synthetic scene from a camera on a circle."""

    def __init__(self, n_views, size):
        self.n_views = n_views
        ax = torch.linspace(-1, 1, size)
        self.grid_y, self.grid_x = torch.meshgrid(ax, ax, indexing="ij")

    def __len__(self):
        return self.n_views

    def __getitem__(self, i):
        angle = 6.283185 * i / self.n_views
        cx, cy = torch.cos(torch.tensor(angle)) * 0.5, torch.sin(torch.tensor(angle)) * 0.5
        d2 = (self.grid_x - cx) ** 2 + (self.grid_y - cy) ** 2
        mask = torch.exp(-6.0 * d2)
        image = torch.stack([mask, mask * 0.6, 1.0 - mask])
        return {"image": image, "mask": mask[None], "angle": torch.tensor(angle)}


class Splats(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.means = nn.Parameter(torch.randn(n, 2) * 0.4)
        self.log_scale = nn.Parameter(torch.zeros(n))
        self.color = nn.Parameter(torch.rand(n, 3))
        self.opacity = nn.Parameter(torch.zeros(n))

    def forward(self, angle, gx, gy):
        c, s = torch.cos(angle), torch.sin(angle)
        mx = self.means[:, 0] * c - self.means[:, 1] * s
        my = self.means[:, 0] * s + self.means[:, 1] * c
        d2 = (gx[None] - mx[:, None]) ** 2 + (gy[None] - my[:, None]) ** 2
        w = torch.sigmoid(self.opacity)[:, None] * torch.exp(-d2 * 4.0 * torch.exp(self.log_scale)[:, None])
        return (w.t() @ self.color) / (w.sum(0)[:, None] + 1e-4)


class Trainer:
    def __init__(self):
        self.dataset = SceneViews(NUM_VIEWS, IMAGE_SIZE)
        self.loader = DataLoader(self.dataset, batch_size=2, shuffle=True)
        self.view_iter = itertools.cycle(self.loader)
        self.model = Splats(NUM_SPLATS)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=5e-3)
        self.recent_losses = deque(maxlen=50)
        self.eval_views = [self.dataset[i] for i in range(0, NUM_VIEWS, NUM_VIEWS // 8)]
        self.snapshots = {}

    def step(self):
        batch = next(self.view_iter)
        pick = torch.randint(0, IMAGE_SIZE * IMAGE_SIZE, (2048,))
        gx = self.dataset.grid_x.flatten()[pick]
        gy = self.dataset.grid_y.flatten()[pick]
        loss = 0.0
        for image, angle in zip(batch["image"], batch["angle"]):
            target = image.flatten(1)[:, pick].t()
            loss = loss + (self.model(angle, gx, gy) - target).abs().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.recent_losses.append(loss.item())

    @torch.no_grad()
    def evaluate(self):
        gx, gy = self.dataset.grid_x.flatten()[::3], self.dataset.grid_y.flatten()[::3]
        errs = [
            (self.model(v["angle"], gx, gy) - v["image"].flatten(1)[:, ::3].t()).pow(2).mean() for v in self.eval_views
        ]
        return -10 * torch.log10(torch.stack(errs).mean()).item()

    def snapshot(self, it):
        self.snapshots[it] = {k: v.clone() for k, v in self.model.state_dict().items()}
        while len(self.snapshots) > 3:
            self.snapshots.pop(next(iter(self.snapshots)))


def main():
    torch.manual_seed(0)
    trainer = Trainer()
    for it in range(1, ITERATIONS + 1):
        trainer.step()
        if it % LOG_EVERY == 0:
            avg = sum(trainer.recent_losses) / len(trainer.recent_losses)
            print(f"[ITER {it}] L1 {avg:.5f}", flush=True)
        if it % EVAL_EVERY == 0:
            trainer.snapshot(it)
            print(f"[ITER {it}] Evaluating test: PSNR {trainer.evaluate():.2f}", flush=True)
        time.sleep(STEP_PAUSE)
    print("Training complete.")


if __name__ == "__main__":
    main()
