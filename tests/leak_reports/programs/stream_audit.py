"""Online training on a simulated click stream, with a sampled audit of the incoming features."""

import itertools
import time

import numpy as np
from scipy import stats


def click_stream(rng, batch_size=384, features=360):
    """Endless batches whose distribution drifts slowly."""
    weights = rng.standard_normal(features) / np.sqrt(features)
    for step in itertools.count():
        shift = 0.3 * np.sin(step / 60)
        x = (rng.standard_normal((batch_size, features)) + shift).astype(np.float32)
        y = (x @ weights + 0.2 * rng.standard_normal(batch_size) > 0).astype(np.float32)
        yield x, y


class Pipeline:
    """Feeds the learner and the auditor from the same source."""

    def __init__(self, source):
        self.train_branch, self.audit_branch = itertools.tee(source)

    def training_batches(self, count):
        return itertools.islice(self.train_branch, count)

    def audit_batch(self):
        x, y = next(self.audit_branch)
        return x[:64], float(y.mean())


class LogisticLearner:
    def __init__(self, features, rate=0.05, decay=1e-4):
        self.weights = np.zeros(features, dtype=np.float32)
        self.rate, self.decay = rate, decay

    def step(self, x, y):
        p = 1 / (1 + np.exp(-(x @ self.weights)))
        self.weights -= self.rate * (x.T @ (p - y) / len(y) + self.decay * self.weights)
        return float(-np.mean(y * np.log(p + 1e-7) + (1 - y) * np.log(1 - p + 1e-7)))


class Auditor:
    def __init__(self, reference):
        self.reference = reference.ravel()[:4000]

    def check(self, sample):
        return stats.ks_2samp(self.reference, sample.ravel()[:4000]).statistic


def main(rounds=52, steps=20):
    rng = np.random.default_rng(17)
    pipeline = Pipeline(click_stream(rng))
    learner = LogisticLearner(features=360)
    auditor = Auditor(pipeline.audit_batch()[0])
    for number in range(1, rounds + 1):
        losses = []
        for x, y in pipeline.training_batches(steps):
            losses.append(learner.step(x, y))
            time.sleep(0.11)
        sample, rate = pipeline.audit_batch()
        print(
            f"round {number:3d}/{rounds}  loss {np.mean(losses):.4f}  "
            f"click rate {rate:.3f}  drift {auditor.check(sample):.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
