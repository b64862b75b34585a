"""Distributed-style policy training in one process: a pool of actor replicas is rolled over to new weights."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections import deque
from contextlib import ExitStack

import torch
from torch import nn

torch.set_num_threads(1)

CONFIG = {
    "obs_dim": 48,
    "act_dim": 6,
    "hidden": 416,
    "replicas": 6,
    "roll_per_iter": 6,
    "episodes_per_actor": 3,
    "horizon": 40,
    "iterations": 76,
    "lr": 3e-4,
    "gamma": 0.97,
    "replay_episodes": 60,
    "pace_s": 1.0,
}


def make_policy(cfg):
    return nn.Sequential(
        nn.Linear(cfg["obs_dim"], cfg["hidden"]),
        nn.Tanh(),
        nn.Linear(cfg["hidden"], cfg["hidden"]),
        nn.Tanh(),
        nn.Linear(cfg["hidden"], cfg["act_dim"]),
    )


class ReacherSim:
    """Linear dynamics with a target; the reward is minus the distance."""

    def __init__(self, cfg, seed):
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(seed)
        shared = torch.Generator().manual_seed(0)
        self.drift = 0.98 * torch.eye(cfg["obs_dim"])
        self.push = 0.2 * torch.randn(cfg["obs_dim"], cfg["act_dim"], generator=shared)
        self.goal = torch.randn(cfg["obs_dim"], generator=shared)

    def reset(self, n):
        self.state = torch.randn(n, self.cfg["obs_dim"], generator=self.gen)
        return self.state

    def step(self, action):
        noise = 0.02 * torch.randn(self.state.shape, generator=self.gen)
        self.state = self.state @ self.drift.T + action.tanh() @ self.push.T + noise
        return self.state, -(self.state - self.goal).norm(dim=1)


class ActorReplica:
    """A frozen copy of the policy with its own simulator, used as a context manager."""

    def __init__(self, cfg, weights, version, slot):
        self.cfg = cfg
        self.version = version
        self.slot = slot
        self.sim = ReacherSim(cfg, seed=1000 * version + slot)
        self.policy = make_policy(cfg)
        self.policy.load_state_dict(weights)
        self.ready = False

    def __enter__(self):
        self.policy.requires_grad_(False).eval()
        self.ready = True
        return self

    def __exit__(self, *exc):
        self.ready = False
        self.policy = None
        self.sim = None
        return False

    def rollout(self):
        obs = self.sim.reset(self.cfg["episodes_per_actor"])
        seen, acted, rewards = [], [], []
        for _ in range(self.cfg["horizon"]):
            mean = self.policy(obs)
            action = mean + 0.3 * torch.randn(mean.shape, generator=self.sim.gen)
            seen.append(obs)
            acted.append(action)
            obs, r = self.sim.step(action)
            rewards.append(r)
        return torch.stack(seen), torch.stack(acted), torch.stack(rewards)


class ActorPool(ExitStack):
    """Holds the running replicas; leaving the pool shuts all of them down."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.version = 0
        self.replicas = []

    def start(self, weights):
        self.replicas = [self._launch(weights, slot) for slot in range(self.cfg["replicas"])]

    def _launch(self, weights, slot):
        return self.enter_context(ActorReplica(self.cfg, weights, self.version, slot))

    def rolling_update(self, weights):
        self.version += 1
        first = (self.version * self.cfg["roll_per_iter"]) % self.cfg["replicas"]
        for k in range(self.cfg["roll_per_iter"]):
            slot = (first + k) % self.cfg["replicas"]
            self.replicas[slot] = self._launch(weights, slot)

    def collect(self):
        return [actor.rollout() for actor in self.replicas if actor.ready]


class Learner:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(4)
        self.policy = make_policy(cfg)
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=cfg["lr"])
        self.replay = deque(maxlen=cfg["replay_episodes"])

    def weights(self):
        return {k: v.detach().clone() for k, v in self.policy.state_dict().items()}

    def returns(self, rewards):
        out = torch.zeros_like(rewards)
        running = torch.zeros(rewards.shape[1])
        for t in reversed(range(len(rewards))):
            running = rewards[t] + self.cfg["gamma"] * running
            out[t] = running
        return out

    def learn(self, episodes):
        self.replay.extend(episodes)
        total = 0.0
        for seen, acted, rewards in episodes:
            ret = self.returns(rewards)
            adv = (ret - ret.mean()) / (ret.std() + 1e-6)
            logp = -((acted - self.policy(seen)) ** 2).sum(-1) / (2 * 0.3**2)
            loss = -(logp * adv).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += rewards.sum(0).mean().item()
        return total / len(episodes)


def main():
    cfg = CONFIG
    learner = Learner(cfg)
    with ActorPool(cfg) as pool:
        pool.start(learner.weights())
        for it in range(1, cfg["iterations"] + 1):
            began = time.time()
            score = learner.learn(pool.collect())
            pool.rolling_update(learner.weights())
            print(
                f"iteration {it}/{cfg['iterations']} return {score:.2f} "
                f"actors {len(pool.replicas)} version {pool.version}",
                flush=True,
            )
            time.sleep(max(0.0, cfg["pace_s"] - (time.time() - began)))


if __name__ == "__main__":
    main()
