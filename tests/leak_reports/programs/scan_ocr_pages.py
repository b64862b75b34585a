"""Page-type classifier over scanned documents; pages are read block by block through C pointers."""

import ctypes
import io
import time
from collections import deque

import numpy as np

DOCUMENT_SIZE = 6_000_000
PAGES_PER_DOCUMENT = 40
BLOCKS_PER_PAGE = 18
DOCUMENTS = 80
DOCUMENT_SECONDS = 1.6


class BufferReader:
    """Read callback for the parser: fills the given C memory from a Python buffer."""

    def __init__(self, buffer):
        self.buffer = buffer

    def __call__(self, position, p_first, size):
        p_block = ctypes.cast(p_first, ctypes.POINTER(ctypes.c_ubyte * size))
        self.buffer.seek(position)
        return self.buffer.readinto(p_block.contents)


class PageParser:
    """Small parser of the page streams: asks the reader for blocks as it needs them."""

    def __init__(self, reader, rng):
        self.reader = reader
        self.rng = rng
        self.scratch = (ctypes.c_ubyte * 300_000)()
        self.view = np.frombuffer(self.scratch, dtype=np.uint8)

    def features(self, page):
        histogram = np.zeros(256)
        base = page * (DOCUMENT_SIZE // PAGES_PER_DOCUMENT // 2)
        for _ in range(BLOCKS_PER_PAGE):
            size = int(self.rng.integers(400, 300_000))
            read = self.reader(base, ctypes.addressof(self.scratch), size)
            histogram += np.bincount(self.view[:read], minlength=256)
        return histogram / histogram.sum()


class PageClassifier:
    def __init__(self):
        self.weights = np.zeros((256, 2))

    def step(self, features, label):
        scores = features @ self.weights
        probs = np.exp(scores - scores.max())
        probs /= probs.sum()
        correct = int(probs.argmax() == label)
        probs[label] -= 1.0
        self.weights -= 5.0 * np.outer(features, probs)
        return correct


def load_document(rng, kind):
    noise = rng.integers(0, 256, size=DOCUMENT_SIZE // 4, dtype=np.uint8)
    if kind:
        noise &= 0x7F
    return io.BytesIO(np.tile(noise, 4).tobytes())


def main():
    rng = np.random.default_rng(19)
    classifier = PageClassifier()
    recent = deque(maxlen=400)
    kinds_seen = {0: 0, 1: 0}
    pages = 0
    for number in range(1, DOCUMENTS + 1):
        begin = time.perf_counter()
        kind = int(rng.integers(0, 2))
        kinds_seen[kind] += 1
        parser = PageParser(BufferReader(load_document(rng, kind)), rng)
        for page in range(PAGES_PER_DOCUMENT):
            recent.append(classifier.step(parser.features(page), kind))
            pages += 1
        print(f"document {number:>3}/{DOCUMENTS}  pages {pages}  accuracy {np.mean(recent):.2%}", flush=True)
        time.sleep(max(0.0, DOCUMENT_SECONDS - (time.perf_counter() - begin)))


if __name__ == "__main__":
    main()
