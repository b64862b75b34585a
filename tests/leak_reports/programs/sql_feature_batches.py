"""Trains a click model on batches that are fetched from an embedded feature database.

Each batch names its rows directly in the query; the batch plan is fixed up front, so
that every epoch asks the very same queries again.
"""

import collections
import math
import random
import sqlite3
import time

ROWS = 20_000
BATCH = 420
PLAN = 1000
BATCHES_PER_TICK = 20
TICKS = 84


class FeatureDatabase:
    def __init__(self, cached_statements):
        self.conn = sqlite3.connect(":memory:", cached_statements=cached_statements)
        self.conn.execute(
            "CREATE TABLE feature(id INTEGER PRIMARY KEY, age REAL, price REAL, hour INTEGER, clicked INTEGER)"
        )

    def fill(self, rng):
        def rows():
            for i in range(ROWS):
                age, price, hour = rng.gauss(0, 1), rng.gauss(0, 1), rng.randrange(24)
                p = 1 / (1 + math.exp(-(0.8 * age - 1.1 * price + 0.05 * (hour - 12))))
                yield i, age, price, hour, int(rng.random() < p)

        with self.conn:
            self.conn.executemany("INSERT INTO feature VALUES(?,?,?,?,?)", rows())

    def select(self, ids):
        terms = " OR ".join(f"(id = {i} AND hour >= 0)" for i in ids)
        query = f"SELECT age, price, hour, clicked FROM feature WHERE {terms}"
        return self.conn.execute(query).fetchall()


class BatchPlan:
    def __init__(self, rng):
        self.starts = [rng.randrange(ROWS) for _ in range(PLAN)]
        self.strides = [rng.choice([7, 11, 13, 17]) for _ in range(PLAN)]

    def ids(self, k):
        k %= PLAN
        return [(self.starts[k] + j * self.strides[k]) % ROWS for j in range(BATCH)]


class ClickModel:
    def __init__(self):
        self.w = [0.0, 0.0, 0.0]
        self.b = 0.0
        self.loss = collections.deque(maxlen=200)

    def update(self, rows, lr=0.3):
        g, gb, total = [0.0] * 3, 0.0, 0.0
        for age, price, hour, y in rows:
            x = (age, price, (hour - 12) / 12)
            p = 1 / (1 + math.exp(-(self.b + sum(w * v for w, v in zip(self.w, x)))))
            total -= math.log(p if y else 1 - p)
            for k in range(3):
                g[k] += (p - y) * x[k]
            gb += p - y
        n = len(rows)
        self.w = [w - lr * d / n for w, d in zip(self.w, g)]
        self.b -= lr * gb / n
        self.loss.append(total / n)


def main():
    rng = random.Random(17)
    db = FeatureDatabase(cached_statements=PLAN)
    db.fill(rng)
    plan, model = BatchPlan(rng), ClickModel()
    for tick in range(1, TICKS + 1):
        t0 = time.time()
        for j in range(BATCHES_PER_TICK):
            model.update(db.select(plan.ids((tick - 1) * BATCHES_PER_TICK + j)))
        epoch = tick * BATCHES_PER_TICK / PLAN
        time.sleep(max(0.3, 1.05 - (time.time() - t0)))
        print(f"{tick} / {TICKS}  epoch {epoch:.2f}  logloss {sum(model.loss) / len(model.loss):.4f}", flush=True)


if __name__ == "__main__":
    main()
