"""Fault-injection campaign: how much does a small net lose when activations are disturbed?"""

import time
from collections import deque

import torch
from torch import nn

torch.set_num_threads(1)

EXPERIMENTS = 60
EXPERIMENT_SECONDS = 2.1


class SmallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.fc1 = nn.Linear(16 * 8 * 8, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.conv2(x))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class FaultPlan:
    """Which cells of which layer are disturbed, for each of a number of draws."""

    def __init__(self, shapes, rate, draws, gen):
        self.rate = rate
        self.enabled = True
        self.draw = 0
        self.masks = {}
        for name, shape in shapes.items():
            noise = torch.rand((draws, *shape), generator=gen)
            self.masks[name] = (noise < rate).float() * 4.0


class FaultInjector:
    """Wraps a network for one experiment."""

    def __init__(self, net, plan):
        self.net = net
        self.plan = plan
        for name, module in net.named_children():
            if name in plan.masks:
                self._attach(name, module)

    def _attach(self, name, module):
        plan = self.plan

        def disturb(mod, args, output):
            if not plan.enabled:
                return None
            return output + plan.masks[name][plan.draw]

        module.register_forward_hook(disturb)

    def evaluate(self, x, y, draws):
        accuracies = []
        with torch.no_grad():
            for d in range(draws):
                self.plan.draw = d
                accuracies.append(float((self.net(x).argmax(1) == y).float().mean()))
        self.plan.enabled = False
        return sum(accuracies) / draws


class Results:
    def __init__(self):
        self.rows = []
        self.recent_inputs = deque(maxlen=3)

    def add(self, rate, acc):
        self.rows.append({"rate": rate, "accuracy": acc})
        return sum(r["accuracy"] for r in self.rows) / len(self.rows)


def make_digits(n, gen):
    y = torch.randint(0, 10, (n,), generator=gen)
    x = 0.3 * torch.randn(n, 1, 16, 16, generator=gen)
    for i in range(n):
        k = int(y[i])
        x[i, 0, k : k + 4, 3:13] += 1.0
    return x, y


def main():
    gen = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    data, labels = make_digits(2000, gen)
    net = SmallNet()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for step in range(120):
        idx = torch.randint(0, 2000, (64,), generator=gen)
        loss = nn.functional.cross_entropy(net(data[idx]), labels[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"pretrain loss {loss.item():.4f}", flush=True)

    shapes = {"conv1": (8, 16, 16), "conv2": (16, 8, 8), "fc1": (64,)}
    results = Results()
    draws = 120
    for k in range(1, EXPERIMENTS + 1):
        t0 = time.time()
        rate = 0.01 * (1 + k % 10)
        injector = FaultInjector(net, FaultPlan(shapes, rate, draws, gen))
        pick = torch.randint(0, 2000, (48,), generator=gen)
        results.recent_inputs.append(data[pick])
        acc = injector.evaluate(data[pick], labels[pick], draws)
        mean = results.add(rate, acc)
        del injector
        print(f"experiment {k}/{EXPERIMENTS} rate {rate:.2f} accuracy {acc:.3f} mean {mean:.3f}", flush=True)
        time.sleep(max(0.1, EXPERIMENT_SECONDS - (time.time() - t0)))


if __name__ == "__main__":
    main()
