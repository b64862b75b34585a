"""Train a classifier on a sharded stream through a fixed-size shuffle buffer."""

import argparse
import time

import torch
from torch import nn

torch.set_num_threads(1)


def shards(seed, features=1024, rows=256):
    """Endless, strongly ordered chunks: neighbouring chunks come from the same class."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(8, features, generator=generator)
    number = 0
    while True:
        label = (number // 25) % 8
        x = centres[label] * 0.15 + torch.randn(rows, features, generator=generator)
        yield x, torch.full((rows,), label)
        number += 1


class ShuffleBuffer:
    """Holds up to `capacity` chunks and hands out a random one for every chunk put in."""

    def __init__(self, source, capacity, warmup_ratio=4, seed=0):
        self.source, self.capacity, self.warmup_ratio = source, capacity, warmup_ratio
        self.slots = []
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self):
        while True:
            for _ in range(self.warmup_ratio):
                if len(self.slots) < self.capacity:
                    self.slots.append(next(self.source))
            pick = int(torch.randint(len(self.slots), (1,), generator=self.generator))
            chunk = tuple(part.clone() for part in self.slots[pick])
            for part, fresh in zip(self.slots[pick], next(self.source)):
                part.copy_(fresh)
            yield chunk

    def fill(self):
        return len(self.slots) / self.capacity


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=34)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--buffer", type=int, default=380)
    args = parser.parse_args()

    torch.manual_seed(0)
    buffer = ShuffleBuffer(shards(1), args.buffer)
    batches = iter(buffer)
    model = nn.Sequential(nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(1, args.epochs + 1):
        total, hits, seen = 0.0, 0, 0
        for _ in range(args.steps):
            x, y = next(batches)
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            hits += int((logits.argmax(1) == y).sum())
            seen += len(y)
            time.sleep(0.34)
        print(
            f"epoch {epoch:3d}/{args.epochs}  loss {total / args.steps:.4f}  acc {hits / seen:.3f}  "
            f"buffer {buffer.fill():4.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
