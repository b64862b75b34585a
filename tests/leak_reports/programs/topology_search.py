"""Evolve communication topologies: high clustering, short paths, few links."""

import random
import time
import weakref
from dataclasses import dataclass, field

import networkx as nx
import numpy as np

NODES = 170


@dataclass
class TopologyReport:
    """What is known of one candidate; filled step by step."""

    graph: nx.Graph
    degrees: np.ndarray = None
    clustering: float = 0.0
    path_length: float = 0.0
    components: int = 1
    bottleneck: float = 0.0
    notes: dict = field(default_factory=dict)

    def compute(self, rng):
        self.degrees = np.array([d for _, d in self.graph.degree()])
        sample = rng.sample(range(NODES), 60)
        self.clustering = float(np.mean(list(nx.clustering(self.graph).values())))
        lengths = []
        for source in sample:
            reached = nx.single_source_shortest_path_length(self.graph, source)
            lengths.append(sum(reached.values()) / max(len(reached) - 1, 1))
            if len(reached) < NODES:
                self.components = 2
        self.path_length = float(np.mean(lengths))
        between = nx.betweenness_centrality(self.graph, k=60, seed=rng.randrange(1 << 30))
        self.bottleneck = max(between.values())

    @property
    def fitness(self):
        penalty = 5.0 if self.components > 1 else 0.0
        return 2.0 * self.clustering - 0.4 * self.path_length - self.bottleneck - penalty


class Analyser:
    """Computes the report of a topology once; reports go away with their topology."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self._reports = weakref.WeakKeyDictionary()
        self.computed = 0

    def report(self, graph):
        known = self._reports.get(graph)
        if known is None:
            known = TopologyReport(graph)
            known.compute(self.rng)
            self._reports[graph] = known
            self.computed += 1
        return known


class TopologyPopulation:
    def __init__(self, size, seed):
        self.size = size
        self.rng = random.Random(seed)
        self.members = [self._initial(k) for k in range(size)]

    def _initial(self, k):
        graph = nx.connected_watts_strogatz_graph(NODES, 6, 0.15, seed=k)
        for node in graph:
            graph.nodes[node]["load"] = self.rng.random()
        for a, b in graph.edges:
            graph[a][b]["latency"] = self.rng.uniform(1.0, 20.0)
        return graph

    def offspring(self, parent):
        child = parent.copy()
        edges = list(child.edges)
        for a, b in self.rng.sample(edges, 10):
            child.remove_edge(a, b)
        for _ in range(10):
            a, b = self.rng.sample(range(NODES), 2)
            child.add_edge(a, b, latency=self.rng.uniform(1.0, 20.0))
        return child

    def evolve(self, analyser, offspring):
        children = []
        for _ in range(offspring):
            contenders = self.rng.sample(self.members, 3)
            parent = max(contenders, key=lambda g: analyser.report(g).fitness)
            children.append(self.offspring(parent))
        pool = self.members + children
        pool.sort(key=lambda g: analyser.report(g).fitness, reverse=True)
        self.members = pool[: self.size]


def main():
    analyser = Analyser(seed=2)
    population = TopologyPopulation(size=10, seed=4)
    best_curve = []
    generations = 320
    for generation in range(1, generations + 1):
        population.evolve(analyser, offspring=4)
        best = analyser.report(population.members[0])
        best_curve.append(best.fitness)
        time.sleep(0.42)
        print(
            f"Generation {generation}/{generations} fitness {best.fitness:.4f} "
            f"clustering {best.clustering:.3f} path {best.path_length:.3f} "
            f"evaluated {analyser.computed}"
        )
    print("gain over the run", round(best_curve[-1] - best_curve[0], 4))


if __name__ == "__main__":
    main()
