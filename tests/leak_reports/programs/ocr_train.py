"""Line recognition: the main process loads and augments lines, a second process fits the model."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
import multiprocessing as mp
import sys
import time
from collections import Counter, deque

import numpy as np

LINE_HEIGHT = 40
LINE_WIDTH = 320
BATCH = 6
BATCHES = 1150
LOAD_PAUSE = 0.082
TRAIN_PAUSE = 0.55
ALPHABET = 24
BLUR_PASSES = 8
LOG_EVERY = 50


class LineDataset:
    """Synthetic text lines, one glyph per 16 columns."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.glyphs = self.rng.random((ALPHABET, LINE_HEIGHT, 16)).astype(np.float32)
        self.seen = Counter()

    def line(self):
        text = self.rng.integers(0, ALPHABET, LINE_WIDTH // 16)
        self.seen.update(text.tolist())
        return np.concatenate([self.glyphs[c] for c in text], axis=1), text


class Augmenter:
    def __init__(self, seed=1):
        self.rng = np.random.default_rng(seed)
        self.kernels = deque(maxlen=16)
        fy, fx = np.fft.fftfreq(LINE_HEIGHT)[:, None], np.fft.rfftfreq(LINE_WIDTH)[None]
        self.lowpass = np.exp(-1.0 * (fy**2 + fx**2))

    def __call__(self, image):
        noise = self.rng.standard_normal(image.shape, dtype=np.float32)
        strength = float(self.rng.uniform(0.02, 0.15))
        self.kernels.append(strength)
        blurred = image + strength * noise
        for _ in range(BLUR_PASSES):
            blurred = np.fft.irfft2(np.fft.rfft2(blurred) * self.lowpass, s=image.shape)
        return np.clip(blurred, 0.0, 1.0).astype(np.float32)


class DataLoader:
    def __init__(self, dataset, augment, batches):
        self.dataset = dataset
        self.augment = augment
        self.batches = batches
        self.produced = 0

    def next_batch(self):
        pairs = [self.dataset.line() for _ in range(BATCH)]
        images = np.stack([self.augment(p[0]) for p in pairs])
        labels = np.stack([p[1] for p in pairs])
        return {"images": images, "labels": labels, "index": self.produced}

    def push(self):
        self.batches.put(self.next_batch())
        self.produced += 1


def training_process(batches, progress):
    """Consumes batches until the parent stops it."""
    w = np.zeros((LINE_HEIGHT * 16, ALPHABET), dtype=np.float32)
    count = 0
    while True:
        batch = batches.get()
        if batch is None:
            break
        x = batch["images"].reshape(BATCH, LINE_HEIGHT, -1, 16).transpose(0, 2, 1, 3).reshape(-1, LINE_HEIGHT * 16)
        y = batch["labels"].reshape(-1)
        logits = x @ w
        logits -= logits.max(1, keepdims=True)
        p = np.exp(logits)
        p /= p.sum(1, keepdims=True)
        loss = float(-np.log(p[np.arange(len(y)), y] + 1e-9).mean())
        p[np.arange(len(y)), y] -= 1
        w -= 0.01 * (x.T @ p) / len(y)
        count += 1
        with progress.get_lock():
            progress[0] = count
            progress[1] = loss
        time.sleep(TRAIN_PAUSE)


def main():
    ctx = mp.get_context("fork")
    batches = ctx.Queue()
    progress = ctx.Array("d", 2)
    trainer = ctx.Process(target=training_process, args=(batches, progress), daemon=True)
    trainer.start()
    loader = DataLoader(LineDataset(), Augmenter(), batches)
    loss_log = deque(maxlen=100)
    start = time.time()
    for i in range(1, BATCHES + 1):
        loader.push()
        if i % LOG_EVERY == 0:
            loss_log.append(progress[1])
            sys.stdout.write(
                f"#{int(progress[0]):06d}: loss={progress[1]:.5f} ({(time.time() - start) / i:.3f} s/load)\n"
            )
            sys.stdout.flush()
        time.sleep(LOAD_PAUSE)
    trainer.terminate()
    trainer.join()
    batches.cancel_join_thread()
    batches.close()
    print("Stopped after", int(progress[0]), "training steps; mean loss", round(sum(loss_log) / len(loss_log), 4))


if __name__ == "__main__":
    main()
