"""Scores a recall agent on simulated users and keeps operation metrics while doing so."""

import bisect
import collections
import random
import time
import uuid

STEPS = 88
USERS_PER_STEP = 260
BOUNDS = [0.5, 1, 2, 4, 6, 8, 10, 15, 20, 30, 45, 60, 90, 120, 200, 400]


class Histogram:
    """Aggregates observations per attribute set, the way a metrics SDK does."""

    def __init__(self, name, bounds):
        self.name = name
        self.bounds = bounds
        self._points = {}

    def record(self, value, attributes):
        key = tuple(sorted(attributes.items()))
        point = self._points.get(key)
        if point is None:
            point = {
                "buckets": [0.0] * (len(self.bounds) + 1),
                "sum": 0.0,
                "count": 0,
                "min": value,
                "max": value,
                "attributes": dict(attributes),
            }
            self._points[key] = point
        point["buckets"][bisect.bisect_left(self.bounds, value)] += 1
        point["sum"] += value
        point["count"] += 1
        point["min"] = min(point["min"], value)
        point["max"] = max(point["max"], value)

    def collect(self):
        for point in self._points.values():
            yield point["attributes"], point["count"], point["sum"]


class MetricsCollector:
    def __init__(self):
        self.duration = Histogram("operation.duration", BOUNDS)
        self.tokens = Histogram("operation.tokens", BOUNDS)

    def record_operation(self, operation, bank_id, budget, ok, ms, tokens):
        attributes = {"operation": operation, "bank_id": bank_id, "budget": budget, "status": "ok" if ok else "error"}
        self.duration.record(ms, attributes)
        self.tokens.record(tokens, attributes)

    def export(self):
        by_operation = collections.Counter()
        for attributes, count, _ in self.duration.collect():
            by_operation[attributes["operation"]] += count
        return by_operation


class Bank:
    """The notes of one simulated user; lives only while the user is evaluated."""

    def __init__(self, rng):
        self.bank_id = f"user-{uuid.UUID(int=rng.getrandbits(128))}"
        self.notes = {}

    def retain(self, rng, topic):
        self.notes.setdefault(topic, []).append([rng.random() for _ in range(6)])

    def recall(self, topic):
        return self.notes.get(topic, [])


class RecallAgent:
    def __init__(self, metrics, seed):
        self.metrics = metrics
        self.rng = random.Random(seed)
        self.skill = [0.1] * 32
        self.last_scores = collections.deque(maxlen=1000)

    def evaluate(self, bank):
        hits = 0
        budget = self.rng.choice(["low", "mid", "high"])
        for _ in range(3):
            topic = self.rng.randrange(32)
            bank.retain(self.rng, topic)
            self.metrics.record_operation(
                "retain", bank.bank_id, budget, True, self.rng.expovariate(0.1), self.rng.randrange(400)
            )
            ok = self.rng.random() < self.skill[topic]
            self.skill[topic] += 0.0008 * (1.0 - self.skill[topic])
            hits += ok and bool(bank.recall(topic))
            self.metrics.record_operation(
                "recall", bank.bank_id, budget, ok, self.rng.expovariate(0.05), self.rng.randrange(400)
            )
        self.last_scores.append(hits / 3)


def main():
    metrics = MetricsCollector()
    agent = RecallAgent(metrics, seed=6)
    for step in range(1, STEPS + 1):
        t0 = time.time()
        for _ in range(USERS_PER_STEP):
            agent.evaluate(Bank(agent.rng))
        line = f"step {step:>3}/{STEPS} | recall@3 {sum(agent.last_scores) / len(agent.last_scores):.3f}"
        if step % 10 == 0:
            line += " | " + ", ".join(f"{k} {v}" for k, v in sorted(metrics.export().items()))
        print(line, flush=True)
        time.sleep(max(0.3, 1.0 - (time.time() - t0)))


if __name__ == "__main__":
    main()
