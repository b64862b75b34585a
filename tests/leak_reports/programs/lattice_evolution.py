"""Evolve update rules for a lattice automaton; every genome is scored on a fresh lattice."""

import time

import numpy as np


class Site:
    __slots__ = ("lattice", "row", "column", "field", "spin")

    def __init__(self, lattice, row, column, rng):
        self.lattice, self.row, self.column = lattice, row, column
        self.field = rng.standard_normal(32)
        self.spin = 1 if self.field[0] > 0 else -1

    def pull(self):
        n, grid = self.lattice.size, self.lattice.sites
        r, c = self.row, self.column
        return grid[r - 1, c].spin + grid[(r + 1) % n, c].spin + grid[r, c - 1].spin + grid[r, (c + 1) % n].spin


class Lattice:
    def __init__(self, size, rng):
        self.size = size
        self.sites = np.empty((size, size), dtype=object)
        for row in range(size):
            for column in range(size):
                self.sites[row, column] = Site(self, row, column, rng)

    def sweep(self, rule, rng, count):
        for row, column in rng.integers(0, self.size, (count, 2)):
            site = self.sites[row, column]
            drive = rule[0] * site.pull() + rule[1:] @ site.field[:4]
            site.spin = 1 if drive > 0 else -1

    def order(self):
        return abs(sum(site.spin for site in self.sites.ravel())) / self.sites.size


class Population:
    def __init__(self, members, rng):
        self.rng = rng
        self.rules = rng.standard_normal((members, 5))
        self.scores = np.zeros(members)

    def evaluate(self, index):
        lattice = Lattice(36, self.rng)
        lattice.sweep(self.rules[index], self.rng, 1200)
        self.scores[index] = lattice.order()
        return self.scores[index]

    def breed(self):
        ranked = np.argsort(-self.scores)
        half = len(ranked) // 2
        parents = self.rules[ranked[:half]]
        mixed = 0.5 * (parents + parents[self.rng.permutation(half)])
        children = mixed + 0.2 * self.rng.standard_normal(mixed.shape)
        self.rules = np.concatenate([parents, children])


def main(generations=64, members=12):
    population = Population(members, np.random.default_rng(5))
    for generation in range(1, generations + 1):
        for index in range(members):
            population.evaluate(index)
            time.sleep(0.14)
        print(
            f"generation {generation:3d}/{generations}  best order {population.scores.max():.3f}  "
            f"mean {population.scores.mean():.3f}",
            flush=True,
        )
        population.breed()


if __name__ == "__main__":
    main()
