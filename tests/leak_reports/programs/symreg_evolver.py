"""Evolves closed formulas for a noisy target; candidates are compiled to Python functions."""

import heapq
import itertools
import linecache
import math
import random
import time

import numpy as np

GENERATIONS = 60
POPULATION = 22
OPS = ["+", "-", "*"]
CALLS = ["sin", "cos", "tanh", "abs"]


class Formula:
    """A straight-line program over the inputs a, b, c."""

    def __init__(self, steps):
        self.steps = steps

    @classmethod
    def random(cls, rng, length):
        return cls([cls._step(rng, k) for k in range(length)])

    @staticmethod
    def _step(rng, k):
        def operand():
            if k == 0 or rng.random() < 0.3:
                return rng.choice("abc")
            return f"t{rng.randrange(max(0, k - 12), k)}"

        inner = f"{rng.choice(CALLS)}({operand()} {rng.choice(OPS)} {rng.uniform(-2, 2)!r})"
        return f"{rng.choice(CALLS)}({operand()} {rng.choice(OPS)} {rng.uniform(-1, 1)!r} * {inner})"

    def mutate(self, rng, rate=0.04):
        return Formula([self._step(rng, k) if rng.random() < rate else s for k, s in enumerate(self.steps)])


class Compiler:
    namespace = {"sin": math.sin, "cos": math.cos, "tanh": math.tanh, "abs": abs}
    _serial = itertools.count()

    def compile(self, formula):
        lines = ["def candidate(a, b, c):"]
        lines += [f"    t{k} = {s}" for k, s in enumerate(formula.steps)]
        lines.append(f"    return t{len(formula.steps) - 1}")
        source = "\n".join(lines) + "\n"
        filename = f"<candidate-{next(self._serial)}>"
        scope = dict(self.namespace)
        exec(compile(source, filename, "exec"), scope)
        # lets tracebacks and inspect show the generated lines
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        fn = scope.pop("candidate")
        return fn


class Evolver:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.compiler = Compiler()
        self.elite = []
        self._tie = itertools.count()
        pts = np.random.default_rng(seed).uniform(-2, 2, (24, 3))
        self.points = [tuple(map(float, p)) for p in pts]
        self.target = [math.sin(a) * b + 0.3 * c for a, b, c in self.points]
        self.scores_seen = []

    def score(self, formula):
        fn = self.compiler.compile(formula)
        err = [(fn(*p) - t) ** 2 for p, t in zip(self.points, self.target)]
        return sum(err) / len(err)

    def generation(self):
        for _ in range(POPULATION):
            if self.elite and self.rng.random() < 0.7:
                parent = self.rng.choice(self.elite)[2]
                child = parent.mutate(self.rng)
            else:
                child = Formula.random(self.rng, 420)
            entry = (-self.score(child), next(self._tie), child)
            if len(self.elite) < 12:
                heapq.heappush(self.elite, entry)
            else:
                heapq.heappushpop(self.elite, entry)
            self.scores_seen.append(-entry[0])
        return -max(self.elite)[0]


def main():
    evolver = Evolver(seed=8)
    for gen in range(1, GENERATIONS + 1):
        t0 = time.monotonic()
        best = evolver.generation()
        spent = time.monotonic() - t0
        print(f"gen {gen}/{GENERATIONS}: best mse {best:.4f}, tried {len(evolver.scores_seen)}", flush=True)
        time.sleep(max(0.5, 1.5 - spent))


if __name__ == "__main__":
    main()
