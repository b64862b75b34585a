import os
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SQLITE_TMPDIR", tempfile.gettempdir())
import sqlite3
import time

import numpy as np
from scipy import special


class GraphStore:
    """Nodes with their edges and text features in a scratch database on disk."""

    def __init__(self, nodes, degree=12, width=420, cache_mb=190, seed=0):
        self.nodes = nodes
        self.width = width
        self.conn = sqlite3.connect("")
        self.conn.execute("PRAGMA page_size = 4096")
        self.conn.execute("PRAGMA cache_size = -8000")
        self.conn.execute("PRAGMA journal_mode = OFF")
        self.conn.execute("CREATE TABLE node (id INTEGER PRIMARY KEY, edges BLOB, features BLOB)")
        self._load(degree, seed)
        self.conn.execute(f"PRAGMA cache_size = -{cache_mb * 1024}")

    def _load(self, degree, seed):
        rng = np.random.default_rng(seed)
        for start in range(0, self.nodes, 5000):
            ids = np.arange(start, min(start + 5000, self.nodes))
            near = (ids[:, None] + rng.integers(-400, 400, (len(ids), degree))) % self.nodes
            far = rng.integers(self.nodes, size=near.shape)
            edges = np.where(rng.random(near.shape) < 0.75, near, far)
            group = (ids // 2000)[:, None]
            feats = np.sin(group * np.arange(1, self.width + 1) / 37) + rng.standard_normal((len(ids), self.width))
            self.conn.executemany(
                "INSERT INTO node VALUES (?, ?, ?)",
                ((int(i), e.tobytes(), f.tobytes()) for i, e, f in zip(ids, edges, feats.astype(np.float32))),
            )
        self.conn.commit()

    def read(self, node):
        edges, feats = self.conn.execute("SELECT edges, features FROM node WHERE id = ?", (int(node),)).fetchone()
        return np.frombuffer(edges, dtype=np.int64), np.frombuffer(feats, dtype=np.float32)


class LinkModel:
    def __init__(self, width, dim=64, seed=1):
        self.rng = np.random.default_rng(seed)
        self.w = self.rng.standard_normal((width, dim)) / np.sqrt(width)
        self.momentum = np.zeros_like(self.w)

    def step(self, a, b, neg, lr=0.02):
        za, zb, zn = a @ self.w, b @ self.w, neg @ self.w
        pos, bad = special.expit((za * zb).sum(1)), special.expit((za * zn).sum(1))
        gp, gn = (pos - 1)[:, None], bad[:, None]
        grad = (a.T @ (gp * zb + gn * zn) + b.T @ (gp * za) + neg.T @ (gn * za)) / len(a)
        self.momentum = 0.9 * self.momentum + grad
        self.w -= lr * self.momentum / max(1.0, np.linalg.norm(self.momentum))
        return float(-np.log(pos + 1e-9).mean() - np.log(1 - bad + 1e-9).mean()), float((pos > bad).mean())


def walk_batch(store, rng, walks=46, length=5):
    pairs, pool = [], []
    for node in rng.integers(store.nodes, size=walks):
        edges, feats = store.read(node)
        for _ in range(length):
            nxt = rng.choice(edges)
            edges, other = store.read(nxt)
            pairs.append((feats, other))
            pool.append(other)
            feats = other
    neg = rng.permutation(len(pool))
    return np.stack([p[0] for p in pairs]), np.stack([p[1] for p in pairs]), np.stack([pool[i] for i in neg])


def main(steps=2200):
    rng = np.random.default_rng(3)
    store = GraphStore(nodes=130_000)
    print(f"loaded {store.nodes} nodes", flush=True)
    model = LinkModel(store.width)
    loss, acc, started = 1.4, 0.5, time.time()
    for step in range(1, steps + 1):
        batch = walk_batch(store, rng)
        for _ in range(18):
            step_loss, a = model.step(*batch)
        loss, acc = 0.95 * loss + 0.05 * step_loss, 0.95 * acc + 0.05 * a
        if step % 10 == 0:
            print(f"step {step}/{steps} loss {loss:.4f} auc {acc:.3f} ({time.time() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
