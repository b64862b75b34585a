"""Trains a colour field on a large image set. Decoded images are kept within a byte budget."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
import threading
import time
import zlib
from collections import OrderedDict, deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np

N_IMAGES = 900
SIZE = 448
HOST_CACHE_MB = 340
STEPS = 1000
PICKS = 2
PAUSE = 0.1
RAYS = 6000


def encode(seed):
    """Stores an image as a tiny compressed thumbnail."""
    thumb = np.random.default_rng(seed).integers(0, 255, (14, 14, 3), dtype=np.uint8)
    return zlib.compress(thumb.tobytes())


def decode(blob):
    thumb = np.frombuffer(zlib.decompress(blob), dtype=np.uint8).reshape(14, 14, 3)
    return np.repeat(np.repeat(thumb, SIZE // 14, axis=0), SIZE // 14, axis=1)


class CameraImageStore:
    """Least recently used images are dropped when the budget is used up."""

    def __init__(self, blobs, budget):
        self.blobs = blobs
        self.budget = budget
        self.images = OrderedDict()
        self.used = 0
        self.lock = threading.Lock()
        self.hits = self.misses = 0

    def get(self, i):
        with self.lock:
            if i in self.images:
                self.images.move_to_end(i)
                self.hits += 1
                return self.images[i]
        image = decode(self.blobs[i])
        with self.lock:
            self.misses += 1
            if i not in self.images:
                self.images[i] = image
                self.used += image.nbytes
            while self.used > self.budget:
                _, old = self.images.popitem(last=False)
                self.used -= old.nbytes
        return image


class FourierField:
    def __init__(self, rng, n=24):
        self.freq = rng.normal(0, 4, (2, n))
        self.w = np.zeros((2 * n + 1, 3))
        self.m = np.zeros_like(self.w)

    def encode(self, uv):
        a = uv @ self.freq
        return np.concatenate([np.sin(a), np.cos(a), np.ones((len(uv), 1))], axis=1)

    def step(self, uv, rgb, lr=0.05):
        x = self.encode(uv)
        err = x @ self.w - rgb
        self.m = 0.9 * self.m + x.T @ err / len(uv)
        self.w -= lr * self.m
        return float((err**2).mean())


class RaySampler:
    def __init__(self, store, rng):
        self.store, self.rng = store, rng
        self.pool = ThreadPoolExecutor(max_workers=2)
        self.last_views = deque(maxlen=32)

    def batch(self):
        ids = self.rng.integers(0, N_IMAGES, PICKS)
        self.last_views.extend(int(i) for i in ids)
        images = list(self.pool.map(self.store.get, [int(i) for i in ids]))
        uvs, rgbs = [], []
        for im in images:
            p = self.rng.integers(0, SIZE, (RAYS, 2))
            uvs.append(p / SIZE)
            rgbs.append(im[p[:, 0], p[:, 1]] / 255.0)
        return np.concatenate(uvs), np.concatenate(rgbs)


def main():
    rng = np.random.default_rng(0)
    blobs = [encode(i) for i in range(N_IMAGES)]
    store = CameraImageStore(blobs, HOST_CACHE_MB * 1024 * 1024)
    sampler, field = RaySampler(store, rng), FourierField(rng)
    losses = []
    for step in range(1, STEPS + 1):
        uv, rgb = sampler.batch()
        losses.append(field.step(uv, rgb))
        if step % 50 == 0:
            rate = store.hits / (store.hits + store.misses)
            print(
                f"Step {step} ({100 * step // STEPS}%): mse {np.mean(losses[-50:]):.5f} hit rate {rate:.2f}", flush=True
            )
        time.sleep(PAUSE)
    sampler.pool.shutdown()


if __name__ == "__main__":
    main()
