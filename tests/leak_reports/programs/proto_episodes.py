"""Few-shot training: prototypes over episodes, images decoded at first use."""

import time
from collections import deque

import numpy as np

CLASSES = 48
IMAGES_PER_CLASS = 50
SIDE = 84
WAYS, SHOTS, QUERIES = 5, 5, 15
EPISODES_PER_BLOCK = 3
BLOCKS = 80
BLOCK_SECONDS = 1.6


class MiniImages:
    """Images of the training split; decoded ones stay in the table for the next episode."""

    def __init__(self, seed):
        self.seed = seed
        self.decoded = [None] * (CLASSES * IMAGES_PER_CLASS)

    def _decode(self, index):
        label = index // IMAGES_PER_CLASS
        rng = np.random.default_rng((self.seed, index))
        ramp = np.linspace(0.0, 1.0 + label / 8.0, SIDE, dtype=np.float32)
        image = np.outer(ramp, np.cos(ramp * (1 + label % 7)))[:, :, None]
        return image + 0.8 * rng.standard_normal((SIDE, SIDE, 3), dtype=np.float32)

    def get(self, label, number):
        index = label * IMAGES_PER_CLASS + number
        if self.decoded[index] is None:
            self.decoded[index] = self._decode(index).astype(np.float32)
        return self.decoded[index]

    def ready(self):
        return sum(image is not None for image in self.decoded)


class Embedding:
    def __init__(self, rng, size=32):
        self.weights = rng.standard_normal((SIDE * 3, size), dtype=np.float32) / SIDE

    def __call__(self, images):
        rows = images.mean(axis=1).reshape(len(images), -1)
        return rows @ self.weights

    def nudge(self, images, error):
        rows = images.mean(axis=1).reshape(len(images), -1)
        self.weights -= 0.001 * rows.T @ error / len(images)


def augment(image, rng):
    if rng.random() < 0.5:
        image = image[:, ::-1]
    return image + 0.05 * rng.standard_normal(image.shape, dtype=np.float32)


def run_episode(images, embed, rng, refinements=35):
    labels = rng.choice(CLASSES, size=WAYS, replace=False)
    support, query = [], []
    for label in labels:
        picks = rng.choice(IMAGES_PER_CLASS, size=SHOTS + QUERIES, replace=False)
        pictures = np.stack([augment(images.get(int(label), int(n)), rng) for n in picks])
        support.append(pictures[:SHOTS])
        query.append(pictures[SHOTS:])
    prototypes = np.stack([embed(s).mean(axis=0) for s in support])
    for _ in range(refinements):
        for way, pictures in enumerate(support):
            embed.nudge(pictures, embed(pictures) - prototypes[way])
    hits = 0
    for way, pictures in enumerate(query):
        features = embed(pictures)
        distance = np.square(features[:, None] - prototypes[None]).sum(axis=2)
        hits += int((distance.argmin(axis=1) == way).sum())
        embed.nudge(pictures, features - prototypes[way])
    return hits / (WAYS * QUERIES)


def main():
    rng = np.random.default_rng(53)
    images, embed = MiniImages(53), Embedding(rng)
    accuracies = deque(maxlen=100)
    episodes = 0
    for block in range(1, BLOCKS + 1):
        tick = time.perf_counter()
        for _ in range(EPISODES_PER_BLOCK):
            accuracies.append(run_episode(images, embed, rng))
            episodes += 1
        print(
            f"block {block}/{BLOCKS}  episodes {episodes}  acc {np.mean(accuracies):.3f}  "
            f"images decoded {images.ready()}",
            flush=True,
        )
        time.sleep(max(0.0, BLOCK_SECONDS - (time.perf_counter() - tick)))


if __name__ == "__main__":
    main()
