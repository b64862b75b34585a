"""REINFORCE on a small pixel world with TorchRL; the worker envs record videos of their runs."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RL_LOGGING_LEVEL", "ERROR")

import time
from collections import deque

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.data import Bounded, Categorical, Composite, LazyTensorStorage, ReplayBuffer, Unbounded
from torchrl.envs import EnvBase, SerialEnv, TransformedEnv
from torchrl.record import VideoRecorder

torch.set_num_threads(1)

CONFIG = {
    "workers": 3,
    "frame": 88,
    "cells": 11,
    "rollout_steps": 80,
    "iterations": 64,
    "video_every": 8,
    "hidden": 96,
    "lr": 2e-3,
    "gamma": 0.95,
    "buffer": 4096,
    "pace_s": 1.1,
}


class VideoSink:
    """Keeps the newest clip of every tag, scaled down for the report page."""

    def __init__(self):
        self.clips = {}

    def log_video(self, name, video, step=None, **kwargs):
        self.clips[name] = video[:, ::8, :, ::2, ::2].clone()


class ForagerEnv(EnvBase):
    """An agent on a torus looks for berries; the observation is its place, the frame is for people."""

    def __init__(self, cfg, seed):
        super().__init__(batch_size=[])
        self.n, self.px = cfg["cells"], cfg["frame"]
        self.tile = self.px // self.n
        self.observation_spec = Composite(
            place=Unbounded((4,)),
            pixels=Bounded(0, 255, (self.px, self.px, 3), dtype=torch.uint8),
        )
        self.action_spec = Categorical(4)
        self.reward_spec = Unbounded((1,))
        self.moves = torch.tensor([[1, 0], [-1, 0], [0, 1], [0, -1]])
        self.ground = torch.randint(60, 110, (self.px, self.px, 3), dtype=torch.uint8)
        self._set_seed(seed)

    def _set_seed(self, seed):
        self.gen = torch.Generator().manual_seed(int(seed or 0))

    def _paint(self, cell, colour, frame):
        y, x = (cell * self.tile).tolist()
        frame[y : y + self.tile, x : x + self.tile] = torch.tensor(colour, dtype=torch.uint8)

    def _view(self):
        frame = self.ground.clone()
        self._paint(self.berry, (200, 30, 40), frame)
        self._paint(self.agent, (240, 240, 90), frame)
        place = torch.cat([self.agent, self.berry]).float() / self.n
        return {"place": place, "pixels": frame}

    def _reset(self, tensordict=None):
        self.agent = torch.randint(0, self.n, (2,), generator=self.gen)
        self.berry = torch.randint(0, self.n, (2,), generator=self.gen)
        return TensorDict({**self._view(), "done": torch.zeros(1, dtype=torch.bool)}, [])

    def _step(self, tensordict):
        self.agent = (self.agent + self.moves[tensordict["action"]]) % self.n
        found = bool((self.agent == self.berry).all())
        if found:
            self.berry = torch.randint(0, self.n, (2,), generator=self.gen)
        reward = torch.tensor([1.0 if found else -0.02])
        return TensorDict({**self._view(), "reward": reward, "done": torch.zeros(1, dtype=torch.bool)}, [])


class Agent(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, cfg["hidden"]), nn.Tanh(), nn.Linear(cfg["hidden"], 4))

    def forward(self, place):
        return self.net(place)

    def act(self, place):
        return torch.distributions.Categorical(logits=self.net(place)).sample()


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(1)
        self.sink = VideoSink()
        self.env = TransformedEnv(SerialEnv(cfg["workers"], [self._maker(w) for w in range(cfg["workers"])]))
        self.agent = Agent(cfg)
        self.actor = TensorDictModule(self.agent.act, in_keys=["place"], out_keys=["action"])
        self.opt = torch.optim.Adam(self.agent.parameters(), lr=cfg["lr"])
        self.buffer = ReplayBuffer(storage=LazyTensorStorage(cfg["buffer"]), batch_size=128)
        self.returns = deque(maxlen=40)

    def _maker(self, worker):
        def make():
            base = ForagerEnv(self.cfg, seed=worker)
            return TransformedEnv(base, VideoRecorder(self.sink, tag=f"worker_{worker}", skip=2))

        return make

    def iteration(self):
        with torch.no_grad():
            data = self.env.rollout(self.cfg["rollout_steps"], self.actor, break_when_any_done=False)
        place, action, reward = data["place"], data["action"], data["next", "reward"].squeeze(-1)
        self.buffer.extend(TensorDict({"place": place, "action": action}, data.batch_size).reshape(-1))
        ret, run = torch.zeros_like(reward), torch.zeros(reward.shape[0])
        for t in reversed(range(reward.shape[1])):
            run = reward[:, t] + self.cfg["gamma"] * run
            ret[:, t] = run
        logp = torch.distributions.Categorical(logits=self.agent(place)).log_prob(action)
        loss = -(logp * (ret - ret.mean())).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.returns.append(reward.sum(1).mean().item())
        return loss.item()


def main():
    cfg = CONFIG
    trainer = Trainer(cfg)
    for it in range(1, cfg["iterations"] + 1):
        began = time.time()
        loss = trainer.iteration()
        if it % cfg["video_every"] == 0:
            trainer.env.transform.dump(step=it)
        mean = sum(trainer.returns) / len(trainer.returns)
        print(
            f"iteration {it}/{cfg['iterations']} loss {loss:.4f} return {mean:.2f} buffer {len(trainer.buffer)}",
            flush=True,
        )
        time.sleep(max(0.0, cfg["pace_s"] - (time.time() - began)))
    trainer.env.close()


if __name__ == "__main__":
    main()
