import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import time

import numpy as np
from scipy import stats

FUNCTIONS = {
    "add": (np.add, 2),
    "sub": (np.subtract, 2),
    "mul": (np.multiply, 2),
    "sin": (np.sin, 1),
    "square": (np.square, 1),
    "tanh": (np.tanh, 1),
}
NAMES = list(FUNCTIONS)


class Program:
    """A formula in prefix order, with the rows it is validated on."""

    def __init__(self, nodes, n_samples, rng, holdout=0.05):
        self.nodes = nodes
        self.oob_indices = np.flatnonzero(rng.random(n_samples) < holdout)
        self.raw_fitness = None
        self.oob_fitness = None

    def execute(self, X):
        stack = []
        for node in reversed(self.nodes):
            if isinstance(node, str):
                func, arity = FUNCTIONS[node]
                stack.append(func(*[stack.pop() for _ in range(arity)]))
            elif isinstance(node, int):
                stack.append(X[node])
            else:
                stack.append(np.full(X.shape[1], node))
        return stack.pop()

    def subtree(self, start):
        need, end = 1, start
        while need:
            node = self.nodes[end]
            need += FUNCTIONS[node][1] - 1 if isinstance(node, str) else -1
            end += 1
        return start, end


class SymbolicRegressor:
    def __init__(self, population_size=48, generations=550, tournament_size=5, seed=5):
        self.population_size = population_size
        self.generations, self.tournament_size = generations, tournament_size
        self.rng = np.random.default_rng(seed)
        self._programs = []

    def random_nodes(self, n_features, depth=4):
        if depth == 0 or self.rng.random() < 0.08:
            return [int(self.rng.integers(n_features))] if self.rng.random() < 0.75 else [float(self.rng.normal())]
        name = NAMES[self.rng.integers(len(NAMES))]
        nodes = [name]
        for _ in range(FUNCTIONS[name][1]):
            nodes += self.random_nodes(n_features, depth - 1)
        return nodes

    def tournament(self, parents):
        picks = self.rng.integers(len(parents), size=self.tournament_size)
        return max((parents[i] for i in picks), key=lambda p: p.raw_fitness - 0.0002 * len(p.nodes))

    def breed(self, parents, n_features):
        mother = self.tournament(parents)
        a, b = mother.subtree(self.rng.integers(len(mother.nodes)))
        if self.rng.random() < 0.7:
            donor = self.tournament(parents)
            c, d = donor.subtree(self.rng.integers(len(donor.nodes)))
            nodes = mother.nodes[:a] + donor.nodes[c:d] + mother.nodes[b:]
        else:
            nodes = mother.nodes[:a] + self.random_nodes(n_features, 3) + mother.nodes[b:]
        return nodes if len(nodes) < 46 else mother.nodes

    def fit(self, X, y):
        n_features, n = X.shape
        started = time.time()
        for gen in range(self.generations):
            pool = [
                self.breed(self._programs[gen - 1], n_features) if gen else self.random_nodes(n_features)
                for _ in range(self.population_size)
            ]
            population = [Program(nodes, n, self.rng) for nodes in pool]
            for program in population:
                pred = program.execute(X)
                corr = np.corrcoef(pred, y)[0, 1] if pred.std() > 1e-9 else 0.0
                program.raw_fitness = abs(corr) if np.isfinite(corr) else 0.0
                held = pred[program.oob_indices]
                program.oob_fitness = stats.pearsonr(held, y[program.oob_indices])[0] if held.std() > 1e-9 else 0.0
            self._programs.append(population)
            best = max(population, key=lambda p: p.raw_fitness)
            print(
                f"gen {gen:4d} best {best.raw_fitness:.4f} oob {best.oob_fitness:.4f} length {len(best.nodes)}"
                f" ({time.time() - started:.0f} s)",
                flush=True,
            )
        return best


if __name__ == "__main__":
    data = np.random.default_rng(0)
    features = data.uniform(-2, 2, (16, 50_000))
    target = features[0] * features[3] + 0.5 * features[5] ** 2 + np.sin(features[7]) + data.normal(0, 0.2, 50_000)
    SymbolicRegressor().fit(features, target)
