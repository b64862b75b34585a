import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

torch.set_num_threads(1)


class ShapeImages(Dataset):
    """Procedural images; decoding is slow, so decoded ones are kept."""

    def __init__(self, count, size=64, memoization=True):
        self.count, self.size = count, size
        self.memoization = memoization
        self.decoded = {}

    def __len__(self):
        return self.count

    def _decode(self, i):
        g = torch.Generator().manual_seed(i)
        axis = torch.linspace(-1, 1, self.size)
        yy, xx = torch.meshgrid(axis, axis, indexing="ij")
        img = torch.zeros(3, self.size, self.size)
        for _ in range(6):
            c = torch.rand(5, generator=g)
            blob = torch.exp(-((xx - 2 * c[0] + 1) ** 2 + (yy - 2 * c[1] + 1) ** 2) * (4 + 40 * c[2]))
            img += blob * (c[2:] - 0.3)[:, None, None]
        return img, i % 5

    def __getitem__(self, i):
        if not self.memoization:
            return self._decode(i)
        if i not in self.decoded:
            self.decoded[i] = self._decode(i)
        return self.decoded[i]


def make_net():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 24, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(384, 5),
    )


def main(epochs=80, batch=32, per_epoch=1152):
    torch.manual_seed(0)
    data = ShapeImages(6400)
    sampler = RandomSampler(data, num_samples=per_epoch)
    loader = DataLoader(data, batch_size=batch, sampler=sampler)
    net = make_net()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(1, epochs + 1):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch}/{epochs} loss {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
