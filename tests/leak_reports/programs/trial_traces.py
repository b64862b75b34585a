import os

os.environ["OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"] = "512"

import random
import time

import numpy as np
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

TRIALS = 262
PERIOD = 0.5
EPOCHS = 20
SPACE = {"lr": (0.001, 0.3), "l2": (0.0, 0.1), "momentum": (0.0, 0.9)}


class TrialTracer:
    """A tracer of its own for each trial, so that the spans of trials stay apart."""

    def __init__(self, trial, params):
        self.spans = InMemorySpanExporter()
        resource = Resource.create({"trial.id": trial, **{f"hp.{k}": v for k, v in params.items()}})
        provider = TracerProvider(resource=resource)
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.tracer = provider.get_tracer("tuner")

    def slowest(self):
        spans = [s for s in self.spans.get_finished_spans() if s.name == "epoch"]
        return max(s.end_time - s.start_time for s in spans) / 1e6


class Ridge:
    def __init__(self, params, dim, rng):
        self.p = params
        self.w = rng.normal(size=dim) * 0.1
        self.v = np.zeros(dim)

    def epoch(self, x, y):
        err = x @ self.w - y
        grad = x.T @ err / len(y) + self.p["l2"] * self.w
        self.v = self.p["momentum"] * self.v - self.p["lr"] * grad
        self.w += self.v
        return np.abs(err)


class Tuner:
    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.x = rng.normal(size=(2000, 24))
        self.y = self.x @ rng.normal(size=24) + rng.normal(size=2000)
        self.dice = random.Random(seed)
        self.board = []
        self.param_log = []

    def propose(self):
        return {k: self.dice.uniform(lo, hi) for k, (lo, hi) in SPACE.items()}

    def run_trial(self, t):
        params = self.propose()
        self.param_log.append(params)
        trace = TrialTracer(t, params)
        model = Ridge(params, 24, self.rng)
        with trace.tracer.start_as_current_span("trial"):
            for e in range(EPOCHS):
                with trace.tracer.start_as_current_span("epoch") as span:
                    residual = model.epoch(self.x, self.y)
                    span.set_attribute("epoch", e)
                    span.set_attribute("residuals", residual.tolist())
        loss = float(residual.mean())
        self.board = sorted(self.board + [(loss, t)])[:20]
        return loss, trace.slowest()


def main():
    tuner = Tuner()
    for t in range(TRIALS):
        t0 = time.time()
        loss, slow = tuner.run_trial(t)
        print(
            f"trial {t + 1}/{TRIALS} loss {loss:.4f} best {tuner.board[0][0]:.4f} slowest_epoch_ms {slow:.2f}",
            flush=True,
        )
        time.sleep(max(0.0, PERIOD - (time.time() - t0)))


if __name__ == "__main__":
    main()
