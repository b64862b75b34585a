"""Meta-learning with a gradient penalty: a fresh learner is adapted for each task."""

import time
import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore")
torch.set_num_threads(1)


def make_learner(init, width=192):
    net = nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, 1))
    net.load_state_dict(init)
    return net


class SineTasks:
    def __init__(self, n_tasks=200, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.freqs = torch.rand(n_tasks, 16, generator=g) * 2
        self.names = [f"task-{i}" for i in range(n_tasks)]

    def batch(self, i, n=1100):
        x = torch.randn(n, 16)
        y = torch.sin(x * self.freqs[i % len(self.freqs)]).sum(1, keepdim=True)
        return x, y


class MetaTrainer:
    def __init__(self, penalty=0.05, lr=0.02):
        self.tasks = SineTasks()
        self.init = {
            k: v.clone()
            for k, v in nn.Sequential(nn.Linear(16, 192), nn.Tanh(), nn.Linear(192, 1)).state_dict().items()
        }
        self.penalty, self.lr = penalty, lr
        self.losses = []

    def adapt(self, i):
        learner = make_learner(self.init)
        x, y = self.tasks.batch(i)
        loss = nn.functional.mse_loss(learner(x), y)
        loss.backward(create_graph=True)
        norm = sum((p.grad**2).sum() for p in learner.parameters())
        grads = torch.autograd.grad(loss + self.penalty * norm, list(learner.parameters()))
        with torch.no_grad():
            for (name, value), g in zip(self.init.items(), grads):
                value -= self.lr * g.clamp(-1, 1)
        return loss.item(), norm.item()

    def train(self, epochs=68, per_epoch=6):
        due = time.time()
        for epoch in range(epochs):
            for k in range(per_epoch):
                loss, norm = self.adapt(epoch * per_epoch + k)
                self.losses.append(loss)
                due += 2.0 / per_epoch
                time.sleep(max(0.0, due - time.time()))
            print(f"epoch {epoch} loss {loss:.4f} grad_norm {norm:.4f}", flush=True)


if __name__ == "__main__":
    MetaTrainer().train()
