"""Train a small direction estimator on binaural echoes rendered on the fly by a loader worker."""

import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class EchoScene(Dataset):
    """Random agent poses in a room; a sample is the pair of ear signals heard at the pose."""

    def __init__(self, poses=160, samples=6000):
        self.poses, self.samples = poses, samples
        generator = torch.Generator().manual_seed(1)
        self.source = torch.randn(samples, generator=generator)
        self._echo_cache = {}

    def __len__(self):
        return self.poses

    def render(self, x, y, azimuth):
        distance = math.hypot(x, y) + 0.1
        bearing = math.atan2(y, x) - azimuth
        ears = []
        for side in (-1, 1):
            delay = int(40 * distance + 12 * side * math.sin(bearing))
            ears.append(torch.roll(self.source, delay) / distance * (1 + 0.3 * side * math.sin(bearing)))
        return torch.stack(ears), bearing

    def echo(self, x, y, azimuth):
        key = (x, y, azimuth)
        if key not in self._echo_cache:
            self._echo_cache[key] = self.render(x, y, azimuth)
        return self._echo_cache[key]

    def __getitem__(self, index):
        x, y = (torch.rand(2) * 8 - 4).tolist()
        azimuth = float(torch.rand(())) * 2 * math.pi
        signal, bearing = self.echo(x, y, azimuth)
        time.sleep(0.008)
        return signal, torch.tensor([math.sin(bearing), math.cos(bearing)])


class DirectionNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.ears = nn.Sequential(
            nn.Conv1d(2, 12, 64, stride=16),
            nn.ReLU(),
            nn.Conv1d(12, 24, 16, stride=8),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
        )
        self.head = nn.Linear(96, 2)

    def forward(self, signal):
        return self.head(self.ears(signal))


def main(epochs=46):
    torch.manual_seed(0)
    loader = DataLoader(EchoScene(), batch_size=16, num_workers=1, persistent_workers=True, prefetch_factor=2)
    model = DirectionNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(1, epochs + 1):
        total = 0.0
        for signal, direction in loader:
            loss = nn.functional.mse_loss(model(signal), direction)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            time.sleep(0.19)
        print(f"epoch {epoch:3d}/{epochs}  loss {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
