import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import math
import time

import numpy as np


class Expr:
    """Symbolic expression; equal expressions are the same object."""

    __slots__ = ("op", "args", "diffs")
    _instances = {}

    def __new__(cls, op, *args):
        key = (op, *args)
        found = cls._instances.get(key)
        if found is None:
            found = object.__new__(cls)
            found.op, found.args, found.diffs = op, args, {}
            cls._instances[key] = found
        return found

    def __add__(self, other):
        if ZERO in (self, other):
            return other if self is ZERO else self
        if self.op == other.op == "num":
            return num(self.args[0] + other.args[0])
        return Expr("add", self, other)

    def __mul__(self, other):
        if ZERO in (self, other):
            return ZERO
        if self.op == other.op == "num":
            return num(self.args[0] * other.args[0])
        return Expr("mul", self, other)

    def diff(self, i):
        if i not in self.diffs:
            if self.op in ("var", "num"):
                d = num(self.op == "var" and self.args[0] == i)
            elif self.op == "add":
                d = self.args[0].diff(i) + self.args[1].diff(i)
            elif self.op == "mul":
                d = self.args[0].diff(i) * self.args[1] + self.args[0] * self.args[1].diff(i)
            elif self.op == "sin":
                d = Expr("cos", self.args[0]) * self.args[0].diff(i)
            else:
                d = num(-1.0) * Expr("sin", self.args[0]) * self.args[0].diff(i)
            self.diffs[i] = d
        return self.diffs[i]

    def value(self, points, memo):
        if self.op == "num":
            return self.args[0]
        if self not in memo:
            if self.op == "var":
                memo[self] = points[self.args[0]]
            elif self.op in ("add", "mul"):
                a, b = (x.value(points, memo) for x in self.args)
                memo[self] = a + b if self.op == "add" else a * b
            else:
                memo[self] = getattr(np, self.op)(self.args[0].value(points, memo))
        return memo[self]


def num(x):
    return Expr("num", float(x))


ZERO = num(0.0)
X = [Expr("var", i) for i in range(4)]
FIELD = [
    X[1],
    num(-1.0) * Expr("sin", X[0]) + num(-0.4) * X[1] + num(0.2) * X[2],
    X[3],
    num(-1.3) * X[2] + num(-0.5) * X[3] + num(0.1) * Expr("sin", X[0]),
]


def candidate(coef):
    terms = [X[i] * X[j] for i in range(4) for j in range(i, 4)]
    terms += [num(1.0) + num(-1.0) * Expr("cos", X[0]), Expr("sin", X[0]) * X[1], Expr("sin", X[2]) * X[3]]
    return sum((num(c) * term for c, term in zip(coef, terms)), ZERO)


def main(sweeps=3000, offspring=10):
    rng = np.random.default_rng(1)
    points = rng.uniform(-1.2, 1.2, (4, 60_000)).astype(np.float32)
    radius = (points**2).sum(0)
    mean, best, sigma = np.zeros(13), math.inf, 0.5
    mean[[0, 4, 7, 9]] = 1.0
    started = time.time()
    for sweep in range(1, sweeps + 1):
        trials = mean + sigma * rng.standard_normal((offspring, 13))
        losses = []
        for coef in trials:
            v, memo = candidate(coef), {}
            flow = sum((v.diff(i) * FIELD[i] for i in range(4)), ZERO)
            level, slope = v.value(points, memo), flow.value(points, memo)
            losses.append(
                float(
                    np.maximum(0.6 * radius - level, 0).mean()
                    + np.maximum(slope + 0.4 * radius, 0).mean()
                    + 0.005 * (coef**2).sum()
                )
            )
        order = np.argsort(losses)[: offspring // 3]
        mean = 0.7 * mean + 0.3 * trials[order].mean(0)
        sigma = max(sigma * (1.05 if losses[order[0]] < best else 0.99), 0.05)
        best = min(best, losses[order[0]])
        if sweep % 10 == 0:
            print(
                f"sweep {sweep}/{sweeps} loss {best:.5f} sigma {sigma:.3f} ({time.time() - started:.0f} s)", flush=True
            )


if __name__ == "__main__":
    main()
