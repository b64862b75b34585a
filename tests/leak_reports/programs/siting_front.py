"""Siting of weather radars: coverage against the number of stations (NSGA-II with DEAP)."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import random
import time
from collections import deque

import numpy as np
from deap import base, creator, tools

CONFIG = {
    "grid": 212,
    "candidates": 11,
    "radius_km": 46.0,
    "population": 56,
    "generations": 84,
    "cx_prob": 0.7,
    "flip_prob": 0.06,
    "seed": 11,
    "pace_s": 0.9,
}

creator.create("SitingFitness", base.Fitness, weights=(1.0, -1.0))


class Layout:
    """One plan: which candidate hills get a radar, and the beam map it gives."""

    def __init__(self, genes):
        self.genes = np.asarray(genes, dtype=np.int8)
        self.beam = None
        self.fitness = creator.SitingFitness()

    def stations(self):
        return int(self.genes.sum())


class Terrain:
    def __init__(self, cfg, rng):
        n = cfg["grid"]
        yy, xx = np.mgrid[0:n, 0:n].astype(np.float32)
        self.relief = rng.random((n, n), dtype=np.float32) * 0.15
        self.demand = rng.random((n, n)) > 0.35
        sites = rng.uniform(0, n, size=(cfg["candidates"], 2))
        self.footprints = np.stack(
            [np.clip(1.2 - np.hypot(yy - y, xx - x) / cfg["radius_km"] - self.relief, 0, 1) for y, x in sites]
        ).astype(np.float32)

    def beam_map(self, genes):
        picked = self.footprints[genes.astype(bool)]
        if len(picked) == 0:
            return np.zeros_like(self.relief)
        return picked.max(axis=0)


class SitingProblem:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rng = np.random.default_rng(cfg["seed"])
        self.terrain = Terrain(cfg, self.rng)
        self.recent_scores = deque(maxlen=2000)

    def random_layout(self):
        return Layout(self.rng.random(self.cfg["candidates"]) < 0.4)

    def evaluate(self, layout):
        layout.beam = self.terrain.beam_map(layout.genes)
        seen = (layout.beam > 0.3) & self.terrain.demand
        coverage = round(float(seen.sum()) / float(self.terrain.demand.sum()), 2)
        self.recent_scores.append(coverage)
        return coverage, layout.stations()

    def mate(self, a, b):
        mask = self.rng.random(len(a.genes)) < 0.5
        child = Layout(np.where(mask, a.genes, b.genes))
        return child

    def mutate(self, layout):
        flips = self.rng.random(len(layout.genes)) < self.cfg["flip_prob"]
        layout.genes[flips] ^= 1
        return layout


class Planner:
    def __init__(self, cfg):
        random.seed(cfg["seed"])
        self.cfg = cfg
        self.problem = SitingProblem(cfg)
        self.front = tools.ParetoFront()
        self.logbook = tools.Logbook()
        self.logbook.header = ["gen", "best", "mean"]
        self.population = [self.problem.random_layout() for _ in range(cfg["population"])]
        self._score(self.population)

    def _score(self, layouts):
        for layout in layouts:
            layout.fitness.values = self.problem.evaluate(layout)

    def offspring(self):
        children = []
        while len(children) < self.cfg["population"]:
            a, b = random.sample(self.population, 2)
            if random.random() < self.cfg["cx_prob"]:
                child = self.problem.mate(a, b)
            else:
                child = Layout(a.genes.copy())
            children.append(self.problem.mutate(child))
        return children

    def step(self, gen):
        children = self.offspring()
        self._score(children)
        self.front.update(children)
        pool = self.population + children
        self.population = tools.selNSGA2(pool, self.cfg["population"])
        scores = [one.fitness.values[0] for one in self.population]
        self.logbook.record(gen=gen, best=max(scores), mean=float(np.mean(scores)))
        return self.logbook[-1]


def main():
    cfg = CONFIG
    planner = Planner(cfg)
    for gen in range(1, cfg["generations"] + 1):
        began = time.time()
        row = planner.step(gen)
        distinct = {one.fitness.values for one in planner.population}
        print(
            f"generation {gen}/{cfg['generations']} best {row['best']:.2f} "
            f"mean {row['mean']:.3f} trade-offs {len(distinct)}",
            flush=True,
        )
        time.sleep(max(0.0, cfg["pace_s"] - (time.time() - began)))
    best = sorted({one.fitness.values for one in planner.front}, key=lambda v: v[1])
    print("front:", best[:20])


if __name__ == "__main__":
    main()
