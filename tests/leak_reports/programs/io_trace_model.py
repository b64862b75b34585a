"""Learns a throughput model from I/O trace logs read through the C library."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
import tempfile
import time
from collections import OrderedDict, deque

import cffi
import numpy as np

ffi = cffi.FFI()
ffi.cdef("""
    typedef struct _IO_FILE FILE;
    FILE *fopen(const char *path, const char *mode);
    int fclose(FILE *fp);
    void rewind(FILE *fp);
    ssize_t getdelim(char **lineptr, size_t *n, int delim, FILE *fp);
""")
libc = ffi.dlopen(None)

RECORDS = 36
COUNTERS = 20000
EPOCHS = 62
RECORD_PAUSE = 0.045
SEPARATOR = b";"
KERNEL = np.hanning(401) / np.hanning(401).sum()


def write_log(path, seed=0):
    rng = np.random.default_rng(seed)
    with open(path, "wb") as fh:
        for _ in range(RECORDS):
            scale = rng.uniform(0.2, 3.0)
            values = (rng.gamma(2.0, scale, COUNTERS) * 1000).astype(np.int64) % 1_000_000
            fh.write(b" ".join(b"%d" % v for v in values))
            fh.write(SEPARATOR)


class LogReader:
    """Thin wrapper around the record reader of the C library."""

    def __init__(self, path):
        self.path = path
        self.handle = libc.fopen(path.encode(), b"rb")
        if self.handle == ffi.NULL:
            raise OSError(path)
        self.names = OrderedDict()

    def get_record(self):
        buf = ffi.new("char **")
        size = ffi.new("size_t *")
        n = libc.getdelim(buf, size, ord(SEPARATOR), self.handle)
        if n < 0:
            return None
        raw = ffi.buffer(buf[0], n - 1)[:]
        return np.array(raw.split(), dtype=np.float64)

    def records(self):
        libc.rewind(self.handle)
        i = 0
        while True:
            rec = self.get_record()
            if rec is None:
                return
            self.names[i] = len(rec)
            yield i, rec
            i += 1

    def close(self):
        libc.fclose(self.handle)


class ThroughputModel:
    def __init__(self, bins=32, lr=0.02):
        self.edges = np.linspace(0, 20000, bins + 1)
        self.w = np.zeros(bins)
        self.lr = lr
        self.losses = deque(maxlen=RECORDS * 2)

    def features(self, rec):
        smooth = np.convolve(np.sort(rec), KERNEL, mode="same")
        hist, _ = np.histogram(smooth, bins=self.edges)
        return hist / len(rec)

    def step(self, rec):
        x = self.features(rec)
        y = rec.mean() / 10000.0
        err = x @ self.w - y
        self.w -= self.lr * err * x * 10
        self.losses.append(err * err)
        return err


def main():
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "job.trace")
        write_log(path)
        reader = LogReader(path)
        model = ThroughputModel()
        summary = {}
        for epoch in range(1, EPOCHS + 1):
            residuals = {}
            for i, rec in reader.records():
                residuals[i] = model.step(rec)
                time.sleep(RECORD_PAUSE)
            summary[epoch] = float(np.mean(model.losses))
            print(f"epoch {epoch:02d} mse={summary[epoch]:.6f} worst={max(residuals, key=lambda k: abs(residuals[k]))}")
        reader.close()
    print("records per epoch:", len(reader.names))


if __name__ == "__main__":
    main()
