"""Self-play for a two-sided pursuit game: the learner meets ghosts, frozen copies of earlier weights."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import copy
import random
import time
from collections import deque

import torch
from torch import nn

torch.set_num_threads(1)

CONFIG = {
    "obs_dim": 40,
    "actions": 9,
    "hidden": 960,
    "window": 24,
    "save_every": 1,
    "current_self_ratio": 0.5,
    "games": 48,
    "horizon": 18,
    "iterations": 78,
    "lr": 5e-4,
    "gamma": 0.95,
    "elo_k": 16.0,
    "pace_s": 1.0,
}


class PursuitNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(cfg["obs_dim"], cfg["hidden"]),
            nn.ReLU(),
            nn.Linear(cfg["hidden"], cfg["hidden"]),
            nn.ReLU(),
        )
        self.policy = nn.Linear(cfg["hidden"], cfg["actions"])

    def forward(self, obs):
        return torch.distributions.Categorical(logits=self.policy(self.body(obs)))


class PursuitGame:
    """Both sides push a common state; the learner wants its mean up, the ghost down."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(12)
        self.effect = 0.3 * torch.randn(cfg["actions"], cfg["obs_dim"], generator=self.gen)
        self.arena = torch.randn(1200, cfg["obs_dim"] * 20, generator=self.gen)

    def reset(self):
        rows = torch.randint(0, len(self.arena), (self.cfg["games"],), generator=self.gen)
        self.state = self.arena[rows, : self.cfg["obs_dim"]].clone()
        return self.state

    def step(self, ours, theirs):
        push = self.effect[ours] - self.effect[theirs]
        self.state = 0.9 * self.state + push
        return self.state, self.state.mean(dim=1)


class GhostLeague:
    """Holds the snapshots that the learner plays against and their ratings."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.snapshots = deque(maxlen=cfg["window"])
        self.ratings = deque(maxlen=cfg["window"])
        self.learner_elo = 1200.0

    def save(self, net):
        if len(self.snapshots) == self.cfg["window"]:
            ghost = self.snapshots.popleft()
            ghost.load_state_dict(net.state_dict())
        else:
            ghost = copy.deepcopy(net).eval().requires_grad_(False)
        self.snapshots.append(ghost)
        self.ratings.append(self.learner_elo)

    def opponent(self, net):
        if not self.snapshots or random.random() < self.cfg["current_self_ratio"]:
            return None, net
        k = random.randrange(len(self.snapshots))
        return k, self.snapshots[k]

    def report(self, k, share_won):
        if k is None:
            return
        expected = 1.0 / (1.0 + 10 ** ((self.ratings[k] - self.learner_elo) / 400.0))
        change = self.cfg["elo_k"] * (share_won - expected)
        self.learner_elo += change
        self.ratings[k] -= change


class Learner:
    def __init__(self, cfg):
        torch.manual_seed(9)
        random.seed(9)
        self.cfg = cfg
        self.net = PursuitNet(cfg)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg["lr"])
        self.game = PursuitGame(cfg)
        self.league = GhostLeague(cfg)

    def play(self, opponent):
        obs = self.game.reset()
        seen, taken, gains = [], [], []
        with torch.no_grad():
            for _ in range(self.cfg["horizon"]):
                ours = self.net(obs).sample()
                theirs = opponent(-obs).sample()
                seen.append(obs)
                taken.append(ours)
                obs, gain = self.game.step(ours, theirs)
                gains.append(gain)
        return torch.stack(seen), torch.stack(taken), torch.stack(gains)

    def iteration(self, number):
        k, opponent = self.league.opponent(self.net)
        seen, taken, gains = self.play(opponent)
        self.league.report(k, (gains[-1] > 0).float().mean().item())
        ret, run = torch.zeros_like(gains), torch.zeros(gains.shape[1])
        for t in reversed(range(len(gains))):
            run = gains[t] + self.cfg["gamma"] * run
            ret[t] = run
        adv = (ret - ret.mean()) / (ret.std() + 1e-6)
        loss = -(self.net(seen).log_prob(taken) * adv).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        if number % self.cfg["save_every"] == 0:
            self.league.save(self.net)
        return loss.item()


def main():
    cfg = CONFIG
    learner = Learner(cfg)
    for it in range(1, cfg["iterations"] + 1):
        began = time.time()
        loss = learner.iteration(it)
        print(
            f"iteration {it}/{cfg['iterations']} loss {loss:.4f} elo {learner.league.learner_elo:.0f} "
            f"ghosts {len(learner.league.snapshots)}",
            flush=True,
        )
        time.sleep(max(0.0, cfg["pace_s"] - (time.time() - began)))


if __name__ == "__main__":
    main()
