"""Symbolic regression by random search: candidates become generated Python functions."""

import heapq
import itertools
import linecache
import time
from collections import OrderedDict, deque

import numpy as np

GENERATIONS = 70
GEN_SECONDS = 1.8
CANDIDATES = 170
TERMS = 70

UNARY = ["np.sin({})", "np.cos({})", "np.tanh({})", "np.square({})", "np.abs({})"]


class FunctionBuilder:
    """Turns source text into a function; the text stays readable in tracebacks."""

    _numbers = itertools.count()

    def __init__(self):
        self.stats = {"built": 0, "lines": 0}

    def build(self, lines):
        source = "\n".join(lines) + "\n"
        filename = f"<symreg generated {next(self._numbers)}>"
        namespace = {"np": np}
        exec(compile(source, filename, "exec"), namespace)
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        self.stats["built"] += 1
        self.stats["lines"] += len(lines)
        return namespace["candidate"]


class Candidate:
    __slots__ = ("genes", "loss")

    def __init__(self, genes, loss):
        self.genes = genes
        self.loss = loss

    def __lt__(self, other):
        return self.loss > other.loss


class Search:
    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.x = self.rng.uniform(-2, 2, size=(6, 400))
        self.y = np.sin(self.x[0]) * self.x[1] + np.square(self.x[2]) - 0.5 * self.x[3]
        self.builder = FunctionBuilder()
        self.elite = []
        self.best_losses = deque(maxlen=100)
        self.seen = OrderedDict()

    def genes(self):
        if self.elite and self.rng.random() < 0.7:
            parent = self.elite[self.rng.integers(len(self.elite))].genes.copy()
            spots = self.rng.integers(0, TERMS, size=8)
            parent[spots] = self._fresh(8)
            return parent
        return self._fresh(TERMS)

    def _fresh(self, n):
        g = np.empty((n, 4))
        g[:, 0] = self.rng.integers(0, len(UNARY), size=n)
        g[:, 1:3] = self.rng.integers(0, 6, size=(n, 2))
        g[:, 3] = self.rng.normal(scale=0.1, size=n)
        return g

    def to_lines(self, genes):
        lines = ["def candidate(x):", "    total = np.zeros(x.shape[1])"]
        for k, (u, i, j, w) in enumerate(genes):
            inner = UNARY[int(u)].format(f"x[{int(i)}]")
            lines.append(f"    total += {w:.10f} * {inner} * x[{int(j)}]  # term {k}")
        lines.append("    return total")
        return lines

    def generation(self):
        for _ in range(CANDIDATES):
            genes = self.genes()
            fn = self.builder.build(self.to_lines(genes))
            loss = float(np.mean((fn(self.x) - self.y) ** 2))
            self.seen[genes.tobytes()[:64]] = loss
            if len(self.seen) > 300:
                self.seen.popitem(last=False)
            heapq.heappush(self.elite, Candidate(genes, loss))
            if len(self.elite) > 20:
                heapq.heappop(self.elite)
        best = min(c.loss for c in self.elite)
        self.best_losses.append(best)
        return best


def main():
    search = Search()
    for gen in range(1, GENERATIONS + 1):
        t0 = time.time()
        best = search.generation()
        print(f"generation {gen}/{GENERATIONS} loss {best:.4f} built {search.builder.stats['built']}", flush=True)
        time.sleep(max(0.1, GEN_SECONDS - (time.time() - t0)))


if __name__ == "__main__":
    main()
