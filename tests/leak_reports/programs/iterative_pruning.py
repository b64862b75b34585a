"""Gradual magnitude pruning of an MLP while it trains."""

import time
from collections import deque

import torch
from torch import nn
from torch.nn.utils import prune

INPUTS = 640
HIDDEN = 896
ROUNDS = 80
ROUND_SECONDS = 1.6
FINAL_SPARSITY = 0.9


class SparseClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(INPUTS, HIDDEN)
        self.mixer = nn.Linear(HIDDEN, 512)
        self.head = nn.Linear(512, 10)

    def forward(self, inputs):
        hidden = torch.relu(self.encoder(inputs))
        return self.head(torch.relu(self.mixer(hidden)))


class GradualPruner:
    """Cubic sparsity schedule; a fresh mask from the weights' magnitudes each round."""

    def __init__(self, layers, rounds):
        self.layers = layers
        self.rounds = rounds

    def target(self, number):
        return FINAL_SPARSITY * (1.0 - (1.0 - number / self.rounds) ** 3)

    def apply(self, number):
        sparsity = self.target(number)
        for layer in self.layers:
            weight = layer.weight.detach()
            threshold = torch.quantile(weight.abs().flatten()[::8], sparsity)
            mask = (weight.abs() > threshold).to(weight.dtype)
            prune.custom_from_mask(layer, "weight", mask=mask)
        return sparsity


def draw_batch(generator, truth):
    inputs = torch.randn(32, INPUTS, generator=generator)
    return inputs, (inputs @ truth).argmax(1)


def density(layers):
    kept = sum(int((layer.weight != 0).sum()) for layer in layers)
    return kept / sum(layer.weight.numel() for layer in layers)


def main():
    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(5)
    truth = torch.randn(INPUTS, 10, generator=generator)
    model = SparseClassifier()
    layers = [model.encoder, model.mixer]
    pruner = GradualPruner(layers, ROUNDS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = deque(maxlen=60)
    densities = []
    for number in range(1, ROUNDS + 1):
        begin = time.perf_counter()
        for _ in range(24):
            inputs, labels = draw_batch(generator, truth)
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        sparsity = pruner.apply(number)
        densities.append(density(layers))
        print(
            f"round {number:02d}/{ROUNDS}  loss {sum(losses) / len(losses):.3f}  "
            f"target sparsity {sparsity:.3f}  density {densities[-1]:.3f}",
            flush=True,
        )
        time.sleep(max(0.0, ROUND_SECONDS - (time.perf_counter() - begin)))


if __name__ == "__main__":
    main()
