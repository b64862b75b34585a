import os

os.environ["POLARS_MAX_THREADS"] = "1"

import random
import time

import numpy as np
import polars as pl

SHARDS = 130
PERIOD = 1.0
READS = 1000
READ_LEN = 3000
MOTIFS = ["ACGT", "TTAG", "GGCA", "CATG", "TACC", "GATA"]


class Sequencer:
    """Yields shards of reads with a quality value and a label."""

    def __init__(self, seed=0):
        self.rng = random.Random(seed)
        self.pool = ["".join(self.rng.choices(MOTIFS, k=READ_LEN // 4)) for _ in range(120)]
        self.lanes = ["lane%03d" % i for i in range(96)]

    def shard(self, s):
        rows = []
        for i in range(READS):
            cut = self.rng.randrange(READ_LEN)
            base = self.pool[self.rng.randrange(len(self.pool))]
            rows.append(base[cut:] + base[:cut])
        return pl.DataFrame(
            {
                "read": rows,
                "lane": [self.lanes[i % 96] for i in range(READS)],
                "quality": [self.rng.random() for _ in range(READS)],
            }
        )


class MotifModel:
    """Logistic regression on motif counts."""

    def __init__(self):
        self.w = np.zeros(len(MOTIFS) + 1)
        self.loss_log = []

    def features(self, df):
        counts = df.select([pl.col("read").str.count_matches(m, literal=True).alias(m) for m in MOTIFS])
        x = counts.to_numpy() / (READ_LEN / 100)
        return np.column_stack([x, np.ones(len(x))])

    def step(self, df, lr=0.02):
        x = self.features(df)
        y = (df["quality"].to_numpy() > 0.5).astype(float)
        p = 1 / (1 + np.exp(-x @ self.w))
        self.w -= lr * x.T @ (p - y) / len(y)
        loss = float(-(y * np.log(p + 1e-9) + (1 - y) * np.log(1 - p + 1e-9)).mean())
        self.loss_log.append(loss)
        return loss


class Audit:
    """Keeps a few reads of each shard for the report at the end."""

    def __init__(self, per_shard=8):
        self.per_shard = per_shard
        self.examples = []
        self.quality_sums = {}

    def look(self, s, df):
        self.examples.append(df.head(self.per_shard))
        self.quality_sums[s] = float(df["quality"].sum())

    def report(self):
        table = pl.concat(self.examples)
        return table.height, table["quality"].mean()


def main():
    source, model, audit = Sequencer(), MotifModel(), Audit()
    for s in range(SHARDS):
        t0 = time.time()
        df = source.shard(s)
        loss = model.step(df.head(200))
        audit.look(s, df)
        print(f"shard {s + 1}/{SHARDS} reads {(s + 1) * READS} loss {loss:.5f}", flush=True)
        time.sleep(max(0.0, PERIOD - (time.time() - t0)))
    print("report: %d reads, mean quality %.3f" % audit.report(), flush=True)


if __name__ == "__main__":
    main()
