"""Walk-forward evaluation: one boosted model per time window, blended for the forecast."""

import time
from collections import deque

import lightgbm as lgb
import numpy as np

WINDOWS = 60
WINDOW_SECONDS = 2.1
ROWS, COLS = 20000, 40

PARAMS = {
    "objective": "regression",
    "num_leaves": 7,
    "learning_rate": 0.15,
    "num_threads": 1,
    "verbosity": -1,
    "max_bin": 127,
}


class MarketFeed:
    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.beta = self.rng.normal(size=COLS)

    def window(self):
        self.beta += 0.05 * self.rng.normal(size=COLS)
        x = self.rng.normal(size=(ROWS, COLS)).astype(np.float32)
        y = np.tanh(x @ self.beta) + 0.3 * self.rng.normal(size=ROWS)
        return x, y


class Blend:
    """Weighted mean over the models of all windows so far (newest eight count)."""

    def __init__(self):
        self.members = []
        self.weights = deque(maxlen=8)

    def add(self, model, score):
        self.members.append(model)
        self.weights.append(1.0 / (score + 1e-6))

    def predict(self, x):
        active = self.members[-len(self.weights) :]
        preds = np.stack([m.predict(x, num_threads=1) for m in active])
        return np.average(preds, axis=0, weights=list(self.weights))


def main():
    feed = MarketFeed()
    blend = Blend()
    report = []
    residuals = deque(maxlen=5)
    for k in range(1, WINDOWS + 1):
        t0 = time.time()
        x, y = feed.window()
        train = lgb.Dataset(x, label=y)
        model = lgb.train(PARAMS, train, num_boost_round=6, keep_training_booster=True)
        hold_x, hold_y = x[:1500], y[:1500]
        score = float(np.mean((model.predict(hold_x, num_threads=1) - hold_y) ** 2))
        blend.add(model, score)
        res = blend.predict(hold_x) - hold_y
        residuals.append(res)
        report.append((k, score, float(np.mean(res**2))))
        print(f"window {k}/{WINDOWS} mse {score:.4f} blend {report[-1][2]:.4f}", flush=True)
        time.sleep(max(0.1, WINDOW_SECONDS - (time.time() - t0)))


if __name__ == "__main__":
    main()
