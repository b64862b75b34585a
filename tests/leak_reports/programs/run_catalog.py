import sqlite3
import time

import numpy as np

STEPS = 270
PERIOD = 0.5
PARTICLES = 90000
SPECIES = ("oil", "water", "rock", "melt")


class VisStore:
    """Visualisation records of a run, kept in SQLite so that viewers can query them."""

    def __init__(self, path=":memory:"):
        self.db = sqlite3.connect(path)
        self.db.execute("CREATE TABLE swarm (step INTEGER, name TEXT, kind TEXT, count INTEGER, data BLOB)")
        self.db.execute("CREATE INDEX by_step ON swarm (step, name)")

    def put(self, step, name, kind, values):
        self.db.execute("INSERT INTO swarm VALUES (?, ?, ?, ?, ?)", (step, name, kind, len(values), values.tobytes()))

    def commit(self):
        self.db.commit()

    def latest(self, name):
        row = self.db.execute("SELECT data FROM swarm WHERE name = ? ORDER BY step DESC LIMIT 1", (name,)).fetchone()
        return np.frombuffer(row[0], dtype=np.float32)


class FlowModel:
    """Fits a small velocity field to advected particles."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.pos = rng.random((PARTICLES, 2), dtype=np.float32)
        self.species = rng.integers(0, len(SPECIES), PARTICLES)
        self.weights = rng.normal(size=(4, 2)).astype(np.float32) * 0.1
        self.target = rng.normal(size=(4, 2)).astype(np.float32)
        self.checkpoints = {}

    def features(self, x):
        return np.stack([x[:, 0], x[:, 1], x[:, 0] * x[:, 1], np.ones(len(x), np.float32)], 1)

    def train_step(self):
        pick = self.rng.integers(0, PARTICLES, 512)
        f = self.features(self.pos[pick])
        err = f @ self.weights - f @ self.target
        self.weights -= 0.05 * f.T @ err / len(f)
        return float((err**2).mean())

    def advect(self):
        self.pos += 0.002 * (self.features(self.pos) @ self.weights)
        self.pos %= 1.0
        return np.linalg.norm(self.pos - 0.5, axis=1).astype(np.float32)


def main():
    store = VisStore()
    model = FlowModel()
    history = []
    for step in range(STEPS):
        t0 = time.time()
        loss = np.mean([model.train_step() for _ in range(10)])
        radius = model.advect()
        for k, name in enumerate(SPECIES):
            mine = model.species == k
            store.put(step, name, "position", model.pos[mine].ravel())
            store.put(step, name, "radius", radius[mine])
            store.put(step, name, "speed", radius[mine] * loss.astype(np.float32))
        store.commit()
        model.checkpoints[step % 4] = model.weights.copy()
        history.append(float(loss))
        shown = store.latest("melt").mean() if step % 10 == 0 else float("nan")
        print(f"step {step + 1}/{STEPS} loss {loss:.5f} melt {shown:.4f}", flush=True)
        time.sleep(max(0.0, PERIOD - (time.time() - t0)))
    print(f"finished, best loss {min(history):.5f}", flush=True)


if __name__ == "__main__":
    main()
