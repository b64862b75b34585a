import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np

ROUNDS = 132
PERIOD = 1.0
TILES_PER_ROUND = 9
SIDE = 320


class TileWriter:
    """Compresses tiles and appends them to a pyramid file in the background."""

    def __init__(self, level=6):
        self.level = level
        self.out = tempfile.TemporaryFile()
        self.index = {}
        self.sent = 0
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tiles")

    def _store(self, key, tile):
        packed = zlib.compress(tile[:32].tobytes(), self.level)
        time.sleep(0.6)
        self.index[key] = (self.out.tell(), len(packed))
        self.out.write(packed)

    def put(self, key, tile):
        self.sent += 1
        self.pool.submit(self._store, key, tile)

    def close(self):
        self.pool.shutdown(wait=False, cancel_futures=True)


class Slide:
    """A stained slide with slowly changing texture."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.stains = self.rng.random((48, SIDE, SIDE), dtype=np.float32)
        self.layout = {(r, c): (r * 7 + c * 3) % 48 for r in range(60) for c in range(60)}

    def tile(self, k):
        pos = (k // 60 % 60, k % 60)
        return pos, self.stains[self.layout[pos]]


class ColourModel:
    """Learns a gain and an offset that normalise the stain."""

    def __init__(self):
        self.gain, self.bias = 0.5, 0.0
        self.losses = []
        self.previews = []

    def normalise(self, tile):
        return self.gain * tile + self.bias

    def step(self, tile, lr=0.2):
        err = self.normalise(tile) - (1.4 * tile - 0.2)
        self.gain -= lr * float((err * tile).mean())
        self.bias -= lr * float(err.mean())
        self.losses.append(float((err**2).mean()))


def run():
    slide, model, writer = Slide(), ColourModel(), TileWriter()
    k = 0
    for r in range(ROUNDS):
        t0 = time.time()
        for _ in range(TILES_PER_ROUND):
            pos, tile = slide.tile(k)
            model.step(tile)
            done = model.normalise(tile)
            writer.put((r, *pos), done)
            k += 1
        model.previews = (model.previews + [done[::16, ::16].copy()])[-64:]
        print(
            f"round {r + 1}/{ROUNDS} tiles {writer.sent} loss {model.losses[-1]:.6f} gain {model.gain:.3f}", flush=True
        )
        time.sleep(max(0.0, PERIOD - (time.time() - t0)))
    writer.close()
    print("finished", flush=True)


if __name__ == "__main__":
    run()
