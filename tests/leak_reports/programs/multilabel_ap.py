"""Multi-label tagging: MLP trained with BCE, ranking quality tracked with torchmetrics."""

import time

import torch
from torch import nn
from torchmetrics import Accuracy, AveragePrecision, Precision
from torchmetrics.functional import average_precision

torch.set_num_threads(1)
N_LABELS, N_FEATURES, BATCH = 16, 64, 2048


class TagModel(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(N_FEATURES, width), nn.ReLU(), nn.Linear(width, N_LABELS))

    def forward(self, x):
        return self.body(x)


class TagDataset:
    """Fixed pool of feature vectors; labels are a noisy linear function of them."""

    def __init__(self, size=40000, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.features = torch.randn(size, N_FEATURES, generator=g)
        self.weights = torch.randn(N_FEATURES, N_LABELS, generator=g)
        self.class_names = [f"tag_{i:02d}" for i in range(N_LABELS)]

    def sample(self, n):
        idx = torch.randint(0, len(self.features), (n,))
        x = self.features[idx]
        y = (x @ self.weights + torch.randn(n, N_LABELS) * 4 > 0).long()
        return x, y


class Monitor:
    def __init__(self):
        kw = dict(task="multilabel", num_labels=N_LABELS)
        self.accuracy = Accuracy(**kw)
        self.precision = Precision(**kw)
        self.avg_precision = AveragePrecision(**kw)
        self.curve = []

    def quick_ap(self, probs, target):
        return average_precision(probs, target, task="multilabel", num_labels=N_LABELS)

    def update(self, probs, target):
        values = {}
        values["acc"] = self.accuracy(probs, target)
        values["prec"] = self.precision(probs, target)
        self.avg_precision.update(probs, target)
        return {k: float(v) for k, v in values.items()}


class TagTrainer:
    def __init__(self):
        self.dataset = TagDataset()
        self.model = TagModel()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.criterion = nn.BCEWithLogitsLoss()
        self.monitor = Monitor()
        self.last_ap = 0.0

    def train_step(self, step=0):
        x, y = self.dataset.sample(BATCH)
        logits = self.model(x)
        loss = self.criterion(logits, y.float())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        values = self.monitor.update(logits.detach().sigmoid(), y)
        if step % 8 == 0:
            self.last_ap = float(self.monitor.quick_ap(logits.detach().sigmoid(), y))
        return loss.item(), values

    def fit(self, epochs=34, steps=32):
        due = time.time()
        for epoch in range(epochs):
            for step in range(steps):
                loss, values = self.train_step(step)
                due += 0.125
                time.sleep(max(0.0, due - time.time()))
            self.monitor.curve.append(loss)
            print(
                f"epoch {epoch} loss {loss:.4f} acc {values['acc']:.3f} "
                f"prec {values['prec']:.3f} ap {self.last_ap:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    TagTrainer().fit()
