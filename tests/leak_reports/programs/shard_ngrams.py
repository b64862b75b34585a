"""Train a hashed byte-bigram language model on line-oriented shards read through C stdio."""

import ctypes
import ctypes.util
import os
import tempfile
import time

import numpy as np

libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
libc.fopen.restype = ctypes.c_void_p
libc.fopen.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
libc.fclose.argtypes = [ctypes.c_void_p]
libc.getline.restype = ctypes.c_ssize_t
libc.getline.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.c_void_p]


class ShardReader:
    """Iterates over the documents (one a line) of a shard."""

    def __init__(self, path):
        self.path = path

    def __iter__(self):
        stream = libc.fopen(os.fsencode(self.path), b"rb")
        if not stream:
            raise OSError(ctypes.get_errno(), "cannot open", self.path)
        try:
            while True:
                line, capacity = ctypes.c_void_p(), ctypes.c_size_t(0)
                length = libc.getline(ctypes.byref(line), ctypes.byref(capacity), stream)
                if length < 0:
                    return
                yield ctypes.string_at(line, length).rstrip(b"\n")
        finally:
            libc.fclose(stream)


class BigramModel:
    def __init__(self, smoothing=0.5):
        self.counts = np.zeros(256 * 256, dtype=np.int64)
        self.smoothing = smoothing
        self.refresh()

    def refresh(self):
        table = (self.counts + self.smoothing).reshape(256, 256)
        self.log_prob = np.log2(table / table.sum(1, keepdims=True)).ravel()

    def update(self, document):
        data = np.frombuffer(document, dtype=np.uint8).astype(np.uint16)
        pairs = (data[:-1] << 8) | data[1:]
        found = np.bincount(pairs, minlength=self.counts.size)
        bits = -float(self.log_prob[pairs[::8]].mean())
        self.counts += found
        return bits


def write_shard(path, rng, documents=120, words=15000):
    vocabulary = [bytes(rng.integers(97, 123, rng.integers(2, 10)).astype(np.uint8)) for _ in range(3000)]
    with open(path, "wb") as out:
        for _ in range(documents):
            picks = rng.zipf(1.3, words) % len(vocabulary)
            out.write(b" ".join(vocabulary[i] for i in picks) + b"\n")


def main(epochs=30):
    rng = np.random.default_rng(0)
    model = BigramModel()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "shard-00000.txt")
        write_shard(path, rng)
        for epoch in range(1, epochs + 1):
            bits, size = [], 0
            for document in ShardReader(path):
                bits.append(model.update(document))
                size += len(document)
                time.sleep(0.028)
            model.refresh()
            print(
                f"epoch {epoch:3d}/{epochs}  {len(bits)} docs  {size / 1e6:.1f} MB  bits/byte {np.mean(bits):.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
