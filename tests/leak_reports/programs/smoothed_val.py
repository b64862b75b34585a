"""Autoencoder with a smoothed validation loss for early stopping."""

import time

import torch
from torch import nn

torch.set_num_threads(1)


class Autoencoder(nn.Module):
    def __init__(self, dim=512, code=48):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, 384), nn.Tanh(), nn.Linear(384, code))
        self.decoder = nn.Sequential(nn.Linear(code, 384), nn.Tanh(), nn.Linear(384, dim))

    def forward(self, x):
        return self.decoder(self.encoder(x))


class SignalSource:
    def __init__(self, dim=512, rank=20, seed=1):
        torch.manual_seed(seed)
        self.basis = torch.randn(rank, dim) / rank**0.5
        self.train_set = [self.draw() for _ in range(16)]

    def draw(self, n=136):
        return torch.randn(n, len(self.basis)) @ self.basis + 0.05 * torch.randn(n, self.basis.shape[1])


class EarlyStopping:
    """Exponentially smoothed validation loss with patience."""

    def __init__(self, beta=0.98, patience=10**6):
        self.beta, self.patience = beta, patience
        self.smoothed = 0.0
        self.best, self.bad = float("inf"), 0
        self.record = []

    def update(self, loss):
        self.smoothed = self.beta * self.smoothed + (1 - self.beta) * loss
        value = self.smoothed.item()
        self.record.append(value)
        if value < self.best:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad > self.patience


class Fitter:
    def __init__(self):
        self.source = SignalSource()
        self.model = Autoencoder()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.stopper = EarlyStopping()
        self.train_losses = []

    def train_step(self, i):
        x = self.source.train_set[i % 16]
        loss = nn.functional.mse_loss(self.model(x), x)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.train_losses.append(loss.item())

    def validate(self):
        self.model.eval()
        x = self.source.draw()
        loss = nn.functional.mse_loss(self.model(x), x)
        self.model.train()
        return self.stopper.update(loss)

    def fit(self, epochs=68, per_epoch=4):
        for epoch in range(epochs):
            for i in range(per_epoch):
                self.train_step(epoch * per_epoch + i)
                time.sleep(0.22)
                if self.validate():
                    return
                time.sleep(0.22)
            print(f"epoch {epoch} train {self.train_losses[-1]:.4f} val {self.stopper.record[-1]:.4f}", flush=True)


if __name__ == "__main__":
    Fitter().fit()
