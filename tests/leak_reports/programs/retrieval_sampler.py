"""Contrastive training on passages that are read at random from an SQLite corpus."""

import os
import os.path
import sqlite3
import tempfile
import time
from collections import deque

import numpy as np

PASSAGES = 30_000
DIM = 2048
READS_PER_STEP = 1200
STEPS = 80
STEP_SECONDS = 1.6


def build_corpus(path, rng):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("CREATE TABLE passages (id INTEGER PRIMARY KEY, topic INTEGER, vector BLOB)")
    for first in range(0, PASSAGES, 500):
        vectors = rng.standard_normal((500, DIM), dtype=np.float32)
        connection.executemany(
            "INSERT INTO passages VALUES (?, ?, ?)",
            [(first + n, int(first + n) % 20, vectors[n].tobytes()) for n in range(500)],
        )
        connection.commit()
    connection.close()


class Corpus:
    def __init__(self, path, cache_kib=170_000):
        self.connection = sqlite3.connect(path)
        self.connection.execute(f"PRAGMA cache_size=-{cache_kib}")
        self.connection.execute("PRAGMA mmap_size=0")

    def passage(self, number):
        row = self.connection.execute("SELECT topic, vector FROM passages WHERE id=?", (int(number),)).fetchone()
        return row[0], np.frombuffer(row[1], dtype=np.float32)

    def batches(self, rng, count, size=60):
        for _ in range(count // size):
            rows = [self.passage(n) for n in rng.integers(0, PASSAGES, size=size)]
            yield np.array([topic for topic, _ in rows]), np.stack([vector for _, vector in rows])


class TopicEncoder:
    def __init__(self, rng):
        self.weights = 0.01 * rng.standard_normal((DIM, 20)).astype(np.float32)

    def train(self, topics, vectors, rate=0.01):
        scores = vectors @ self.weights
        probs = np.exp(scores - scores.max(axis=1, keepdims=True))
        probs /= probs.sum(axis=1, keepdims=True)
        loss = -np.log(probs[np.arange(len(topics)), topics] + 1e-9).mean()
        probs[np.arange(len(topics)), topics] -= 1.0
        self.weights -= rate * vectors.T @ probs / len(topics)
        return float(loss)


def main():
    rng = np.random.default_rng(43)
    losses = deque(maxlen=100)
    topic_counts = dict.fromkeys(range(20), 0)
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        path = os.path.join(folder, "corpus.db")
        build_corpus(path, rng)
        corpus, encoder = Corpus(path), TopicEncoder(rng)
        read = 0
        for step in range(1, STEPS + 1):
            start = time.perf_counter()
            for topics, vectors in corpus.batches(rng, READS_PER_STEP):
                for _ in range(30):
                    losses.append(encoder.train(topics, vectors))
                for topic in topics:
                    topic_counts[int(topic)] += 1
                read += len(topics)
            print(f"step={step}/{STEPS} loss={np.mean(losses):.3f} passages_read={read}", flush=True)
            time.sleep(max(0.0, STEP_SECONDS - (time.perf_counter() - start)))


if __name__ == "__main__":
    main()
