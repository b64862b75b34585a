import os
import tempfile
import time

import numpy as np
import torch

torch.set_num_threads(1)

ROWS, WIDTH = 40000, 2048
SHARD = 250
STEPS = 268
PERIOD = 0.5
LINE_LIST = [(h, (h * 37) % WIDTH) for h in range(900)]


def prepare_file():
    """The spectra file of an earlier job; written here if it is not there yet."""
    path = os.path.join(tempfile.gettempdir(), "spectra_40000x2048.f32")
    if os.path.exists(path) and os.path.getsize(path) == ROWS * WIDTH * 4:
        return path
    rng = np.random.default_rng(0)
    base = rng.normal(size=(64, WIDTH)).astype(np.float32)
    with open(path + ".part", "wb") as f:
        for s in range(0, ROWS, SHARD):
            block = base[rng.integers(0, 64, SHARD)]
            block *= rng.normal(size=(SHARD, 1)).astype(np.float32)
            f.write(block.tobytes())
    os.replace(path + ".part", path)
    return path


class SpectraSet:
    def __init__(self, path):
        self.spectra = np.memmap(path, dtype=np.float32, mode="r", shape=(ROWS, WIDTH))
        self.labels = np.random.default_rng(1).integers(0, 2, ROWS)
        self.shards = np.arange(ROWS // SHARD)

    def __len__(self):
        return len(self.shards)

    def shard(self, k):
        lo = int(self.shards[k]) * SHARD
        x = np.array(self.spectra[lo : lo + SHARD])
        return torch.from_numpy(x), torch.from_numpy(self.labels[lo : lo + SHARD]).float()


class Denoiser(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = torch.nn.Linear(WIDTH, 32)
        self.head = torch.nn.Linear(32, 1)

    def forward(self, x):
        return self.head(torch.relu(self.enc(x))).squeeze(-1)


class Trainer:
    def __init__(self, data):
        self.data = data
        self.net = Denoiser()
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-2)
        self.losses = []
        self.recent = []

    def step(self, i):
        x, y = self.data.shard(i % len(self.data))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(self.net(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.losses.append(loss.item())
        self.recent = (self.recent + [x[:4].clone()])[-20:]
        return self.losses[-1]


def main():
    data = SpectraSet(prepare_file())
    trainer = Trainer(data)
    for i in range(STEPS):
        t0 = time.time()
        loss = trainer.step(i)
        print(f"epoch {i // len(data)} step {i + 1}/{STEPS} loss {loss:.4f}", flush=True)
        time.sleep(max(0.0, PERIOD - (time.time() - t0)))
    print(f"final mean loss {np.mean(trainer.losses[-20:]):.4f}", flush=True)


if __name__ == "__main__":
    main()
