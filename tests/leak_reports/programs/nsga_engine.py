"""NSGA-II over a surrogate engine model; every design carries its pressure trace."""

import time

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.callback import Callback
from pymoo.core.problem import Problem
from pymoo.optimize import minimize

N_GEN, TRACE = 540, 640


class EngineProblem(Problem):
    """Two conflicting objectives from a cheap one-dimensional flow model."""

    def __init__(self):
        super().__init__(n_var=12, n_obj=2, xl=0.0, xu=1.0)
        self.grid = np.linspace(0.0, 1.0, TRACE)
        self.stations = [i / 12 for i in range(12)]
        self.n_calls = 0

    def _evaluate(self, x, out, *args, **kwargs):
        trace = np.zeros((len(x), TRACE))
        for j, s in enumerate(self.stations):
            trace += x[:, j : j + 1] * np.exp(-80 * (self.grid - s) ** 2)
        drag = np.abs(np.diff(trace, axis=1)).sum(1)
        thrust = trace.mean(1) - 0.1 * (x**2).sum(1)
        self.n_calls += len(x)
        out["F"] = np.column_stack([drag, -thrust])
        out["trace"] = trace


class Progress(Callback):
    def __init__(self):
        super().__init__()
        self.fronts = []
        self.due = time.time()

    def notify(self, algorithm):
        F = algorithm.pop.get("F")
        self.fronts.append((float(F[:, 0].min()), float(F[:, 1].min())))
        if algorithm.n_gen % 10 == 0:
            print(
                f"generation {algorithm.n_gen} drag {F[:, 0].min():.4f} thrust {-F[:, 1].min():.4f} "
                f"size {len(algorithm.opt)}",
                flush=True,
            )
        self.due += 0.25
        time.sleep(max(0.0, self.due - time.time()))


def main():
    problem = EngineProblem()
    algorithm = NSGA2(pop_size=60, eliminate_duplicates=True)
    result = minimize(
        problem, algorithm, ("n_gen", N_GEN), seed=1, verbose=False, save_history=True, callback=Progress()
    )
    print(f"done, front of {len(result.F)} designs", flush=True)


if __name__ == "__main__":
    main()
