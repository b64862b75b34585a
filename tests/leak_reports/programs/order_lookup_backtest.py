"""Backtest of an order-fill model; the traded universe opens up market by market."""

import collections
import time

import numpy as np
import pandas as pd

MARKETS = 46
ROUNDS = 82
ORDERS = 84_000


class Market:
    """Order book history of one market, addressed by order number."""

    def __init__(self, name, rng):
        self.name = name
        numbers = rng.permutation(np.arange(ORDERS, dtype=np.int64) * 3 + 100_000)
        self.frame = pd.DataFrame(
            {
                "size": rng.gamma(2.0, 3.0, ORDERS).astype(np.float32),
                "depth": rng.random(ORDERS, dtype=np.float32),
                "filled": (rng.random(ORDERS) < 0.4).astype(np.int8),
            },
            index=pd.Index(numbers, name="order"),
        )

    def lookup(self, orders):
        return self.frame.loc[orders]

    def sample_orders(self, rng, n):
        return (rng.integers(0, ORDERS, n) * 3 + 100_000).tolist()


class Universe:
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.markets = [Market(f"M{k:02d}", rng) for k in range(count)]

    def active(self, round_no):
        return self.markets[: min(round_no, len(self.markets))]


class FillModel:
    def __init__(self):
        self.w = np.zeros(3)
        self.recent = collections.deque(maxlen=100)
        self.by_market = {}

    def update(self, market, rows, lr=0.05):
        x = np.column_stack([np.ones(len(rows)), np.log1p(rows["size"]), rows["depth"]])
        y = rows["filled"].to_numpy(dtype=float)
        p = 1 / (1 + np.exp(-(x @ self.w)))
        self.w -= lr * x.T @ (p - y) / len(y)
        brier = float(((p - y) ** 2).mean())
        self.recent.append(brier)
        self.by_market[market.name] = brier


def main():
    rng = np.random.default_rng(21)
    universe = Universe(MARKETS, seed=20)
    model = FillModel()
    for rnd in range(1, ROUNDS + 1):
        t0 = time.time()
        active = universe.active(rnd)
        chosen = {len(active) - 1} | set(rng.integers(0, len(active), 6).tolist())
        for k in sorted(chosen):
            market = active[k]
            model.update(market, market.lookup(market.sample_orders(rng, 300)))
        time.sleep(max(0.4, 1.07 - (time.time() - t0)))
        print(
            f"round: {rnd:02d}  total: {ROUNDS}  markets: {len(active)}  brier: {np.mean(model.recent):.4f}", flush=True
        )


if __name__ == "__main__":
    main()
