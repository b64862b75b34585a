"""Texture synthesis: optimise the pixels of an image so that its filter statistics match."""

import argparse
import collections
import time

import torch
from torch import nn

torch.set_num_threads(1)


class FilterBank(nn.Module):
    """Two fixed random convolution stages; the Gram matrices describe a texture."""

    def __init__(self, seed=0):
        super().__init__()
        gen = torch.Generator().manual_seed(seed)
        self.first = nn.Conv2d(3, 12, 5, bias=False)
        self.second = nn.Conv2d(12, 20, 3, stride=2, bias=False)
        for conv in (self.first, self.second):
            conv.weight.data = torch.randn(conv.weight.shape, generator=gen) * 0.15
            conv.weight.requires_grad_(False)

    def forward(self, image):
        a = torch.tanh(self.first(image))
        b = torch.tanh(self.second(a))
        return [self.gram(a), self.gram(b)]

    @staticmethod
    def gram(maps):
        flat = maps.flatten(2)[0]
        return flat @ flat.t() / flat.shape[1]


def sample_texture(size, kind, gen):
    """Stripes, checkers or blobs with some noise."""
    axis = torch.linspace(0, 1, size)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    if kind == "stripes":
        base = torch.sin(60 * (xx + 0.4 * yy))
    elif kind == "checkers":
        base = torch.sign(torch.sin(40 * xx) * torch.sin(40 * yy))
    else:
        base = torch.sin(25 * xx) + torch.cos(31 * yy + 8 * xx)
    image = torch.stack([base, base.roll(7, 0), base.roll(5, 1)])[None]
    return image + 0.1 * torch.randn(image.shape, generator=gen)


class TextureJob:
    def __init__(self, bank, size, seed=1):
        self.bank = bank
        self.gen = torch.Generator().manual_seed(seed)
        self.size = size
        self.image = nn.Parameter(0.3 * torch.randn((1, 3, size, size), generator=self.gen))
        self.optimizer = torch.optim.LBFGS(
            [self.image], lr=0.6, max_iter=1, tolerance_grad=0.0, tolerance_change=0.0, history_size=100
        )
        self.targets = None
        self.curve = collections.deque(maxlen=400)

    def choose_target(self, kind):
        with torch.no_grad():
            self.targets = self.bank(sample_texture(self.size, kind, self.gen))

    def closure(self):
        self.optimizer.zero_grad()
        loss = sum(((g - t) ** 2).mean() for g, t in zip(self.bank(self.image), self.targets))
        smooth = ((self.image[..., 1:] - self.image[..., :-1]) ** 2).mean()
        total = 1e5 * loss + 50.0 * smooth + 5.0 * (self.image**2).mean()
        total.backward()
        return total

    def step(self):
        loss = self.optimizer.step(self.closure).item()
        self.curve.append(loss)
        return loss

    def contrast(self):
        with torch.no_grad():
            return float(self.image.std())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=260)
    parser.add_argument("--size", type=int, default=256)
    args = parser.parse_args()
    job = TextureJob(FilterBank(), args.size)
    kinds = ["stripes", "checkers", "blobs"]
    for iteration in range(1, args.iterations + 1):
        if iteration % 60 == 1:
            job.choose_target(kinds[(iteration // 60) % len(kinds)])
        loss = job.step()
        time.sleep(0.55)
        print(f"Iteration {iteration}/{args.iterations} loss {loss:.5f} contrast {job.contrast():.4f}")
    print("best loss", min(job.curve))


if __name__ == "__main__":
    main()
