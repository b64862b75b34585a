"""Evaluation of a text-line recogniser on lines of many widths (CPU)."""

import os

os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = "2048"  # many line widths

import random
import time
from collections import deque

import torch
from torch import nn

HEIGHT = 32
LINES_PER_PAGE = 30
PAGES = 80
PAGE_SECONDS = 1.6


class LineRecogniser(nn.Module):
    def __init__(self, alphabet=40):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(64, alphabet)

    def forward(self, lines):
        columns = self.backbone(lines).mean(dim=2)
        return self.classifier(columns.transpose(1, 2))


class LineDataset:
    """Lines cut from pages, small formats first; widths are rounded up to a multiple of 4 pixels."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def page(self, number):
        widest = min(245, 36 + 11 * number)
        for _ in range(LINES_PER_PAGE):
            width = 4 * self.rng.randint(20, widest)
            yield torch.randn(1, 1, HEIGHT, width, generator=self.generator)


def greedy_decode(logits):
    best = logits.argmax(dim=-1)[0].tolist()
    return [symbol for symbol, previous in zip(best, [None] + best) if symbol != previous and symbol]


def main():
    torch.manual_seed(47)
    model = LineRecogniser().eval()
    dataset = LineDataset(47)
    lengths = deque(maxlen=300)
    symbol_counts = [0] * 40
    lines = 0
    for number in range(1, PAGES + 1):
        begin = time.perf_counter()
        with torch.inference_mode():
            for line in dataset.page(number):
                text = greedy_decode(model(line))
                for symbol in text:
                    symbol_counts[symbol] += 1
                lengths.append(len(text))
                lines += 1
        print(f"page {number}/{PAGES}: {lines} lines, {sum(lengths) / len(lengths):.1f} symbols a line", flush=True)
        time.sleep(max(0.0, PAGE_SECONDS - (time.perf_counter() - begin)))


if __name__ == "__main__":
    main()
