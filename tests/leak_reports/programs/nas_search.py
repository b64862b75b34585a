"""Random architecture search: each candidate is traced, timed and scored."""

import random
import time
import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore", category=DeprecationWarning)
warnings.filterwarnings("ignore", category=FutureWarning)

CANDIDATES = 80
CANDIDATE_SECONDS = 1.6
IMAGE = 16


class SearchSpace:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def sample(self):
        depth = self.rng.randint(4, 8)
        widths = [self.rng.choice([24, 32, 48, 64])]
        for _ in range(depth - 1):
            widths.append(min(112, widths[-1] + self.rng.choice([0, 8, 16])))
        return tuple(widths)


def build(widths):
    layers, channels = [], 3
    for width in widths:
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    return nn.Sequential(*layers)


class Evaluator:
    """Latency from the traced graph, accuracy from a short training of the head."""

    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.images = torch.randn(48, 3, IMAGE, IMAGE, generator=generator)
        self.labels = torch.randint(0, 10, (48,), generator=generator)

    def latency(self, model):
        seconds = []
        for batch in (1, 4):
            example = self.images[:batch]
            with torch.no_grad():
                traced = torch.jit.trace(model, example, check_trace=False)
                for _ in range(3):
                    traced(example)
                begin = time.perf_counter()
                for _ in range(5):
                    traced(example)
                seconds.append((time.perf_counter() - begin) / 5)
        return sum(seconds) / len(seconds)

    def accuracy(self, model):
        with torch.no_grad():
            features = model[:-1](self.images)
        head = model[-1]
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
        for _ in range(10):
            loss = nn.functional.cross_entropy(head(features), self.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return float((head(features).argmax(1) == self.labels).float().mean())


class Leaderboard:
    def __init__(self, size=10):
        self.size = size
        self.rows = []

    def add(self, score, widths):
        self.rows.append((score, widths))
        self.rows.sort(reverse=True)
        del self.rows[self.size :]


def main():
    torch.manual_seed(0)
    space, evaluator, board = SearchSpace(41), Evaluator(41), Leaderboard()
    tried = set()
    for number in range(1, CANDIDATES + 1):
        start = time.perf_counter()
        widths = space.sample()
        tried.add(widths)
        model = build(widths).eval()
        latency = evaluator.latency(model)
        score = evaluator.accuracy(model) - 5.0 * latency
        board.add(score, widths)
        print(
            f"candidate {number}/{CANDIDATES}: {len(widths)} layers, {latency * 1e3:.2f} ms, "
            f"score {score:.3f}, best {board.rows[0][0]:.3f}",
            flush=True,
        )
        time.sleep(max(0.0, CANDIDATE_SECONDS - (time.perf_counter() - start)))
    print(f"{len(tried)} different architectures; best {board.rows[0][1]}")


if __name__ == "__main__":
    main()
