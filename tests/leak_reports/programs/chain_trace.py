import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np


class TraceStore:
    """Keeps the most recent draws of every walker."""

    def __init__(self, capacity, walkers, dim):
        self.draws = np.zeros((capacity, walkers, dim))
        self.logp = np.zeros((capacity, walkers))
        self.capacity = capacity
        self.count = 0

    def push(self, x, lp):
        i = self.count % self.capacity
        self.draws[i] = x
        self.logp[i] = lp
        self.count += 1

    def __len__(self):
        return min(self.count, self.capacity)


def log_density(x, prec):
    return -0.5 * np.einsum("wi,ij,wj->w", x, prec, x, optimize=True) + np.cos(2 * x).sum(1)


def main(epochs=110, sweeps=110, walkers=128, dim=60):
    rng = np.random.default_rng(8)
    a = rng.standard_normal((dim, dim)) / np.sqrt(dim)
    prec = a @ a.T + np.eye(dim)
    trace = TraceStore(5200, walkers, dim)
    x = rng.standard_normal((walkers, dim))
    lp = log_density(x, prec)
    accepted = 0
    for epoch in range(1, epochs + 1):
        for _ in range(sweeps):
            for _ in range(12):
                prop = x + 0.08 * rng.standard_normal(x.shape)
                lq = log_density(prop, prec)
                keep = np.log(rng.random(walkers)) < lq - lp
                x[keep], lp[keep] = prop[keep], lq[keep]
                accepted += int(keep.sum())
            trace.push(x, lp)
        recent = trace.logp[max(0, (trace.count - 1) % trace.capacity - 50) :][:50]
        print(f"epoch {epoch}/{epochs} logp {recent.mean():.3f} stored {len(trace)}", flush=True)


if __name__ == "__main__":
    main()
