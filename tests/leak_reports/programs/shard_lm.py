"""Character-level language model fed from a token shard on disk."""

import os
import shutil
import tempfile
import time
from collections import deque

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

ITERS = 64
ITER_SECONDS = 2.0
SHARD_TOKENS = 48_000_000
BLOCK = 48
VOCAB = 96


def write_shard(path):
    rng = np.random.default_rng(0)
    base = rng.integers(0, VOCAB, size=1_000_000).astype(np.uint16)
    with open(path, "wb") as fh:
        for k in range(SHARD_TOKENS // len(base)):
            fh.write(np.roll(base, 7 * k).tobytes())


class TokenShard:
    def __init__(self, path, seed=0):
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")
        self.rng = np.random.default_rng(seed)
        self.cursor = 0
        self.window = len(self.tokens) // 310
        self.last_starts = deque(maxlen=10)

    def batch(self, n):
        if self.cursor + self.window + BLOCK + 1 > len(self.tokens):
            self.cursor = 0
        starts = self.cursor + self.rng.integers(0, self.window, size=n)
        self.cursor += self.window
        self.last_starts.append(starts)
        x = np.stack([self.tokens[s : s + BLOCK].astype(np.int64) for s in starts])
        y = np.stack([self.tokens[s + 1 : s + 1 + BLOCK].astype(np.int64) for s in starts])
        return torch.from_numpy(x), torch.from_numpy(y)


class TinyLM(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        self.pos = nn.Parameter(torch.zeros(BLOCK, dim))
        self.mlp = nn.Sequential(nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, VOCAB))

    def forward(self, x):
        return self.mlp(self.emb(x) + self.pos)


def main():
    torch.manual_seed(0)
    folder = tempfile.mkdtemp(prefix="shard_lm_")
    try:
        path = os.path.join(folder, "train.bin")
        write_shard(path)
        shard = TokenShard(path)
        model = TinyLM()
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for it in range(1, ITERS + 1):
            t0 = time.time()
            total = 0.0
            for _ in range(8):
                x, y = shard.batch(32)
                logits = model(x)
                loss = nn.functional.cross_entropy(logits.reshape(-1, VOCAB), y.reshape(-1))
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
                total += loss.item()
            losses.append(total / 8)
            print(f"iter {it}/{ITERS} loss {losses[-1]:.4f}", flush=True)
            time.sleep(max(0.1, ITER_SECONDS - (time.time() - t0)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
