"""CatBoost's fit with snapshots: catboost_fit.py [--leak: a callback keeps an array of each iteration]."""

import sys

import numpy as np
from catboost import CatBoostRegressor

KEPT = []


class Keep:
    """What a user writes to see how metrics change."""

    def after_iteration(self, info):
        KEPT.append(np.random.rand(50_000))
        return True


rows = np.random.rand(100_000, 20)
model = CatBoostRegressor(iterations=4000, thread_count=1, save_snapshot=True, snapshot_interval=10)
model.fit(rows, rows[:, 0], callbacks=[Keep()] if "--leak" in sys.argv else None)
