"""Attribute simulated fills to their parent orders, one trading day after the other.

Each day brings fills for a few books; the parent order is looked up by its id and the
slippage model is updated.
"""

import collections
import time

import numpy as np
import pandas as pd

BOOKS = 44
ORDERS = 150_000


def make_book(rng, number):
    ids = rng.permutation(np.arange(ORDERS, dtype=np.int64) * 7 + number)
    return pd.DataFrame(
        {
            "limit": rng.normal(100.0, 5.0, ORDERS).astype(np.float32),
            "size": rng.integers(1, 500, ORDERS).astype(np.float32),
            "urgency": rng.random(ORDERS).astype(np.float32),
        },
        index=pd.Index(ids, name="order_id"),
    )


class OrderBooks:
    """Parent orders of all instruments, by id."""

    def __init__(self, rng):
        self.books = {f"INS{n:03d}": make_book(rng, n) for n in range(BOOKS)}
        self.names = list(self.books)

    def parents(self, name, order_ids):
        book = self.books[name]
        rows = [book.index.get_loc(order_id) for order_id in order_ids]
        return book.iloc[rows]


class MarketDay:
    """Instruments are listed one by one; older ones trade on."""

    def __init__(self, books, rng, per_listing=3):
        self.books = books
        self.rng = rng
        self.per_listing = per_listing

    def listed(self, day):
        return self.books.names[: min(BOOKS, 1 + day // self.per_listing)]

    def fills(self, day, instruments=3, count=500):
        listed = self.listed(day)
        chosen = {listed[-1]} | set(self.rng.choice(listed, min(instruments, len(listed))))
        for name in sorted(chosen):
            index = self.books.books[name].index
            ids = index.to_numpy()[self.rng.integers(0, len(index), count)]
            noise = self.rng.normal(0, 0.4, count)
            yield name, ids, noise


class SlippageModel:
    """Recursive least squares of slippage on size and urgency."""

    def __init__(self, features=3, forget=0.9995):
        self.weights = np.zeros(features)
        self.cov = np.eye(features) * 50.0
        self.forget = forget
        self.errors = collections.deque(maxlen=4000)

    def update(self, x, y):
        gain = self.cov @ x / (self.forget + x @ self.cov @ x)
        error = y - x @ self.weights
        self.weights += gain * error
        self.cov = (self.cov - np.outer(gain, x @ self.cov)) / self.forget
        self.errors.append(error)

    def rmse(self):
        return float(np.sqrt(np.mean(np.square(self.errors))))


def attribute(day, market, books, model, ledger):
    for name, ids, noise in market.fills(day):
        parents = books.parents(name, ids)
        size = parents["size"].to_numpy() / 500.0
        urgency = parents["urgency"].to_numpy()
        slippage = 0.3 + 0.8 * size + 1.1 * urgency + noise
        for s, u, value in zip(size, urgency, slippage):
            model.update(np.array([1.0, s, u]), value)
        ledger.append((day, name, float(slippage.mean())))


def main():
    rng = np.random.default_rng(31)
    books = OrderBooks(rng)
    market = MarketDay(books, rng)
    model = SlippageModel()
    ledger = collections.deque(maxlen=1000)
    days = 300
    for day in range(1, days + 1):
        attribute(day, market, books, model, ledger)
        time.sleep(0.5)
        print(
            f"Day {day}/{days} listed {len(market.listed(day))} rmse {model.rmse():.4f} "
            f"weights {np.round(model.weights, 3)}"
        )


if __name__ == "__main__":
    main()
