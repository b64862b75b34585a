"""Benchmark augmentation policies on synthetic frames with a linear probe on edge features."""

import logging
import logging.handlers
import time

import cv2
import numpy as np

cv2.setNumThreads(1)
log = logging.getLogger("augment")


def configure_logging(capacity=400):
    """Debug records stay in memory until something goes wrong; info goes to the console."""
    console = logging.StreamHandler()
    console.setLevel(logging.WARNING)
    backlog = logging.handlers.MemoryHandler(capacity, flushLevel=logging.ERROR)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    log.addHandler(console)
    log.addHandler(backlog)


class FrameSource:
    def __init__(self, seed, size=320):
        self.rng, self.size = np.random.default_rng(seed), size

    def read(self):
        frame = self.rng.integers(0, 60, (self.size, self.size, 3), dtype=np.uint8)
        label = int(self.rng.integers(0, 2))
        centre = tuple(int(v) for v in self.rng.integers(90, self.size - 90, 2))
        if label:
            cv2.circle(frame, centre, 50, (220, 180, 90), -1)
        else:
            cv2.rectangle(frame, centre, (centre[0] + 70, centre[1] + 70), (220, 180, 90), -1)
        return frame, label


class Policy:
    def __init__(self, name, rotation, blur, rng):
        self.name, self.rotation, self.blur, self.rng = name, rotation, blur, rng

    def __call__(self, frame):
        angle = float(self.rng.uniform(-self.rotation, self.rotation))
        matrix = cv2.getRotationMatrix2D((160, 160), angle, 1.0)
        out = cv2.warpAffine(frame, matrix, (320, 320), borderMode=cv2.BORDER_REFLECT)
        if self.blur:
            out = cv2.GaussianBlur(out, (5, 5), self.blur)
        crop = np.ascontiguousarray(out[24:296, 24:296])
        log.debug("%s: rotated %.1f degrees, crop %s", self.name, angle, crop)
        return crop


def describe(crop):
    grey = cv2.cvtColor(crop, cv2.COLOR_BGR2GRAY).astype(np.float32)
    dx, dy = cv2.Sobel(grey, cv2.CV_32F, 1, 0), cv2.Sobel(grey, cv2.CV_32F, 0, 1)
    hist, _ = np.histogram(np.arctan2(dy, dx), bins=24, weights=np.hypot(dx, dy))
    return hist / (hist.sum() + 1e-6)


class Probe:
    def __init__(self, width):
        self.weights, self.bias = np.zeros(width), 0.0

    def step(self, features, label, rate=2.0):
        p = 1 / (1 + np.exp(-(features @ self.weights + self.bias)))
        self.weights -= rate * (p - label) * features
        self.bias -= rate * 0.05 * (p - label)
        return (p > 0.5) == bool(label)


def main(rounds=40, frames=55):
    configure_logging()
    source, rng = FrameSource(4), np.random.default_rng(8)
    policies = [Policy("none", 0, 0, rng), Policy("rotate", 25, 0, rng), Policy("soft", 15, 1.2, rng)]
    probes = {policy.name: Probe(24) for policy in policies}
    for number in range(1, rounds + 1):
        policy = policies[number % len(policies)]
        hits = 0
        for _ in range(frames):
            frame, label = source.read()
            hits += probes[policy.name].step(describe(policy(frame)), label)
            time.sleep(0.042)
        print(f"round {number:3d}/{rounds}  policy {policy.name:6s}  accuracy {hits / frames:.3f}", flush=True)


if __name__ == "__main__":
    main()
