"""Patch classifier on volumetric shards with a background batch generator."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
import queue
import threading
import time

import numpy as np

EPOCHS = 56
STEPS_PER_EPOCH = 16
BATCH = 24
PATCH = (40, 48)
SHARD_PATCHES = 320
PREFETCH = 5
STEP_PAUSE = 0.098
NOISE = 0.3
HIDDEN = 6144


class BackgroundGenerator(threading.Thread):
    """Runs a generator in a thread and hands over its items through a queue."""

    def __init__(self, generator, max_prefetch=1):
        super().__init__(daemon=True)
        self.queue = queue.Queue(max_prefetch)
        self.generator = generator
        self.start()

    def run(self):
        for item in self.generator:
            self.queue.put(item)
        self.queue.put(None)

    def __iter__(self):
        return self

    def __next__(self):
        item = self.queue.get()
        if item is None:
            raise StopIteration
        return item


class ShardReader:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.templates = self.rng.normal(size=(4,) + PATCH).astype(np.float32)

    def load_shard(self, index):
        rng = np.random.default_rng(index)
        labels = rng.integers(0, 4, SHARD_PATCHES)
        noise = rng.standard_normal((SHARD_PATCHES,) + PATCH, dtype=np.float32)
        return self.templates[labels] * NOISE + noise, labels

    def batches(self, epoch):
        patches, labels = self.load_shard(epoch)
        rng = np.random.default_rng(1000 + epoch)
        while True:
            idx = rng.integers(0, SHARD_PATCHES, BATCH)
            x = patches[idx]
            flip = rng.random(BATCH) < 0.5
            x[flip] = x[flip] + 0.05
            yield x.reshape(BATCH, -1), labels[idx]


class RandomFeatures:
    """Fixed rectified projection in front of the linear layer."""

    def __init__(self, dim, n, rng):
        self.p = (rng.standard_normal((dim, n)) / np.sqrt(dim)).astype(np.float32)

    def __call__(self, x):
        return np.maximum(x @ self.p, 0.0)


class SoftmaxRegression:
    def __init__(self, dim, classes, lr=0.001):
        self.w = np.zeros((dim, classes), dtype=np.float32)
        self.lr = lr
        self.momentum = np.zeros_like(self.w)

    def loss_and_grad(self, x, y):
        logits = x @ self.w
        logits -= logits.max(1, keepdims=True)
        p = np.exp(logits)
        p /= p.sum(1, keepdims=True)
        loss = -np.log(p[np.arange(len(y)), y] + 1e-9).mean()
        p[np.arange(len(y)), y] -= 1
        return loss, x.T @ p / len(y)

    def step(self, x, y):
        loss, grad = self.loss_and_grad(x, y)
        self.momentum = 0.9 * self.momentum + grad.astype(np.float32)
        self.w -= self.lr * self.momentum
        return float(loss)

    def accuracy(self, x, y):
        return float(((x @ self.w).argmax(1) == y).mean())


def main():
    reader = ShardReader(7)
    feats = RandomFeatures(PATCH[0] * PATCH[1], HIDDEN, np.random.default_rng(3))
    model = SoftmaxRegression(HIDDEN, 4)
    val_x, val_y = reader.load_shard(10_000)
    val_x = feats(val_x.reshape(len(val_x), -1))
    history = {"loss": [], "val_acc": []}
    for epoch in range(EPOCHS):
        losses = []
        for step, (x, y) in enumerate(BackgroundGenerator(reader.batches(epoch), max_prefetch=PREFETCH)):
            losses.append(model.step(feats(x), y))
            time.sleep(STEP_PAUSE)
            if step + 1 >= STEPS_PER_EPOCH:
                break
        history["loss"].append(float(np.mean(losses)))
        history["val_acc"].append(model.accuracy(val_x, val_y))
        print(f"Epoch {epoch + 1}/{EPOCHS} - loss: {history['loss'][-1]:.4f} - val_acc: {history['val_acc'][-1]:.4f}")
        time.sleep(0.15)


if __name__ == "__main__":
    main()
