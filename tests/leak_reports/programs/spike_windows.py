"""Train a logistic spike detector on windows of many short electrode recordings (HDF5)."""

import os
import tempfile
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import h5py
import numpy as np

RECORDINGS = 640
CHANNELS = 32
SAMPLES = 6144
WINDOW = 256


def write_recordings(path, rng):
    with h5py.File(path, "w") as out:
        base = np.zeros((CHANNELS, SAMPLES), dtype=np.int16)
        for number in range(RECORDINGS):
            base[:] = 0
            times = rng.integers(0, SAMPLES - 24, 60)
            chans = rng.integers(0, CHANNELS, 60)
            for t, c in zip(times, chans):
                base[c, t : t + 24] += rng.integers(-80, 300, 24, dtype=np.int16)
            group = out.create_group(f"session_{number:04d}")
            group.create_dataset(
                "raw", data=base, chunks=(CHANNELS, 1024), compression="gzip", compression_opts=1, shuffle=True
            )
            group.attrs["rate"] = 30000.0


class RecordingStore:
    """Random access to the windows of the recordings of one file."""

    def __init__(self, path):
        self._file = h5py.File(path, "r")
        self._open = {}
        self.names = sorted(self._file)

    def raw(self, name):
        dataset = self._open.get(name)
        if dataset is None:
            dataset = self._open[name] = self._file[name]["raw"]
        return dataset

    def window(self, name, start):
        block = self.raw(name)[:, start : start + WINDOW]
        return block.astype(np.float32) / 300.0


class WindowSampler:
    """Walks through the sessions in recording order, two new ones for each epoch."""

    def __init__(self, store, rng, fresh=2):
        self.store = store
        self.rng = rng
        self.fresh = fresh
        self.position = 0

    def epoch(self):
        names = self.store.names
        picked = [names[(self.position + k) % len(names)] for k in range(self.fresh)]
        self.position += self.fresh
        for name in picked:
            starts = self.rng.permutation(SAMPLES // WINDOW)
            for batch in np.array_split(starts, 4):
                blocks = [self.store.window(name, int(s) * WINDOW) for s in batch]
                yield np.concatenate(blocks, axis=0)


class SpikeDetector:
    def __init__(self, rng, filters=320):
        self.kernels = rng.normal(0, 0.05, (WINDOW, filters)).astype(np.float32)
        self.readout = rng.normal(0, 0.03, filters).astype(np.float32)
        self.bias = np.float32(0.0)

    def train_batch(self, x, lr=0.02):
        target = (np.abs(x).max(axis=1) > 0.35).astype(np.float32)
        hidden = np.tanh(x @ self.kernels)
        prob = 1.0 / (1.0 + np.exp(-(hidden @ self.readout + self.bias)))
        err = (prob - target) / len(x)
        grad_hidden = err[:, None] * self.readout[None, :] * (1 - hidden**2)
        self.readout -= lr * (hidden.T @ err)
        self.kernels -= lr * (x.T @ grad_hidden)
        self.bias -= lr * err.sum()
        eps = 1e-6
        return float(-(target * np.log(prob + eps) + (1 - target) * np.log(1 - prob + eps)).mean())


class RunningMean:
    def __init__(self, span=50):
        self.span = span
        self.values = []

    def add(self, value):
        self.values.append(value)
        if len(self.values) > self.span:
            del self.values[0]

    def mean(self):
        return sum(self.values) / len(self.values)


def main():
    rng = np.random.default_rng(5)
    folder = tempfile.mkdtemp(prefix="spikes_")
    path = os.path.join(folder, "recordings.h5")
    write_recordings(path, rng)
    store = RecordingStore(path)
    os.unlink(path)
    os.rmdir(folder)
    sampler = WindowSampler(store, rng)
    model = SpikeDetector(rng)
    smooth = RunningMean()
    epochs = 250
    for epoch in range(1, epochs + 1):
        for batch in sampler.epoch():
            smooth.add(model.train_batch(batch))
            time.sleep(0.045)
        time.sleep(0.15)
        print(f"Epoch {epoch}/{epochs} loss {smooth.mean():.4f}")


if __name__ == "__main__":
    main()
