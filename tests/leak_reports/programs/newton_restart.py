import os

os.environ["OMP_NUM_THREADS"] = "1"
import time
import warnings

import torch
from torch import nn

torch.set_num_threads(1)
warnings.filterwarnings("ignore", category=UserWarning)

RESTARTS = 78
NEWTON_STEPS = 4
CG_ITERS = 4
DAMPING = 1e-1
BATCH = 768
WIDTH = 160
PAUSE = 0.2


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 12, generator=g)
    y = torch.sin(x[:, :1] * 2) + 0.3 * x[:, 1:2] * x[:, 2:3]
    return x, y


class Regressor(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(12, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, x):
        return self.net(x)


class NewtonCG:
    """Truncated Newton with a conjugate gradient inner solve."""

    def __init__(self, model, damping=DAMPING):
        self.model = model
        self.params = [p for p in model.parameters()]
        self.damping = damping
        self.trace = []

    def _flat(self, tensors):
        return torch.cat([t.reshape(-1) for t in tensors])

    def step(self, x, y):
        self.model.zero_grad()
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward(create_graph=True)
        grad = self._flat([p.grad for p in self.params])

        def hessp(v):
            hv = torch.autograd.grad(grad, self.params, grad_outputs=v, retain_graph=True)
            return self._flat(hv) + self.damping * v

        direction = self._solve(hessp, -grad.detach())
        self._apply(direction)
        self.trace.append(loss.item())
        return loss.item()

    def _solve(self, hessp, b):
        x = torch.zeros_like(b)
        r = b.clone()
        p = r.clone()
        rs = r.dot(r)
        for _ in range(CG_ITERS):
            hp = hessp(p)
            curv = p.dot(hp)
            if curv <= 0:
                break
            a = rs / curv
            x += a * p
            r -= a * hp
            new = r.dot(r)
            p = r + (new / rs) * p
            rs = new
        return x if x.abs().sum() > 0 else b

    @torch.no_grad()
    def _apply(self, direction, lr=0.5):
        i = 0
        for p in self.params:
            n = p.numel()
            p += lr * direction[i : i + n].view_as(p)
            i += n


class Leaderboard:
    def __init__(self, keep=5):
        self.keep = keep
        self.entries = []

    def submit(self, score, state):
        self.entries.append((score, {k: v.detach().clone() for k, v in state.items()}))
        self.entries.sort(key=lambda e: e[0])
        del self.entries[self.keep :]


def run_restart(seed, train, valid):
    torch.manual_seed(seed)
    model = Regressor(WIDTH)
    solver = NewtonCG(model)
    x, y = train
    for k in range(NEWTON_STEPS):
        idx = torch.randint(0, x.shape[0], (BATCH,))
        solver.step(x[idx], y[idx])
        time.sleep(PAUSE)
    with torch.no_grad():
        score = nn.functional.mse_loss(model(valid[0]), valid[1]).item()
    return score, model.state_dict(), solver.trace


def main():
    train, valid = make_data(6000, 1), make_data(800, 2)
    board = Leaderboard()
    scores = []
    for r in range(RESTARTS):
        score, state, trace = run_restart(r, train, valid)
        board.submit(score, state)
        scores.append(score)
        print(f"restart {r:3d}  {trace[0]:.4f} to {trace[-1]:.4f}  valid {score:.4f}  best {board.entries[0][0]:.4f}")
        time.sleep(0.4)
    print("median valid", sorted(scores)[len(scores) // 2])


if __name__ == "__main__":
    main()
