"""Detector read-out simulation: digitise all channels, zero-suppress, fit a gain map.

Each run step reads one event (every channel has a full waveform), drops the samples under
threshold and keeps the remaining hits for the calibration at the end of the run.
"""

import collections
import time

import numpy as np

CHANNELS = 14
SAMPLES = 32768


class Digitiser:
    """Waveforms of 16-bit samples for every channel."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.pedestal = self.rng.integers(180, 220, CHANNELS)
        self.gain = self.rng.normal(1.0, 0.08, CHANNELS)
        pulse = np.arange(90)
        self.shape = np.exp(-pulse / 22.0) * (1 - np.exp(-pulse / 4.0))

    def read_channel(self, channel):
        wave = np.full(SAMPLES, self.pedestal[channel], dtype=np.int16)
        for start in self.rng.integers(0, SAMPLES - 100, self.rng.integers(3, 9)):
            height = self.gain[channel] * self.rng.uniform(200, 900)
            wave[start : start + 90] += (height * self.shape).astype(np.int16)
        return wave

    def read_event(self):
        return [self.read_channel(c) for c in range(CHANNELS)]


class ZeroSuppressor:
    def __init__(self, pedestals, threshold=40):
        self.pedestals = pedestals
        self.threshold = threshold

    def apply(self, channel, wave):
        """Moves the samples over threshold to the front and cuts the rest off, in place."""
        over = np.flatnonzero(wave > self.pedestals[channel] + self.threshold)
        kept = wave[over] - self.pedestals[channel]
        wave[: len(kept)] = kept
        wave.resize(max(len(kept), 1), refcheck=False)
        return wave


class NoiseBank:
    """Noise spectra measured before the run, to compare the running noise with."""

    def __init__(self, rng, spectra=1200):
        self.reference = np.abs(rng.normal(40.0, 8.0, (spectra, 2049)))

    def distance(self, spectrum):
        return float(np.abs(self.reference[::60] - spectrum).mean())


class HitStore:
    """Hits for each channel, used by the end-of-run calibration."""

    def __init__(self):
        self.by_channel = collections.defaultdict(list)

    def add(self, channel, hits):
        self.by_channel[channel].append(hits)

    def count(self):
        return sum(len(v) for v in self.by_channel.values())


class GainMonitor:
    """Running estimate of the relative gains from the last events."""

    def __init__(self, depth=40):
        self.peaks = [collections.deque(maxlen=depth) for _ in range(CHANNELS)]

    def add(self, channel, hits):
        self.peaks[channel].append(int(hits.max()))

    def relative(self):
        means = np.array([np.mean(p) for p in self.peaks])
        return means / means.mean()


def process_event(digitiser, suppressor, store, monitor):
    waves = digitiser.read_event()
    for channel, wave in enumerate(waves):
        hits = suppressor.apply(channel, wave)
        store.add(channel, hits)
        monitor.add(channel, hits)


def main():
    digitiser = Digitiser(seed=21)
    suppressor = ZeroSuppressor(digitiser.pedestal)
    store = HitStore()
    monitor = GainMonitor()
    bank = NoiseBank(digitiser.rng)
    steps = 260
    for step in range(1, steps + 1):
        process_event(digitiser, suppressor, store, monitor)
        levels = []
        for _ in range(1800):
            spectrum = np.abs(np.fft.rfft(digitiser.rng.normal(size=4096)))
            levels.append(bank.distance(spectrum))
        spread = float(np.std(monitor.relative() - digitiser.gain / digitiser.gain.mean()))
        time.sleep(0.5)
        print(f"Step {step}/{steps} hits {store.count()} gain spread {spread:.4f} noise {np.mean(levels):.2f}")


if __name__ == "__main__":
    main()
