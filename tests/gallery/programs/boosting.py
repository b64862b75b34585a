"""xgboost.train or lightgbm.train: boosting.py xgboost|lightgbm [--leak: a callback keeps each prediction]."""

import sys
from pathlib import Path

import numpy as np

KEPT = []
rows = np.random.rand(200_000, 20)
labels = rows[:, 0] * 2 + np.random.rand(len(rows))
leak = "--leak" in sys.argv

if sys.argv[1] == "xgboost":
    import xgboost

    data, shown = xgboost.DMatrix(rows, labels), xgboost.DMatrix(rows)

    class Keep(xgboost.callback.TrainingCallback):
        """What a user writes to see how predictions change."""

        def after_iteration(self, model, epoch, evals_log):
            if leak and epoch % 10 == 9:
                KEPT.append(model.predict(shown, iteration_range=(0, 10)))
            return False

    Path("saved").mkdir(exist_ok=True)
    saves = xgboost.callback.TrainingCheckPoint("saved", interval=500)
    xgboost.train({"nthread": 1, "max_depth": 6}, data, 5000, evals=[(data, "train")], callbacks=[Keep(), saves])
else:
    import lightgbm

    data = lightgbm.Dataset(rows, labels)

    def keep(env):
        """What a user writes to see how predictions change."""
        if env.iteration % 800 == 799:
            env.model.save_model(f"model-{env.iteration + 1}.txt")
        if leak and env.iteration % 40 == 39:
            KEPT.append(env.model.predict(rows, num_threads=1, num_iteration=10).repeat(2))

    settings = {"num_threads": 1, "objective": "regression", "metric": "l2"}
    lightgbm.train(settings, data, 8000, valid_sets=[data], callbacks=[keep, lightgbm.log_evaluation()])
