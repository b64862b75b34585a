import time

import lightgbm as lgb
import numpy as np

N_TARGETS = 135
PERIOD = 1.0
ROWS, COLS = 7500, 96
PARAMS = dict(
    objective="regression",
    num_leaves=7,
    max_bin=255,
    learning_rate=0.2,
    num_threads=1,
    verbosity=-1,
    min_data_in_leaf=200,
    enable_bundle=False,
    feature_fraction=0.2,
    force_col_wise=True,
)


class PlantTable:
    """Process measurements with one response column per product."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.x = rng.normal(size=(ROWS, COLS)).astype(np.float32)
        self.mix = rng.normal(size=(COLS, N_TARGETS)).astype(np.float32)
        self.names = ["product_%03d" % i for i in range(N_TARGETS)]
        self.valid_rows = rng.permutation(ROWS)[:2000]

    def response(self, t, rng):
        y = self.x[:, :] @ self.mix[:, t]
        return y + rng.normal(size=ROWS).astype(np.float32)


class MultiTarget:
    """One booster per response column, the way a multi-output wrapper does it."""

    def __init__(self, params, rounds=3):
        self.params = params
        self.rounds = rounds
        self.estimators = []
        self.errors = {}
        self.importances = []

    def fit_one(self, table, t):
        rng = np.random.default_rng(t)
        y = table.response(t, rng)
        booster = lgb.train(
            self.params,
            lgb.Dataset(table.x, y),
            num_boost_round=self.rounds,
            keep_training_booster=True,
        )
        self.estimators.append(booster)
        pred = booster.predict(table.x[table.valid_rows])
        rmse = float(np.sqrt(np.mean((pred - y[table.valid_rows]) ** 2)))
        self.errors[table.names[t]] = rmse
        self.importances.append(booster.feature_importance())
        return rmse

    def predict(self, x):
        return np.column_stack([b.predict(x) for b in self.estimators])


def main():
    table = PlantTable()
    model = MultiTarget(PARAMS)
    for t in range(N_TARGETS):
        t0 = time.time()
        rmse = model.fit_one(table, t)
        print(f"target {t + 1}/{N_TARGETS} {table.names[t]} rmse {rmse:.4f}", flush=True)
        time.sleep(max(0.0, PERIOD - (time.time() - t0)))
    out = model.predict(table.x[:50])
    print(f"predictions {out.shape} mean rmse {np.mean(list(model.errors.values())):.4f}", flush=True)


if __name__ == "__main__":
    main()
