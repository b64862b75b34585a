import os

os.environ["OMP_NUM_THREADS"] = "1"
import time
from collections import defaultdict, deque

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

NUM_ENVS = 48
OBS_DIM = 40
HIDDEN = 192
ACTIONS = 6
HORIZON = 32
UPDATES = 34
STEP_PAUSE = 0.085


class GridWorldBatch:
    def __init__(self, n, seed=0):
        self.rng = np.random.default_rng(seed)
        self.pos = self.rng.normal(size=(n, OBS_DIM)).astype(np.float32)
        self.age = np.zeros(n, dtype=np.int64)

    def observe(self):
        return torch.from_numpy(np.tanh(self.pos))

    def step(self, actions):
        self.pos[np.arange(len(actions)), actions] += 0.3
        self.pos *= 0.97
        self.age += 1
        reward = -np.abs(self.pos[:, :ACTIONS] - 0.5).mean(1)
        done = self.age > 60
        self.pos[done] = self.rng.normal(size=(int(done.sum()), OBS_DIM))
        self.age[done] = 0
        return reward.astype(np.float32), done.astype(np.float32)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(OBS_DIM, 64)
        self.cell = nn.LSTMCell(64, HIDDEN)
        self.actor = nn.Linear(HIDDEN, ACTIONS)
        self.critic = nn.Linear(HIDDEN, 1)

    def forward(self, obs, state):
        z = torch.relu(self.encoder(obs))
        h, c = self.cell(z, state)
        return torch.distributions.Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1), (h, c)


class Experience:
    def __init__(self, horizon, n):
        self.obs = torch.zeros(horizon, n, OBS_DIM)
        self.actions = torch.zeros(horizon, n, dtype=torch.long)
        self.logprobs = torch.zeros(horizon, n)
        self.rewards = torch.zeros(horizon, n)
        self.dones = torch.zeros(horizon, n)
        self.values = torch.zeros(horizon, n)
        self.lstm_h = torch.zeros(n, HIDDEN)
        self.lstm_c = torch.zeros(n, HIDDEN)

    def get_state(self, env_slice):
        return self.lstm_h[env_slice], self.lstm_c[env_slice]

    def store(self, t, obs, actions, logprob, value, state, env_slice):
        self.obs[t] = obs
        self.actions[t] = actions
        self.logprobs[t] = logprob.detach()
        self.values[t] = value.detach()
        self.lstm_h[env_slice] = state[0]
        self.lstm_c[env_slice] = state[1]


class Trainer:
    def __init__(self):
        self.envs = GridWorldBatch(NUM_ENVS)
        self.policy = Policy()
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=3e-4)
        self.exp = Experience(HORIZON, NUM_ENVS)
        self.stats = defaultdict(lambda: deque(maxlen=200))

    def rollout(self):
        for t in range(HORIZON):
            obs = self.envs.observe()
            dist, value, state = self.policy(obs, self.exp.get_state(slice(None)))
            action = dist.sample()
            self.exp.store(t, obs, action, dist.log_prob(action), value, state, slice(None))
            r, d = self.envs.step(action.numpy())
            self.exp.rewards[t] = torch.from_numpy(r)
            self.exp.dones[t] = torch.from_numpy(d)
            self.stats["reward"].append(float(r.mean()))
            time.sleep(STEP_PAUSE)

    def update(self):
        adv = torch.zeros(HORIZON, NUM_ENVS)
        last = torch.zeros(NUM_ENVS)
        for t in reversed(range(HORIZON)):
            nxt = self.exp.values[t + 1] if t + 1 < HORIZON else torch.zeros(NUM_ENVS)
            delta = self.exp.rewards[t] + 0.99 * nxt * (1 - self.exp.dones[t]) - self.exp.values[t]
            last = delta + 0.95 * 0.99 * (1 - self.exp.dones[t]) * last
            adv[t] = last
        h = torch.zeros(NUM_ENVS, HIDDEN), torch.zeros(NUM_ENVS, HIDDEN)
        losses = []
        for t in range(HORIZON):
            dist, v, h = self.policy(self.exp.obs[t], h)
            ratio = (dist.log_prob(self.exp.actions[t]) - self.exp.logprobs[t]).exp()
            pg = -torch.min(ratio * adv[t], ratio.clamp(0.8, 1.2) * adv[t]).mean()
            losses.append(pg + 0.5 * (v - (adv[t] + self.exp.values[t])).pow(2).mean() - 0.01 * dist.entropy().mean())
        loss = torch.stack(losses).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.stats["loss"].append(loss.item())


def main():
    torch.manual_seed(3)
    trainer = Trainer()
    for u in range(UPDATES):
        trainer.rollout()
        trainer.update()
        print(
            f"steps={(u + 1) * HORIZON * NUM_ENVS} reward={np.mean(trainer.stats['reward']):.4f} "
            f"loss={trainer.stats['loss'][-1]:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
