import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import multiprocessing as mp
import time

import numpy as np
from scipy import fft, ndimage

SIZE = 288
N_ANGLES = 720


def phantom(size):
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    img = ((x / 0.8) ** 2 + (y / 0.9) ** 2 < 1).astype(np.float32)
    img -= 0.6 * (((x - 0.2) / 0.3) ** 2 + ((y + 0.1) / 0.5) ** 2 < 1)
    img += 0.4 * ((x + 0.35) ** 2 + (y - 0.3) ** 2 < 0.04)
    return img


def expose(shot):
    """One detector read-out: rotates the sample, waits for the shutter, adds photon noise."""
    rng = np.random.default_rng(shot)
    angle = 360.0 * (shot % N_ANGLES) / N_ANGLES
    time.sleep(0.05)
    profile = ndimage.rotate(SAMPLE, angle, reshape=False, order=1).sum(axis=0)
    counts = rng.poisson(4000 * np.exp(-np.maximum(profile, 0) / 90), size=(SIZE * 3 // 2, SIZE))
    return angle, counts.astype(np.float32)


class FilteredBackprojection:
    def __init__(self, size):
        self.size = size
        freq = fft.rfftfreq(2 * size)
        self.ramp = 2 * np.abs(freq) * np.cos(np.pi * freq) ** 2
        self.volume = np.zeros((40, size, size))
        self.y, self.x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
        self.used = 0

    def add(self, angle, counts):
        line = -np.log(np.maximum(counts, 1) / counts.max())
        rows = np.array_split(ndimage.median_filter(line, size=3), len(self.volume))
        theta = np.deg2rad(angle)
        t = (self.x * np.cos(theta) + self.y * np.sin(theta) + 1) * (self.size - 1) / 2
        for level, block in enumerate(rows):
            spectrum = fft.rfft(block.mean(axis=0), 2 * self.size)
            filtered = fft.irfft(spectrum * self.ramp)[: self.size]
            self.volume[level] += ndimage.map_coordinates(filtered, [t], order=1, mode="constant")
        self.used += 1

    def sharpness(self):
        mean = self.volume.mean(axis=0) / max(self.used, 1)
        return float(np.abs(ndimage.laplace(ndimage.gaussian_filter(mean, 1.5))).mean())


SAMPLE = phantom(SIZE)


def main(shots=20_000, beam_time=260):
    recon = FilteredBackprojection(SIZE)
    started = time.time()
    with mp.get_context("fork").Pool(1) as pool:
        for angle, counts in pool.imap(expose, range(shots)):
            recon.add(angle, counts)
            if recon.used % 5 == 0:
                spent = time.time() - started
                print(
                    f"projection {recon.used} angle {angle:5.1f} sharpness {recon.sharpness():.5f}"
                    f" {spent / recon.used * 1000:.0f} ms/projection",
                    flush=True,
                )
                if spent > beam_time:
                    break
    print(f"done, {recon.used} projections used", flush=True)


if __name__ == "__main__":
    main()
