import itertools
import time

import numpy as np

EPOCHS = 26
STEPS = 100
PERIOD = 0.05
SHAPE = (3, 96, 128)


def simulate(seed=0):
    """Endless pairs of (image, boxes), as a detector's data generator yields them."""
    rng = np.random.default_rng(seed)
    canvas = rng.random((40, *SHAPE), dtype=np.float32)
    while True:
        img = canvas[rng.integers(40)] * rng.random(dtype=np.float32)
        n = int(rng.integers(1, 6))
        corner = rng.integers(0, 50, (n, 2))
        boxes = np.concatenate([corner, corner + rng.integers(6, 20, (n, 2))], 1).astype(np.float32)
        for x0, y0, x1, y1 in boxes.astype(int):
            img[:, y0:y1, x0:x1] += 0.5
        yield img, boxes


class CountModel:
    """Least squares on coarse brightness: how many boxes are in the image?"""

    def __init__(self):
        self.w = np.zeros(64, np.float64)
        self.errors = []
        self.hard = []

    def features(self, img):
        return img.mean(0).reshape(8, 12, 8, 16).mean((1, 3)).ravel()

    def predict(self, img):
        return float(self.features(img) @ self.w)

    def step(self, img, boxes, lr=0.02):
        f = self.features(img)
        err = float(f @ self.w) - len(boxes)
        self.w -= lr * err * f
        self.errors.append(err * err)
        if err * err > 9 and len(self.hard) < 50:
            self.hard.append(img)


class Detector:
    def __init__(self, source):
        self.model = CountModel()
        self.train_stream, self.sanity_stream = itertools.tee(source)
        self.reports = []

    def sanity(self):
        img, boxes = next(self.sanity_stream)
        return abs(self.model.predict(img) - len(boxes))

    def epoch(self, e):
        start = time.time()
        for s in range(STEPS):
            img, boxes = next(self.train_stream)
            self.model.step(img, boxes)
            if s % 20 == 19:
                print(f"epoch {e} step {s + 1}/{STEPS} mse {np.mean(self.model.errors[-50:]):.4f}", flush=True)
            time.sleep(max(0.0, (s + 1) * PERIOD - (time.time() - start)))
        self.reports.append({"epoch": e, "sanity": self.sanity()})
        print(f"epoch {e} sanity error {self.reports[-1]['sanity']:.3f}", flush=True)


def main():
    det = Detector(simulate())
    for e in range(EPOCHS):
        det.epoch(e)


if __name__ == "__main__":
    main()
