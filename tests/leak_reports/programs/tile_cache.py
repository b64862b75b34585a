"""Segmentation of satellite tiles read through a storage layer with a memory cache."""

import time
from collections import OrderedDict

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class TileStore:
    """Remote tile storage with a cache of the last requested tiles."""

    def __init__(self, n_tiles=4000, side=256, cache_tiles=620):
        self.n_tiles, self.side = n_tiles, side
        self.cache_tiles = cache_tiles
        self.cache = OrderedDict()
        self.hits = self.misses = 0
        self.index = [{"tile": i, "zone": i % 60} for i in range(n_tiles)]

    def _download(self, i):
        rng = np.random.default_rng(i)
        return rng.standard_normal((2, self.side, self.side), dtype=np.float32)

    def get(self, i):
        if i in self.cache:
            self.hits += 1
            self.cache.move_to_end(i)
            return self.cache[i]
        self.misses += 1
        tile = self._download(i)
        self.cache[i] = tile
        if len(self.cache) > self.cache_tiles:
            self.cache.popitem(last=False)
        return tile


class TileDataset(Dataset):
    def __init__(self, store, crop=48):
        self.store, self.crop = store, crop

    def __len__(self):
        return self.store.n_tiles

    def __getitem__(self, i):
        tile = self.store.get(int(i))
        r, c = np.random.randint(0, self.store.side - self.crop, 2)
        x = torch.from_numpy(tile[:, r : r + self.crop, c : c + self.crop].copy())
        return x, (x.mean(0) > 0).float()


class SegNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def main():
    store = TileStore()
    loader = DataLoader(TileDataset(store), batch_size=4, shuffle=True)
    model = SegNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    batches = iter(loader)
    due = time.time()
    for epoch in range(65):
        for _ in range(4):
            x, y = next(batches)
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            due += 0.52
            time.sleep(max(0.0, due - time.time()))
        print(f"epoch {epoch} loss {losses[-1]:.4f} cached {len(store.cache)} misses {store.misses}", flush=True)


if __name__ == "__main__":
    main()
