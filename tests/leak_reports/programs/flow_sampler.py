import torch
from torch import nn

torch.set_num_threads(1)


class Sampler(nn.Module):
    def __init__(self, dim=32, hidden=256):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, dim)
        )
        self.log_z = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.net(x)


class Agent:
    def __init__(self, lr=3e-4, alpha=0.05):
        self.model = Sampler()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.alpha = alpha
        self.terminal_ema = torch.zeros(())
        self.flow_ema = torch.zeros(())

    def losses(self, x, reward):
        out = self.model(x)
        logp = torch.log_softmax(out, dim=-1)
        flow = ((logp * x).sum(-1) + self.model.log_z - reward).pow(2).mean()
        terminal = (logp.amax(-1) - reward).pow(2).mean()
        return flow, terminal

    def step(self, x, reward, track):
        flow, terminal = self.losses(x, reward)
        loss = flow + 0.5 * terminal
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        if track:
            self.flow_ema = self.alpha * flow + (1 - self.alpha) * self.flow_ema
            self.terminal_ema = self.alpha * terminal + (1 - self.alpha) * self.terminal_ema
        return loss.item()


def reward_fn(x):
    return -(x**2).mean(-1) + 0.3 * torch.sin(3 * x).mean(-1)


def main(iterations=13000):
    torch.manual_seed(2)
    agent = Agent()
    for it in range(1, iterations + 1):
        x = torch.randn(384, 32)
        loss = agent.step(x, reward_fn(x), track=it % 10 == 0)
        if it % 200 == 0:
            print(f"iter {it}/{iterations} loss {loss:.4f} flow {float(agent.flow_ema.detach()):.4f}", flush=True)


if __name__ == "__main__":
    main()
