import time
import weakref

import numpy as np

N_BLOCKS = 270
PERIOD = 0.5
ANGLES, WIDTH = 180, 1100
STAGES = [("stage_%02d" % i, float(i)) for i in range(24)]


class BlockReader:
    """Reads one block of projections and releases it again when it is dropped."""

    open_blocks = 0

    def __init__(self, source, index):
        self.index = index
        self.raw = source.load(index)
        BlockReader.open_blocks += 1
        weakref.finalize(self, self.finalize)

    def finalize(self):
        BlockReader.open_blocks -= 1
        self.raw = None

    def normalised(self, flat, dark):
        return (self.raw - dark) / np.maximum(flat - dark, 1e-3)


class Projections:
    """The detector: flat and dark fields, and noisy projections on demand."""

    def __init__(self, seed=2):
        self.rng = np.random.default_rng(seed)
        self.flat = np.full(WIDTH, 900.0, np.float32)
        self.dark = self.rng.random(WIDTH, dtype=np.float32) * 20
        self.phantoms = [np.sin(np.linspace(0, k + 1, WIDTH)).astype(np.float32) for k in range(60)]

    def load(self, index):
        noise = self.rng.random((ANGLES * 2, WIDTH), dtype=np.float32)
        return 500 + 300 * self.phantoms[index % len(self.phantoms)] * noise


class RidgeDenoiser:
    """Learns a short filter that maps each pixel's neighbours to the pixel."""

    def __init__(self, taps=5):
        self.taps = taps
        self.gram = np.eye(2 * taps, dtype=np.float64)
        self.cross = np.zeros(2 * taps)
        self.offsets = [o for o in range(-taps, taps + 1) if o]
        self.errors = []

    def design(self, row):
        return np.stack([np.roll(row, o) for o in self.offsets], 1)

    def update(self, block):
        for row in block[:: len(block) // 6]:
            a = self.design(row)
            self.gram += a.T @ a
            self.cross += a.T @ row
        w = np.linalg.solve(self.gram, self.cross)
        err = float(np.abs(self.design(block[0]) @ w - block[0]).mean())
        self.errors.append(err)
        return err


class Pipeline:
    def __init__(self):
        self.source = Projections()
        self.model = RidgeDenoiser()
        self.last_means = []

    def run_block(self, i):
        reader = BlockReader(self.source, i)
        block = reader.normalised(self.source.flat, self.source.dark)
        self.last_means = (self.last_means + [block.mean(0)])[-30:]
        return self.model.update(block)


def main():
    pipe = Pipeline()
    for i in range(N_BLOCKS):
        t0 = time.time()
        err = pipe.run_block(i)
        print(f"block {i + 1}/{N_BLOCKS} {STAGES[i % len(STAGES)][0]} err {err:.5f}", flush=True)
        time.sleep(max(0.0, PERIOD - (time.time() - t0)))
    print(f"done, mean error {np.mean(pipe.model.errors):.5f}", flush=True)


if __name__ == "__main__":
    main()
