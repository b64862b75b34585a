"""Classifier of weld defects; hard batches go to an error reporter with their context."""

import logging
import time
from collections import deque

import numpy as np

FEATURES = 512
CLASSES = 8
BATCH = 32
BATCHES_PER_EPOCH = 300
EPOCHS = 80
EPOCH_SECONDS = 1.6

log = logging.getLogger("defects")


class ReportHandler(logging.Handler):
    """Sends a report for each warning, with the messages that came before it."""

    context_size = 10

    def __init__(self, sent):
        super().__init__(level=logging.INFO)
        self.recent = []
        self.sent = sent

    def _context(self, record):
        record.history = list(self.recent[-self.context_size :])
        return [(r.levelname, r.getMessage()) for r in record.history]

    def emit(self, record):
        context = self._context(record)
        if record.levelno >= logging.WARNING:
            self.sent.append(
                {"message": record.getMessage(), "context": context, "norm": float(np.linalg.norm(record.inputs))}
            )
        self.recent = record.history + [record]
        self.recent = self.recent[-self.context_size :]


class SoftmaxRegression:
    def __init__(self, rng):
        self.weights = 0.01 * rng.standard_normal((FEATURES, CLASSES)).astype(np.float32)

    def probabilities(self, inputs):
        logits = inputs @ self.weights
        logits -= logits.max(axis=1, keepdims=True)
        exp = np.exp(logits)
        return exp / exp.sum(axis=1, keepdims=True)

    def fit_batch(self, inputs, targets, rate=0.02):
        probs = self.probabilities(inputs)
        loss = -np.log(probs[np.arange(len(targets)), targets] + 1e-9).mean()
        probs[np.arange(len(targets)), targets] -= 1.0
        self.weights -= rate * inputs.T @ probs / len(targets)
        return float(loss)


def validate(model, inputs, targets, passes=160):
    """Accuracy under input noise: dropped features, averaged over a few passes."""
    hits = 0.0
    for number in range(passes):
        kept = inputs[:, number % 4 :]
        hits += float((np.argmax(kept @ model.weights[number % 4 :], axis=1) == targets).mean())
    return hits / passes


def draw_batch(rng, truth, size=BATCH):
    inputs = rng.standard_normal((size, FEATURES), dtype=np.float32)
    noise = rng.gumbel(size=(size, CLASSES))
    return inputs, np.argmax(inputs @ truth + noise, axis=1)


def main():
    rng = np.random.default_rng(11)
    truth = rng.standard_normal((FEATURES, CLASSES)).astype(np.float32) * 0.1
    model = SoftmaxRegression(rng)
    sent = deque(maxlen=50)
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(ReportHandler(sent))
    class_counts = {label: 0 for label in range(CLASSES)}
    losses = deque(maxlen=200)
    reports = 0
    val_inputs, val_targets = draw_batch(rng, truth, size=4000)
    for epoch in range(1, EPOCHS + 1):
        begin = time.perf_counter()
        for step in range(BATCHES_PER_EPOCH):
            inputs, targets = draw_batch(rng, truth)
            loss = model.fit_batch(inputs, targets)
            for label in targets:
                class_counts[int(label)] += 1
            if len(losses) > 20 and loss > 1.12 * np.mean(losses):
                log.warning("hard batch %d of epoch %d, loss %.3f", step, epoch, loss, extra={"inputs": inputs})
                reports += 1
            losses.append(loss)
        log.info("epoch %d done", epoch)
        print(
            f"[{epoch:3d}/{EPOCHS}] loss={np.mean(losses):.4f} "
            f"val={validate(model, val_inputs, val_targets):.3f} reports={reports} "
            f"seen={sum(class_counts.values())}",
            flush=True,
        )
        time.sleep(max(0.0, EPOCH_SECONDS - (time.perf_counter() - begin)))


if __name__ == "__main__":
    main()
