"""3D patch training with a patch queue that is filled ahead by a loader thread."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
import queue
import random
import threading
import time

import torch
from torch import nn
from torch.utils.data import IterableDataset

torch.set_num_threads(1)

VOLUME = 56
PATCH = 32
QUEUE_LENGTH = 1500
SAMPLES_PER_VOLUME = 10
BATCH = 4
STEPS = 720
LOAD_PAUSE = 0.165
STEP_PAUSE = 0.14


class Subject:
    def __init__(self, name, seed):
        self.name = name
        self.seed = seed

    def load(self):
        g = torch.Generator().manual_seed(self.seed)
        coarse = torch.randn(1, 1, 7, 7, 7, generator=g)
        image = nn.functional.interpolate(coarse, size=VOLUME, mode="trilinear", align_corners=False)[0, 0]
        return (image - image.mean()) / image.std()


class UniformSampler:
    def __init__(self, patch, rng):
        self.patch, self.rng = patch, rng

    def __call__(self, volume, n):
        hi = VOLUME - self.patch
        for _ in range(n):
            x, y, z = (self.rng.randint(0, hi) for _ in range(3))
            yield volume[x : x + self.patch, y : y + self.patch, z : z + self.patch].clone()


class PatchQueue(IterableDataset):
    """Holds up to max_length patches; the loader waits when it is full."""

    def __init__(self, subjects, max_length, samples_per_volume, sampler):
        self.subjects = subjects
        self.samples_per_volume = samples_per_volume
        self.sampler = sampler
        self.patches = queue.Queue(maxsize=max_length)
        self.stop = threading.Event()
        self.loads = 0
        self.thread = threading.Thread(target=self._fill, name="patch-loader", daemon=True)

    def _fill(self):
        order = list(self.subjects)
        while not self.stop.is_set():
            random.shuffle(order)
            for subject in order:
                volume = subject.load()
                self.loads += 1
                for patch in self.sampler(volume, self.samples_per_volume):
                    while not self.stop.is_set():
                        try:
                            self.patches.put(patch, timeout=0.5)
                            break
                        except queue.Full:
                            continue
                if self.stop.is_set():
                    return
                time.sleep(LOAD_PAUSE)

    def __iter__(self):
        while True:
            yield self.patches.get()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv3d(1, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14**3, 16))
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(torch.relu(self.net(x)))


def main():
    torch.manual_seed(0)
    rng = random.Random(0)
    subjects = [Subject(f"sub-{i:03d}", i) for i in range(60)]
    patch_queue = PatchQueue(subjects, QUEUE_LENGTH, SAMPLES_PER_VOLUME, UniformSampler(PATCH, rng))
    patch_queue.thread.start()
    stream = iter(patch_queue)
    model = Encoder()
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    running, history = 0.0, []
    for step in range(1, STEPS + 1):
        x = torch.stack([next(stream) for _ in range(BATCH)])[:, None]
        target = torch.stack([x.mean((1, 2, 3, 4)), x.std((1, 2, 3, 4))], 1)
        loss = nn.functional.mse_loss(model(x), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item()
        if step % 32 == 0:
            history.append(running / 32)
            running = 0.0
            print(
                f"iteration {step}/{STEPS} loss {history[-1]:.5f} "
                f"queue {patch_queue.patches.qsize()} volumes {patch_queue.loads}",
                flush=True,
            )
        time.sleep(STEP_PAUSE)
    patch_queue.stop.set()
    patch_queue.thread.join(timeout=5)


if __name__ == "__main__":
    main()
