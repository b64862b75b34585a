"""Pretraining on samples streamed out of one long tar shard (as from an object store)."""

import random
import tarfile
import time

import numpy as np

DIM = 64
SAMPLES_PER_STEP = 2200
STEPS = 80
STEP_SECONDS = 1.6


class ShardStream:
    """Stand-in for the HTTP body of a shard: bytes of a tar file, made as they are read."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.pending = bytearray()
        self.sample = 0

    def _entry(self, name, payload):
        info = tarfile.TarInfo(name)
        info.size = len(payload)
        info.mtime = 1_700_000_000 + self.sample
        pad = -len(payload) % tarfile.BLOCKSIZE
        return info.tobuf(tarfile.USTAR_FORMAT) + payload + b"\0" * pad

    def _make_sample(self):
        key = f"shard-000017/part-{self.sample // 1000:05d}/{self.sample:09d}"
        label = int(self.rng.integers(0, 10))
        vector = self.rng.standard_normal(DIM, dtype=np.float32)
        vector[label] += 2.0
        self.sample += 1
        return self._entry(f"{key}.npy", vector.tobytes()) + self._entry(f"{key}.cls", str(label).encode())

    def read(self, size):
        while len(self.pending) < size:
            self.pending += self._make_sample()
        chunk = bytes(self.pending[:size])
        del self.pending[:size]
        return chunk


def tar_file_iterator(fileobj):
    stream = tarfile.open(fileobj=fileobj, mode="r|")
    for tarinfo in stream:
        if not tarinfo.isreg():
            continue
        data = stream.extractfile(tarinfo).read()
        yield tarinfo.name, data


def group_by_key(files):
    current_key, current = None, {}
    for name, data in files:
        key, extension = name.rsplit(".", 1)
        if key != current_key and current:
            yield current
            current = {}
        current_key = key
        current[extension] = data
    yield current


def shuffled(samples, rng, size=800):
    buffer = []
    for sample in samples:
        buffer.append(sample)
        if len(buffer) >= size:
            index = rng.randrange(len(buffer))
            buffer[index], buffer[-1] = buffer[-1], buffer[index]
            yield buffer.pop()


def main():
    weights = np.zeros((DIM, 10), dtype=np.float32)
    label_histogram = dict.fromkeys(range(10), 0)
    samples = shuffled(group_by_key(tar_file_iterator(ShardStream(seed=5))), random.Random(5))
    seen = 0
    for step in range(1, STEPS + 1):
        start = time.monotonic()
        batch = [next(samples) for _ in range(SAMPLES_PER_STEP)]
        inputs = np.stack([np.frombuffer(s["npy"], dtype=np.float32) for s in batch])
        labels = np.array([int(s["cls"]) for s in batch])
        for label in labels:
            label_histogram[int(label)] += 1
        scores = inputs @ weights
        accuracy = float((scores.argmax(axis=1) == labels).mean())
        probs = np.exp(scores - scores.max(axis=1, keepdims=True))
        probs /= probs.sum(axis=1, keepdims=True)
        probs[np.arange(len(labels)), labels] -= 1.0
        weights -= 0.5 * inputs.T @ probs / len(labels)
        seen += len(batch)
        print(f"step {step}/{STEPS}: acc {accuracy:.3f}, {seen} samples", flush=True)
        time.sleep(max(0.0, STEP_SECONDS - (time.monotonic() - start)))


if __name__ == "__main__":
    main()
