"""Reduction of sky observations: counts maps on local geometries, stacked to one image."""

import time
from collections import deque
from functools import cache, lru_cache

import numpy as np
from scipy import ndimage

OBSERVATIONS = 66
OBS_SECONDS = 1.9
NPIX = 260


class LocalGeom:
    """Tangential pixel grid about a pointing."""

    def __init__(self, lon, lat, width=4.0, npix=NPIX):
        self.lon = lon
        self.lat = lat
        self.width = width
        self.npix = npix

    @cache
    def coordinates(self):
        axis = np.linspace(-self.width / 2, self.width / 2, self.npix)
        dx, dy = np.meshgrid(np.radians(axis), np.radians(axis))
        lat = np.arcsin(np.clip(np.sin(np.radians(self.lat)) + dy * np.cos(np.radians(self.lat)), -1, 1))
        lon = np.radians(self.lon) + dx / np.cos(lat)
        return lon, lat

    @cache
    def solid_angle(self):
        lon, lat = self.coordinates()
        return np.abs(np.gradient(lon, axis=1) * np.gradient(np.sin(lat), axis=0))


@lru_cache(maxsize=32)
def psf_kernel(sigma_steps):
    axis = np.arange(-7, 8)
    g = np.exp(-0.5 * (axis / (sigma_steps / 4.0)) ** 2)
    kernel = np.outer(g, g)
    return kernel / kernel.sum()


class Stacker:
    def __init__(self):
        self.counts = np.zeros((NPIX, NPIX))
        self.exposure = np.zeros((NPIX, NPIX))
        self.last_maps = deque(maxlen=4)
        self.table = []

    def add(self, obs_id, counts, exposure):
        self.counts += counts
        self.exposure += exposure
        self.last_maps.append(counts.astype(np.float32))
        flux = float(self.counts.sum() / self.exposure.sum())
        self.table.append((obs_id, float(counts.sum()), flux))
        return flux


def reduce_observation(rng, stacker, obs_id):
    geom = LocalGeom(lon=83.6 + rng.normal(scale=0.5), lat=22.0 + rng.normal(scale=0.5))
    lon, lat = geom.coordinates()
    dist2 = (lon - np.radians(83.6)) ** 2 + (lat - np.radians(22.0)) ** 2
    model = 40.0 * np.exp(-dist2 / (2 * np.radians(0.15) ** 2)) + 0.4
    counts = rng.poisson(model).astype(float)
    smooth = ndimage.convolve(counts, psf_kernel(int(rng.integers(6, 20))), mode="nearest")
    return stacker.add(obs_id, smooth, geom.solid_angle() * 1e6)


def main():
    rng = np.random.default_rng(5)
    stacker = Stacker()
    for k in range(1, OBSERVATIONS + 1):
        t0 = time.time()
        flux = reduce_observation(rng, stacker, k)
        print(f"observation {k}/{OBSERVATIONS} flux {flux:.4f}", flush=True)
        time.sleep(max(0.1, OBS_SECONDS - (time.time() - t0)))


if __name__ == "__main__":
    main()
