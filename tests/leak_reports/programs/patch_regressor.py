import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import queue
import threading

import cv2
import numpy as np

cv2.setNumThreads(1)


def threaded_generator(generator, maxsize=6, thread_name=None):
    """Runs a generator in a background thread and yields its items."""
    q = queue.Queue(maxsize=maxsize)
    sentinel = object()

    def fill_queue():
        try:
            for item in generator:
                q.put(item)
        finally:
            q.put(sentinel)

    thread = threading.Thread(name=thread_name, target=fill_queue, daemon=True)
    thread.start()
    yield from iter(q.get, sentinel)


class RotatedShapes:
    """Patches with an ellipse whose orientation has to be found."""

    def __init__(self, size=64, batch_size=32, length=400, seed=0):
        self.size, self.batch_size, self.length, self.seed = size, batch_size, length, seed
        rng = np.random.default_rng(seed)
        self.textures = [cv2.GaussianBlur(rng.random((512, 512), dtype=np.float32), (7, 7), 2) for _ in range(24)]

    def batches(self, epoch):
        rng = np.random.default_rng((self.seed, epoch))
        for _ in range(self.length):
            angles = rng.uniform(0, 180, self.batch_size)
            images = np.empty((self.batch_size, self.size, self.size), np.float32)
            for img, angle in zip(images, angles):
                y, x = rng.integers(512 - self.size, size=2)
                img[:] = self.textures[rng.integers(24)][y : y + self.size, x : x + self.size]
                center = tuple(int(v) for v in rng.integers(24, self.size - 24, 2))
                axes = (int(rng.integers(14, 22)), int(rng.integers(4, 9)))
                cv2.ellipse(img, center, axes, angle, 0, 360, 1.0, -1)
                img[:] = cv2.GaussianBlur(img, (5, 5), 1.2)
            target = np.deg2rad(2 * angles)
            yield images, np.stack([np.cos(target), np.sin(target)], 1)


class FilterBankRegressor:
    """Gabor energies on a grid of cells, then a two-layer perceptron trained with momentum."""

    def __init__(self, hidden=160, seed=1):
        rng = np.random.default_rng(seed)
        self.kernels = [
            cv2.getGaborKernel((15, 15), s, a, 2.6 * s, 0.7, p)
            for s in (2.0, 3.2)
            for a in np.linspace(0, np.pi, 8, endpoint=False)
            for p in (0.0, np.pi / 2)
        ]
        width = len(self.kernels) * 16
        self.w1 = rng.standard_normal((width, hidden)) / np.sqrt(width)
        self.w2 = rng.standard_normal((hidden, 2)) / np.sqrt(hidden)
        self.v1, self.v2 = np.zeros_like(self.w1), np.zeros_like(self.w2)

    def describe(self, images):
        rows = []
        for img in images:
            maps = [
                cv2.resize(np.abs(cv2.filter2D(img, -1, k)), (4, 4), interpolation=cv2.INTER_AREA) for k in self.kernels
            ]
            rows.append(np.concatenate([m.ravel() for m in maps]))
        z = np.stack(rows).astype(np.float64)
        return (z - z.mean(1, keepdims=True)) / (z.std(1, keepdims=True) + 1e-6)

    def train_batch(self, images, target, lr=0.01):
        z = self.describe(images)
        h = np.tanh(z @ self.w1)
        err = h @ self.w2 - target
        g2 = h.T @ err / len(z)
        g1 = z.T @ (err @ self.w2.T * (1 - h**2)) / len(z)
        self.v1, self.v2 = 0.9 * self.v1 - lr * g1, 0.9 * self.v2 - lr * g2
        self.w1 += self.v1
        self.w2 += self.v2
        return float((err**2).mean())


def main(epochs=200, steps=12):
    model, data = FilterBankRegressor(), RotatedShapes()
    for epoch in range(1, epochs + 1):
        losses = []
        for images, target in threaded_generator(data.batches(epoch), thread_name=f"epoch{epoch}"):
            losses.append(model.train_batch(images, target))
            if len(losses) == steps:
                break
        print(f"epoch {epoch}/{epochs} loss {np.mean(losses):.4f}", flush=True)


if __name__ == "__main__":
    main()
