"""A training loop that appends its losses, with the graph that they came from."""

import time

import torch


class Trainer:
    def __init__(self):
        self.model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3)
        self.losses = []

    def epoch(self, number):
        for _ in range(20):
            loss = self.model(torch.randn(256, 512)).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward(retain_graph=True)
            self.optimizer.step()
            self.losses.append(self.model(torch.randn(256, 512)).mean())
            time.sleep(0.5)
        print(f"Epoch {number}/6: loss {loss.item():.4f}", flush=True)


trainer = Trainer()
for number in range(1, 7):
    trainer.epoch(number)
