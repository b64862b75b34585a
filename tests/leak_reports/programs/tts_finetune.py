"""Fine-tuning of a spectrogram predictor with a picture of the validation sample every few steps."""

import time
from collections import deque

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

MELS = 80
FRAMES = 320
TEXT_DIM = 48
STEPS = 80
STEP_SECONDS = 1.7


class SpectrogramModel:
    def __init__(self, rng):
        self.projection = 0.05 * rng.standard_normal((TEXT_DIM, MELS)).astype(np.float32)

    def predict(self, text):
        return text @ self.projection

    def fit(self, text, target, rate=0.05):
        error = self.predict(text) - target
        self.projection -= rate * text.T @ error / len(text)
        return float(np.square(error).mean())


class ImageWriter:
    """Keeps the newest pictures for the report page."""

    def __init__(self, newest=4):
        self.pictures = deque(maxlen=newest)
        self.written = 0

    def add_image(self, tag, step, pixels):
        self.pictures.append((tag, step, pixels))
        self.written += 1


def utterance(rng, truth):
    text = rng.standard_normal((FRAMES, TEXT_DIM), dtype=np.float32)
    return text, text @ truth + 0.1 * rng.standard_normal((FRAMES, MELS), dtype=np.float32)


def spectrogram_to_numpy(spectrogram, title):
    fig = plt.figure(figsize=(14, 5))
    ax = fig.add_subplot(111)
    ax.imshow(spectrogram.T, aspect="auto", origin="lower", interpolation="none")
    ax.set_xlabel("frames")
    ax.set_ylabel("channels")
    ax.set_title(title)
    fig.canvas.draw()
    pixels = np.asarray(fig.canvas.buffer_rgba())[::4, ::4, :3].copy()
    return pixels


def main():
    rng = np.random.default_rng(31)
    truth = rng.standard_normal((TEXT_DIM, MELS)).astype(np.float32)
    model, writer = SpectrogramModel(rng), ImageWriter()
    losses = deque(maxlen=50)
    best = float("inf")
    for step in range(1, STEPS + 1):
        start = time.perf_counter()
        for _ in range(260):
            text, target = utterance(rng, truth)
            losses.append(model.fit(text, target))
        text, target = utterance(rng, truth)
        predicted = model.predict(text)
        best = min(best, float(np.square(predicted - target).mean()))
        writer.add_image("val/predicted", step, spectrogram_to_numpy(predicted, f"predicted, step {step}"))
        if step % 2 == 0:
            writer.add_image("val/target", step, spectrogram_to_numpy(target, "target"))
        print(
            f"Step {step} of {STEPS} - train {np.mean(losses):.4f} - best val {best:.4f} - pictures {writer.written}",
            flush=True,
        )
        time.sleep(max(0.0, STEP_SECONDS - (time.perf_counter() - start)))


if __name__ == "__main__":
    main()
