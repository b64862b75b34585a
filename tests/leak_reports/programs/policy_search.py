"""Random search over rule systems. Every candidate is compiled from generated rule files."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
import hashlib
import importlib.util
import sys
import tempfile
import time
import uuid
from pathlib import Path

import numpy as np

CANDIDATES = 152
RULES = ("income", "housing", "transfer", "credit", "levy")
GRID = 40000
HOUSEHOLDS = 4000
RESAMPLES = 110
PAUSE = 0.66

RULE_TEMPLATE = """
import numpy as np

RATE = {rate!r}
FLOOR = {floor!r}
GRID = np.linspace(0.0, 250000.0, {grid})
SCHEDULE = np.maximum(0.0, GRID - FLOOR) * RATE


def apply(x):
    return np.interp(x, GRID[::{step}], SCHEDULE[::{step}])
"""


class RuleSystem:
    def __init__(self, folder):
        self.token = uuid.uuid4().hex[:12]
        self.rules = {}
        for path in sorted(Path(folder).glob("*.py")):
            self.add_rules_from_file(path)

    def add_rules_from_file(self, path):
        digest = hashlib.md5(str(path).encode()).hexdigest()[:8]
        module_name = f"{self.token}_{digest}_{path.stem}"
        spec = importlib.util.spec_from_file_location(module_name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        spec.loader.exec_module(module)
        self.rules[path.stem] = module.apply

    def net_income(self, households):
        total = households["wage"].copy()
        total -= self.rules["income"](households["wage"])
        total -= self.rules["levy"](households["wealth"]) * 0.1
        total += self.rules["transfer"](np.maximum(0.0, 40000.0 - households["wage"]))
        total += self.rules["credit"](households["children"] * 5000.0)
        total -= self.rules["housing"](households["rent"]) * 0.2
        return total


class Population:
    def __init__(self, n, seed=0):
        rng = np.random.default_rng(seed)
        self.frame = {
            "wage": rng.lognormal(10.3, 0.7, n),
            "wealth": rng.lognormal(10.0, 1.2, n),
            "children": rng.poisson(1.1, n).astype(float),
            "rent": rng.uniform(3000, 20000, n),
        }

    def sample(self, rng, n):
        idx = rng.integers(0, HOUSEHOLDS, n)
        return {k: v[idx] for k, v in self.frame.items()}


def gini(x):
    x = np.sort(np.maximum(x, 0.0))
    n = len(x)
    return float((2 * np.arange(1, n + 1) - n - 1) @ x / (n * x.sum()))


class Search:
    def __init__(self, workdir, seed=1):
        self.workdir = Path(workdir)
        self.rng = np.random.default_rng(seed)
        self.population = Population(HOUSEHOLDS)
        self.center = {r: (0.2, 8000.0) for r in RULES}
        self.scores = []
        self.elite = []

    def propose(self):
        return {
            r: (float(np.clip(a + self.rng.normal(0, 0.05), 0.0, 0.8)), max(0.0, float(f + self.rng.normal(0, 1500))))
            for r, (a, f) in self.center.items()
        }

    def write(self, params):
        for rule, (rate, floor) in params.items():
            (self.workdir / f"{rule}.py").write_text(RULE_TEMPLATE.format(rate=rate, floor=floor, grid=GRID, step=8))

    def evaluate(self, params):
        self.write(params)
        system = RuleSystem(self.workdir)
        parts = [gini(system.net_income(self.population.sample(self.rng, HOUSEHOLDS))) for _ in range(RESAMPLES)]
        return float(np.mean(parts))

    def update(self, params, score):
        self.scores.append(score)
        self.elite.append((score, params))
        self.elite.sort(key=lambda e: e[0])
        del self.elite[8:]
        for r in RULES:
            self.center[r] = tuple(np.mean([p[r] for _, p in self.elite], axis=0))


def main():
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as workdir:
        search = Search(workdir)
        for i in range(CANDIDATES):
            params = search.propose()
            score = search.evaluate(params)
            search.update(params, score)
            if i % 4 == 0:
                print(f"{i:4d}  gini={score:.4f}  elite={search.elite[0][0]:.4f}", flush=True)
            time.sleep(PAUSE)
    print("finished, best gini %.4f" % search.elite[0][0])


if __name__ == "__main__":
    main()
