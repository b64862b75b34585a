"""Online training of a gait classifier; every window's activations are sent to the edge dashboard."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import struct
import time
from collections import deque

import numpy as np
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_FLOAT

CONFIG = {
    "channels": 9,
    "window": 128,
    "hidden": 192,
    "classes": 6,
    "batch": 160,
    "windows_per_epoch": 48,
    "epochs": 80,
    "lr": 0.02,
    "buffer_frames": 64,
    "pace_s": 0.95,
}


class GaitStream:
    """Synthetic accelerometer windows of six walking styles."""

    def __init__(self, cfg, rng):
        self.cfg = cfg
        self.rng = rng
        t = np.linspace(0, 2 * np.pi, cfg["window"], dtype=np.float32)
        freq = np.arange(1, cfg["classes"] + 1, dtype=np.float32)
        phase = rng.uniform(0, np.pi, size=(cfg["classes"], cfg["channels"])).astype(np.float32)
        self.templates = np.sin(freq[:, None, None] * t + phase[:, :, None])
        self.library = rng.standard_normal((6000, cfg["channels"] * cfg["window"]), dtype=np.float32)

    def batch(self):
        labels = self.rng.integers(0, self.cfg["classes"], self.cfg["batch"])
        clean = self.templates[labels].reshape(len(labels), -1)
        rows = self.rng.integers(0, len(self.library), len(labels))
        return clean + 1.5 * self.library[rows], labels


class TwoLayerNet:
    def __init__(self, cfg, rng):
        d = cfg["channels"] * cfg["window"]
        self.w1 = (rng.standard_normal((d, cfg["hidden"])) / np.sqrt(d)).astype(np.float32)
        self.w2 = (rng.standard_normal((cfg["hidden"], cfg["classes"])) / np.sqrt(cfg["hidden"])).astype(np.float32)
        self.lr = cfg["lr"]

    def step(self, x, y):
        h = np.maximum(x @ self.w1, 0)
        logits = h @ self.w2
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        p /= p.sum(axis=1, keepdims=True)
        loss = -np.log(p[np.arange(len(y)), y] + 1e-9).mean()
        p[np.arange(len(y)), y] -= 1
        p /= len(y)
        grad_h = (p @ self.w2.T) * (h > 0)
        self.w2 -= self.lr * h.T @ p
        self.w1 -= self.lr * x.T @ grad_h
        return float(loss), h


class DashboardLink:
    """Length-prefixed frames; the socket thread of the dashboard takes the newest ones."""

    def __init__(self, cfg):
        self.outbox = deque(maxlen=cfg["buffer_frames"])
        self.sent_bytes = 0

    def push(self, payload):
        frame = struct.pack("<I", len(payload)) + payload
        self.outbox.append(frame)
        self.sent_bytes += len(frame)


class ActivationPublisher:
    def __init__(self, link):
        self.link = link
        self.frame = TensorProto()
        self.frame.dtype = DT_FLOAT

    def publish(self, activations):
        self.frame.tensor_content = activations.tobytes()
        self.link.push(self.frame.SerializeToString())


class EpochStats:
    def __init__(self):
        self.losses = []

    def add(self, loss):
        self.losses.append(loss)

    def flush(self):
        mean = sum(self.losses) / len(self.losses)
        self.losses.clear()
        return mean


def main():
    cfg = CONFIG
    rng = np.random.default_rng(5)
    stream = GaitStream(cfg, rng)
    net = TwoLayerNet(cfg, rng)
    link = DashboardLink(cfg)
    publisher = ActivationPublisher(link)
    stats = EpochStats()
    for epoch in range(1, cfg["epochs"] + 1):
        began = time.time()
        for _ in range(cfg["windows_per_epoch"]):
            x, y = stream.batch()
            loss, hidden = net.step(x, y)
            stats.add(loss)
            publisher.publish(hidden)
        print(
            f"epoch {epoch}/{cfg['epochs']} loss {stats.flush():.4f} "
            f"sent {link.sent_bytes / 1e6:.0f} MB outbox {len(link.outbox)}",
            flush=True,
        )
        time.sleep(max(0.0, cfg["pace_s"] - (time.time() - began)))


if __name__ == "__main__":
    main()
