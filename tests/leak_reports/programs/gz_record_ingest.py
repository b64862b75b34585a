"""Streams gzip records through libz and fits per-channel statistics on them.

Records come from a mirror that often delivers damaged bytes; those are skipped.
"""

import collections
import ctypes
import ctypes.util
import random
import time
import zlib

import numpy as np

BATCHES = 80
RECORDS = 90
CHUNK = 1 << 14
Z_OK, Z_STREAM_END, Z_NO_FLUSH = 0, 1, 0


class ZStream(ctypes.Structure):
    _fields_ = [
        ("next_in", ctypes.c_void_p),
        ("avail_in", ctypes.c_uint),
        ("total_in", ctypes.c_ulong),
        ("next_out", ctypes.c_void_p),
        ("avail_out", ctypes.c_uint),
        ("total_out", ctypes.c_ulong),
        ("msg", ctypes.c_char_p),
        ("state", ctypes.c_void_p),
        ("zalloc", ctypes.c_void_p),
        ("zfree", ctypes.c_void_p),
        ("opaque", ctypes.c_void_p),
        ("data_type", ctypes.c_int),
        ("adler", ctypes.c_ulong),
        ("reserved", ctypes.c_ulong),
    ]


libz = ctypes.CDLL(ctypes.util.find_library("z") or "libz.so.1")
libz.zlibVersion.restype = ctypes.c_char_p


class DamagedRecord(ValueError):
    pass


class RecordReader:
    """Inflates one gzip member with a fixed output buffer."""

    def __init__(self):
        self.out = ctypes.create_string_buffer(CHUNK)
        self.good = 0
        self.bad = collections.Counter()

    def inflate(self, data):
        zs = ZStream()
        src = ctypes.create_string_buffer(data, len(data))
        zs.next_in, zs.avail_in = ctypes.addressof(src), len(data)
        rc = libz.inflateInit2_(ctypes.byref(zs), 31, libz.zlibVersion(), ctypes.sizeof(zs))
        if rc != Z_OK:
            raise RuntimeError(f"inflateInit2: {rc}")
        parts = []
        while True:
            zs.next_out, zs.avail_out = ctypes.addressof(self.out), CHUNK
            rc = libz.inflate(ctypes.byref(zs), Z_NO_FLUSH)
            if rc not in (Z_OK, Z_STREAM_END):
                raise DamagedRecord(zs.msg or rc)
            parts.append(self.out.raw[: CHUNK - zs.avail_out])
            if rc == Z_STREAM_END:
                break
        libz.inflateEnd(ctypes.byref(zs))
        self.good += 1
        return b"".join(parts)


class Mirror:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        gen = np.random.default_rng(seed)
        self.store = []
        for _ in range(24):
            frame = np.cumsum(gen.integers(-3, 4, (4000, 8)), axis=0).astype(np.int16)
            co = zlib.compressobj(6, zlib.DEFLATED, 31)
            self.store.append(co.compress(frame.tobytes()) + co.flush())

    def fetch(self):
        data = self.rng.choice(self.store)
        if self.rng.random() < 0.55:
            raw = bytearray(data)
            at = self.rng.randrange(len(raw) // 2, len(raw) - 400)
            raw[at : at + 300] = self.rng.randbytes(300)
            data = bytes(raw)
        return data


class ChannelModel:
    def __init__(self, channels=8):
        self.mean = np.zeros(channels)
        self.var = np.ones(channels)
        self.recent = collections.deque(maxlen=64)

    def update(self, blob, rate=0.05):
        x = np.frombuffer(blob, dtype=np.int16).reshape(-1, 8).astype(float)
        self.mean += rate * (x.mean(0) - self.mean)
        self.var += rate * (x.var(0) - self.var)
        self.recent.append(float(np.abs(x[-1] - self.mean).mean()))


def main():
    mirror, reader, model = Mirror(2), RecordReader(), ChannelModel()
    for batch in range(1, BATCHES + 1):
        t0 = time.time()
        for _ in range(RECORDS):
            try:
                model.update(reader.inflate(mirror.fetch()))
            except DamagedRecord as err:
                reader.bad[str(err)] += 1
        skipped = sum(reader.bad.values())
        print(f"{batch}/{BATCHES} ok={reader.good} skipped={skipped} spread={model.var.mean():.1f}", flush=True)
        time.sleep(max(0.3, 1.1 - (time.time() - t0)))


if __name__ == "__main__":
    main()
