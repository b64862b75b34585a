"""Training worker that forwards its log lines to a (pretend) collector."""

import json
import logging
import queue
import threading
import time
from collections import deque
from io import StringIO

import torch
from torch import nn

torch.set_num_threads(1)

EPOCHS = 58
EPOCH_SECONDS = 2.2
STEPS = 60


class LineSender:
    """Background thread that ships lines; the queue is bounded and drained."""

    def __init__(self):
        self.outbox = queue.Queue(maxsize=2000)
        self.tail = deque(maxlen=100)
        self.shipped = 0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def put(self, line):
        try:
            self.outbox.put_nowait(line)
        except queue.Full:
            pass

    def _run(self):
        while True:
            line = self.outbox.get()
            self.shipped += len(line)
            self.tail.append(line[:80])


class ForwardingHandler(logging.StreamHandler):
    def __init__(self, sender, stream):
        super().__init__(stream)
        self.sender = sender

    def emit(self, record):
        super().emit(record)
        self.sender.put(self.format(record))


class Trainer:
    def __init__(self, log):
        self.log = log
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(48, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 1))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        self.data = torch.randn(6000, 48)
        self.labels = torch.sin(self.data[:, :1] * 2) + 0.1 * self.data[:, 1:2]
        self.losses = []

    def gradient_report(self):
        out = {}
        for name, p in self.model.named_parameters():
            hist = torch.histc(p.grad, bins=96)
            out[name] = [round(float(v), 3) for v in hist / hist.sum()]
        return out

    def epoch(self, k):
        total = 0.0
        for step in range(STEPS):
            idx = torch.randint(0, len(self.data), (64,))
            loss = nn.functional.mse_loss(self.model(self.data[idx]), self.labels[idx])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
            self.log.info(
                "%s",
                json.dumps(
                    {
                        "epoch": k,
                        "step": step,
                        "loss": loss.item(),
                        "grad": self.gradient_report(),
                        "sample": idx.tolist(),
                        "inputs": self.data[idx[:24]].flatten().tolist(),
                    }
                ),
            )
        self.losses.append(total / STEPS)
        return self.losses[-1]


def main():
    log = logging.getLogger("worker")
    log.setLevel(logging.INFO)
    log.propagate = False
    sender = LineSender()
    handler = ForwardingHandler(sender, StringIO())
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    log.addHandler(handler)
    trainer = Trainer(log)
    for k in range(1, EPOCHS + 1):
        t0 = time.time()
        loss = trainer.epoch(k)
        print(f"epoch {k}/{EPOCHS} loss {loss:.4f} shipped {sender.shipped}", flush=True)
        time.sleep(max(0.1, EPOCH_SECONDS - (time.time() - t0)))


if __name__ == "__main__":
    main()
