"""Genome scan: one linear mixed model per variant block, ML fit of the variance ratio."""

import time
from functools import cache

import numpy as np
from scipy.optimize import minimize_scalar


class LMM:
    """y = X b + u + e with a low-rank covariance given by its eigenvalues."""

    def __init__(self, y, X, eigvals):
        self._y = y
        self._X = X
        self._eigvals = eigvals
        self.delta = 0.5
        self.beta = None

    @cache
    def _logdetXX(self):
        sign, value = np.linalg.slogdet(self._X.T @ self._X)
        return value if sign == 1.0 else -np.inf

    def _weights(self, delta):
        return 1.0 / ((1 - delta) * self._eigvals + delta)

    def lml(self, delta):
        w = self._weights(delta)
        XtW = self._X.T * w
        A = XtW @ self._X
        beta = np.linalg.solve(A, XtW @ self._y)
        r = self._y - self._X @ beta
        n, p = self._X.shape
        s = float((w * r * r).sum()) / n
        self.beta = beta
        return -0.5 * (n * np.log(s) - np.log(w).sum() + np.linalg.slogdet(A)[1] - self._logdetXX())

    def fit(self):
        res = minimize_scalar(lambda d: -self.lml(d), bounds=(0.01, 0.99), method="bounded", options={"maxiter": 6})
        self.delta = float(res.x)
        return -float(res.fun)


class VariantReader:
    """Streams blocks of genotypes (0/1/2 dosages)."""

    def __init__(self, n_samples=4000, block=24, seed=1):
        self.rng = np.random.default_rng(seed)
        self.n_samples, self.block = n_samples, block
        self.chromosomes = [f"chr{i}" for i in range(1, 23)]

    def next_block(self):
        freq = self.rng.uniform(0.05, 0.5, self.block)
        return self.rng.binomial(2, freq, (self.n_samples, self.block)).astype(float)


class Scan:
    def __init__(self, reader):
        self.reader = reader
        self.eigvals = np.sort(reader.rng.gamma(1.0, 1.0, reader.n_samples))[::-1]
        self.phenotype = reader.rng.normal(size=reader.n_samples)
        self.pvals = []
        self.best = (-np.inf, None)

    def run(self, blocks=560):
        due = time.time()
        for b in range(blocks):
            G = self.reader.next_block()
            model = LMM(self.phenotype, G, self.eigvals)
            lml = model.fit()
            self.pvals.append(lml)
            if lml > self.best[0]:
                self.best = (lml, b)
            if b % 20 == 19:
                chrom = self.reader.chromosomes[b // 20 % 22]
                print(
                    f"iteration {b + 1} {chrom} lml {lml:.2f} delta {model.delta:.3f} best {self.best[0]:.2f}",
                    flush=True,
                )
            due += 0.24
            time.sleep(max(0.0, due - time.time()))


if __name__ == "__main__":
    Scan(VariantReader()).run()
