"""Walk-forward ridge model on simulated intraday bars."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
import time
from collections import deque

import numpy as np
import pandas as pd

SESSIONS = 450
BARS = 7200
COLUMNS = ["open", "high", "low", "close", "volume", "spread", "imbalance", "trades"]
LOOKBACK = 5
SUBSAMPLE = 6
WINDOWS = (20, 60, 240, 720, 1440)
PAUSE = 0.205


class BarFeed:
    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.price = 100.0

    def session(self, day):
        steps = self.rng.standard_normal(BARS) * 0.01
        close = self.price + np.cumsum(steps)
        raw = np.empty((BARS, len(COLUMNS)))
        raw[:, 0] = close - steps
        raw[:, 1] = close + np.abs(steps)
        raw[:, 2] = close - np.abs(steps)
        raw[:, 3] = close
        raw[:, 4:] = self.rng.random((BARS, 4))
        self.price = float(close[-1])
        start = pd.Timestamp("2021-01-04") + pd.Timedelta(days=day)
        return pd.DataFrame(raw, columns=COLUMNS, index=pd.date_range(start, periods=BARS, freq="3s"))


class RollingRidge:
    def __init__(self, dim, decay=0.98, reg=1.0):
        self.xtx = np.eye(dim) * reg
        self.xty = np.zeros(dim)
        self.decay = decay
        self.coef = np.zeros(dim)

    def update(self, x, y):
        self.xtx = self.decay * self.xtx + x.T @ x
        self.xty = self.decay * self.xty + x.T @ y
        self.coef = np.linalg.solve(self.xtx, self.xty)

    def score(self, x, y):
        err = y - x @ self.coef
        return 1.0 - float((err**2).sum() / ((y - y.mean()) ** 2).sum())


class FeaturePipeline:
    def __init__(self):
        self.closing = {}
        self.vol_window = deque(maxlen=20)
        self.stats = {}

    def transform(self, day, bars):
        bars = bars.copy()
        prior = self.closing.get(day - 1)
        anchor = float(prior["close"].iloc[-1]) if prior is not None else float(bars["open"].iloc[0])
        bars["gap"] = bars["close"] - anchor
        medians = [bars[c].rolling(w, min_periods=1).median() for c in ("close", "high", "low") for w in WINDOWS]
        bars["trend"] = bars["close"] - sum(medians) / len(medians)
        bars["swing"] = bars["close"].rolling(60, min_periods=1).std().fillna(0.0)
        feats = bars[["gap", "spread", "imbalance", "trend", "swing"]].to_numpy()[::SUBSAMPLE]
        target = np.diff(bars["close"].to_numpy()[::SUBSAMPLE], append=float(bars["close"].iloc[-1]))
        self.vol_window.append(float(target.std()))
        self.stats[day % 30] = {"vol": self.vol_window[-1], "range": float(bars["high"].max() - bars["low"].min())}
        return feats, target

    def close_session(self, day, bars):
        self.closing[day] = bars.iloc[-LOOKBACK:]

    def weekly_change(self, day):
        if day < 5:
            return 0.0
        return float(self.closing[day]["close"].iloc[-1] - self.closing[day - 5]["close"].iloc[-1])


def main():
    feed, pipe, model = BarFeed(), FeaturePipeline(), RollingRidge(5)
    scores = []
    for day in range(SESSIONS):
        bars = feed.session(day)
        x, y = pipe.transform(day, bars)
        if day:
            scores.append(model.score(x, y))
        model.update(x, y)
        pipe.close_session(day, bars)
        if day % 14 == 13:
            print(
                f"session {day + 1}: r2={np.mean(scores[-14:]):+.4f} vol={np.mean(pipe.vol_window):.5f} "
                f"week={pipe.weekly_change(day):+.2f}",
                flush=True,
            )
        time.sleep(PAUSE)
    monthly = pd.Series({d: float(f["close"].iloc[-1]) for d, f in pipe.closing.items()}).iloc[::30]
    print(monthly.round(2).to_string())


if __name__ == "__main__":
    main()
