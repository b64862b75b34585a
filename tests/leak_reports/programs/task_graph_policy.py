"""Learns a scheduling score on random task graphs with a small message-passing net."""

import collections
import gc
import time

import networkx as nx
import numpy as np

EPISODES = 60
HIDDEN = 24


class TaskGraphSampler:
    """Draws layered DAGs; every graph carries the tensors its tasks consume."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def sample(self):
        n_layers = int(self.rng.integers(5, 8))
        g = nx.DiGraph(layers=n_layers)
        prev = []
        for layer in range(n_layers):
            width = int(self.rng.integers(3, 7))
            nodes = [(layer, k) for k in range(width)]
            for node in nodes:
                g.add_node(node, cost=float(self.rng.gamma(2.0)))
                for parent in prev:
                    if self.rng.random() < 0.5:
                        g.add_edge(parent, node, size=float(self.rng.random()))
            prev = nodes
        g.graph["inputs"] = self.rng.standard_normal((g.number_of_nodes(), 5000)).astype(np.float32)
        return g


class SchedulePolicy:
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.proj = rng.standard_normal((5000, HIDDEN)).astype(np.float32) * 0.02
        self.mix = rng.standard_normal((HIDDEN, HIDDEN)).astype(np.float32) * 0.2
        self.out = np.zeros(HIDDEN, dtype=np.float32)

    def embed(self, g):
        order = {node: i for i, node in enumerate(nx.topological_sort(g))}
        h = np.tanh(g.graph["inputs"] @ self.proj)
        for u, v, data in g.edges(data=True):
            h[order[v]] += data["size"] * np.tanh(h[order[u]] @ self.mix)
        for node, deg in g.in_degree:
            h[order[node]] /= 1.0 + deg
        return order, h

    def step(self, g, lr=0.02):
        order, h = self.embed(g)
        target = np.zeros(len(order), dtype=np.float32)
        for node in g.nodes:
            finish = max((target[order[p]] for p in g.predecessors(node)), default=0.0)
            target[order[node]] = finish + g.nodes[node]["cost"]
        err = h @ self.out - target / (1.0 + target.max())
        self.out -= lr * (h.T @ err) / len(err)
        return float((err**2).mean())


class RunningStats:
    def __init__(self, span):
        self.losses = collections.deque(maxlen=span)
        self.sizes = collections.Counter()

    def add(self, loss, g):
        self.losses.append(loss)
        self.sizes[g.number_of_nodes()] += 1

    @property
    def mean(self):
        return sum(self.losses) / len(self.losses)


def main():
    # collector pauses were visible in the step timings
    gc.set_threshold(200_000, 20, 20)
    sampler, policy = TaskGraphSampler(3), SchedulePolicy(4)
    stats = RunningStats(40)
    for ep in range(1, EPISODES + 1):
        t0 = time.perf_counter()
        for _ in range(4):
            g = sampler.sample()
            stats.add(policy.step(g), g)
        ms = 1000 * (time.perf_counter() - t0)
        time.sleep(1.45 - min(1.0, ms / 1000))
        print(f"episode={ep} total={EPISODES} mse={stats.mean:.5f} step_ms={ms / 4:.1f}", flush=True)


if __name__ == "__main__":
    main()
