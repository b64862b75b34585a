"""Nearest-bucket classifier whose candidate lookups run in short-lived threads.

For each block of documents a helper thread builds a scratch SQL index of the
block, joins it with the queries and hands the candidates back to the trainer.
"""

import queue
import random
import sqlite3
import threading
import time
import zlib

BLOCKS = 86
ROWS_PER_BLOCK = 5200


class ConnectionHub:
    """Gives every thread a database connection of its own."""

    def __init__(self, uri, setup):
        self.uri = uri
        self.setup = setup
        self._by_thread = {}
        self._lock = threading.Lock()

    def connection(self):
        key = threading.current_thread().name
        with self._lock:
            conn = self._by_thread.get(key)
        if conn is None:
            conn = sqlite3.connect(self.uri, check_same_thread=False)
            conn.executescript(self.setup)
            with self._lock:
                self._by_thread[key] = conn
        return conn


SETUP = """
CREATE TABLE doc(id INTEGER PRIMARY KEY, bucket INTEGER, label INTEGER, body TEXT);
CREATE INDEX doc_bucket ON doc(bucket, label);
"""


class BlockSource:
    WORDS = [f"term{w:04d}" for w in range(3000)]

    def __init__(self, seed=5):
        self.rng = random.Random(seed)

    def block(self, number):
        for k in range(ROWS_PER_BLOCK):
            label = self.rng.randrange(8)
            base = label * 375
            words = [self.WORDS[base + self.rng.randrange(375)] for _ in range(26)]
            yield number * ROWS_PER_BLOCK + k, label, " ".join(words)


class CandidateFinder:
    def __init__(self, hub):
        self.hub = hub
        self.done = queue.Queue()

    def _work(self, rows, probes):
        conn = self.hub.connection()
        with conn:
            conn.executemany(
                "INSERT INTO doc VALUES(?,?,?,?)",
                ((i, zlib.crc32(body[:8].encode()) % 512, label, body) for i, label, body in rows),
            )
        votes = []
        for p in probes:
            cur = conn.execute("SELECT label, count(*) FROM doc WHERE bucket=? GROUP BY label", (p,))
            votes.append((p, cur.fetchall()))
        self.done.put(votes)

    def run(self, number, rows, probes):
        worker = threading.Thread(target=self._work, args=(rows, probes), name=f"finder-{number}")
        worker.start()
        worker.join()
        return self.done.get()


class BucketModel:
    def __init__(self, classes=8):
        self.classes = classes
        self.weight = {}

    def update(self, votes):
        pure = 0.0
        for bucket, counts in votes:
            w = self.weight.setdefault(bucket, [0.0] * self.classes)
            total = sum(c for _, c in counts) or 1
            for label, c in counts:
                w[label] = 0.9 * w[label] + 0.1 * c / total
            pure += max(w)
        return pure / max(1, len(votes))


def main():
    hub = ConnectionHub(":memory:", SETUP)
    finder = CandidateFinder(hub)
    source, model = BlockSource(), BucketModel()
    rng = random.Random(1)
    for n in range(1, BLOCKS + 1):
        t0 = time.time()
        rows = list(source.block(n))
        probes = rng.sample(range(512), 60)
        purity = model.update(finder.run(n, rows, probes))
        print(f"block {n:3d} of {BLOCKS}  purity {purity:.3f}  buckets {len(model.weight)}", flush=True)
        time.sleep(max(0.2, 1.04 - (time.time() - t0)))


if __name__ == "__main__":
    main()
