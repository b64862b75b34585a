"""DEAP's eaSimple or pymoo's minimize: evolution.py deap|pymoo [--leak: the history is kept, an option of both]."""

import random
import sys

import numpy as np

leak = "--leak" in sys.argv

if sys.argv[1] == "deap":
    from deap import algorithms, base, creator, tools

    creator.create("Fitness", base.Fitness, weights=(1.0,))
    creator.create("Individual", list, fitness=creator.Fitness)
    box = base.Toolbox()
    box.register("individual", tools.initRepeat, creator.Individual, random.random, 400)
    box.register("population", tools.initRepeat, list, box.individual)
    box.register("evaluate", lambda one: (sum(one),))
    box.register("mate", tools.cxTwoPoint)
    box.register("mutate", tools.mutGaussian, mu=0, sigma=0.1, indpb=0.05)
    box.register("select", tools.selTournament, tournsize=3)
    population = box.population(800)
    if leak:
        history = tools.History()
        box.decorate("mate", history.decorator)
        box.decorate("mutate", history.decorator)
        history.update(population)
    statistics = tools.Statistics(lambda one: one.fitness.values)
    statistics.register("max", np.max)
    algorithms.eaSimple(population, box, 0.5, 0.2, 250, stats=statistics, verbose=True)
else:
    from pymoo.algorithms.soo.nonconvex.ga import GA
    from pymoo.core.problem import Problem
    from pymoo.optimize import minimize

    class Sphere(Problem):
        """The sum of squares of 1,000 numbers."""

        def __init__(self):
            super().__init__(n_var=1000, n_obj=1, xl=-1.0, xu=1.0)

        def _evaluate(self, x, out, *args, **kwargs):
            out["F"] = (x**2).sum(axis=1)

    minimize(Sphere(), GA(pop_size=400), ("n_gen", 350), verbose=True, save_history=leak)
