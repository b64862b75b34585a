"""Linear model trained by a worker whose log lines are forwarded to a collector."""

import json
import logging
import queue
import threading
import time
from contextlib import contextmanager
from io import StringIO

import numpy as np

logger = logging.getLogger("worker")
logger.setLevel(logging.DEBUG)
logger.propagate = False


class LogSender:
    """Takes messages from a bounded queue and posts their size to the collector."""

    def __init__(self):
        self.queue = queue.Queue(maxsize=100)
        self.sent = 0
        self.thread = threading.Thread(target=self.consume, daemon=True)
        self.thread.start()

    def publish(self, message):
        try:
            self.queue.put_nowait(message)
        except queue.Full:
            pass

    def consume(self):
        while True:
            self.sent += len(self.queue.get())


class ForwardingHandler(logging.StreamHandler):
    def __init__(self, sender, stream):
        super().__init__(stream)
        self.sender = sender

    def emit(self, record):
        super().emit(record)
        self.sender.publish(self.format(record))


@contextmanager
def capture_logs(sender):
    stream = StringIO()
    handler = ForwardingHandler(sender, stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        stream.close()


class Worker:
    def __init__(self, dim=1500, seed=0):
        self.rng = np.random.default_rng(seed)
        self.truth = self.rng.normal(size=dim)
        self.w = np.zeros(dim)
        self.losses = []
        self.tasks = [{"id": i, "lr": 0.1 / (1 + i % 5), "batch": 64} for i in range(200)]

    def step(self, task):
        x = self.rng.normal(size=(task["batch"], len(self.w)))
        err = x @ (self.w - self.truth)
        grad = x.T @ err / len(x) / 40
        self.w -= task["lr"] * grad
        loss = float((err**2).mean())
        self.losses.append(loss)
        logger.debug("task %d grads %s", task["id"], json.dumps(grad.round(10).tolist()))
        logger.debug("task %d weights %s", task["id"], json.dumps(self.w.round(12).tolist()))
        return loss


def main():
    sender = LogSender()
    worker = Worker()
    due = time.time()
    with capture_logs(sender):
        for epoch in range(68):
            for i in range(130):
                loss = worker.step(worker.tasks[(epoch * 130 + i) % len(worker.tasks)])
                due += 2.0 / 130
                time.sleep(max(0.0, due - time.time()))
            print(f"epoch {epoch} loss {loss:.4f} forwarded {sender.sent} chars", flush=True)


if __name__ == "__main__":
    main()
