"""The trainer of the documents, unmodified, with a small observation: eigen2.py CHECKOUT."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd

SMALL = {
    "POPULATION_SIZE": 16,
    "NUM_GENERATIONS": 25,
    "CONTEXT_WINDOW_DAYS": 9,
    "TRADING_PERIOD_DAYS": 10,
    "SETTLEMENT_PERIOD_DAYS": 4,
    "BUFFER_SIZE": 5000,
    "MIN_BUFFER_SIZE": 200,
    "GRADIENT_STEPS_PER_GENERATION": 1,
    "GRADIENT_ACCUMULATION_STEPS": 1,
    "CNN_FILTERS": 4,
    "LSTM_HIDDEN": 8,
    "LSTM_LAYERS": 1,
    "BATCH_SIZE": 2,
    "ATTENTION_HEADS": 2,
}


def prices(path: Path, days: int = 320, columns: int = 669) -> None:
    """A table of random walks in the trainer's own format: a date, and nine figures a cell."""
    rng = np.random.default_rng(1)
    walks = 100 * np.exp(rng.normal(0, 0.01, (days, columns)).cumsum(axis=0))
    cells = [[str([round(float(value), 2)] * 9) for value in row] for row in walks]
    table = pd.DataFrame(cells, columns=[f"stock{i}" for i in range(columns)])
    table.insert(0, "date", pd.date_range("2020-01-01", periods=days).astype(str))
    table.to_csv(path, index=False)


def main() -> None:
    """Set what is small, then run the trainer's own main.py in this folder."""
    source = Path(sys.argv[1]).resolve()
    sys.path[0], sys.argv[1:] = str(source), sys.argv[2:]
    from utils.config import Config

    for name, value in SMALL.items():
        setattr(Config, name, value)
    Config.DATA_PATH = Path("prices.csv").resolve()
    if not Config.DATA_PATH.exists():
        prices(Config.DATA_PATH)
    runpy.run_path(str(source / "main.py"), run_name="__main__")


main()
