"""Two-objective design optimisation of a duct outline, stepped generation by generation."""

import time
from collections import OrderedDict, deque

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.problem import Problem
from pymoo.indicators.hv import HV

GENERATIONS = 92
GEN_SECONDS = 1.35


class DuctProblem(Problem):
    """Outline heights along the axis; drag against volume."""

    def __init__(self, n_var=320):
        super().__init__(n_var=n_var, n_obj=2, n_ieq_constr=1, xl=0.0, xu=1.0)
        s = np.linspace(0, 1, n_var)
        self.profile = 0.5 + 0.3 * np.sin(3 * np.pi * s)

    def _evaluate(self, X, out, *args, **kwargs):
        slope = np.diff(X, axis=1)
        drag = np.mean(slope**2, axis=1) + 0.1 * np.mean((X - self.profile) ** 2, axis=1)
        volume = 1.0 - X.mean(axis=1)
        out["F"] = np.column_stack([drag, volume])
        out["G"] = np.abs(slope).max(axis=1) - 0.98


class Progress:
    def __init__(self):
        self.hv = HV(ref_point=np.array([0.5, 1.0]))
        self.values = []
        self.fronts = deque(maxlen=6)
        self.lookup = OrderedDict()

    def update(self, algorithm):
        front = algorithm.opt.get("F")
        self.fronts.append(front)
        for ind in algorithm.opt[:10]:
            self.lookup[hash(ind.X.tobytes())] = float(ind.F[0])
            if len(self.lookup) > 500:
                self.lookup.popitem(last=False)
        self.values.append(float(self.hv(front)))
        return self.values[-1]


def main():
    problem = DuctProblem()
    algorithm = NSGA2(pop_size=100)
    algorithm.setup(problem, termination=("n_gen", GENERATIONS), seed=3, save_history=True, verbose=False)
    progress = Progress()
    while algorithm.has_next():
        t0 = time.time()
        algorithm.next()
        value = progress.update(algorithm)
        gen = len(progress.values)
        print(f"gen {gen}/{GENERATIONS} hypervolume {value:.5f} evals {algorithm.evaluator.n_eval}", flush=True)
        time.sleep(max(0.1, GEN_SECONDS - (time.time() - t0)))


if __name__ == "__main__":
    main()
