import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import itertools
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


class Episode:
    def __init__(self):
        self.total_reward = 0.0
        self.hist_data = {}


class MonitorInfoCallback:
    def on_episode_step(self, episode, info):
        for key, value in info.items():
            episode.hist_data.setdefault(key, []).append(value)


class MetricsCollector:
    """Summarises finished episodes, smoothed over the last ones."""

    def __init__(self, smoothing_episodes=0):
        self.smoothing_episodes, self.episode_history = smoothing_episodes, []

    def collect(self, episodes):
        self.episode_history.extend(episodes)
        self.episode_history = self.episode_history[-self.smoothing_episodes :]
        recent = self.episode_history[-max(self.smoothing_episodes, len(episodes)) :]
        stats = {"reward_mean": np.mean([e.total_reward for e in recent])}
        for key in recent[0].hist_data:
            stats[key] = np.mean([np.mean(e.hist_data[key]) for e in recent])
        return stats


class InstrumentedPendulum(gym.Wrapper):
    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        cos, sin, speed = obs
        profile = np.tanh(np.outer([cos, sin, speed / 8, float(action[0]) / 2], np.linspace(0.2, 2, 12)))
        info["joint_load"] = profile.ravel()
        info["energy"] = np.array([0.5 * speed**2, 5 * cos, float(action[0]) * speed])
        info["lidar"] = np.abs(np.sin(np.linspace(0, np.pi, 36) + sin))
        return obs, reward, terminated, truncated, info


class RolloutWorker:
    def __init__(self, policy, callback, seed):
        self.env = InstrumentedPendulum(gym.make("Pendulum-v1"))
        self.policy, self.callback, self.seed = policy, callback, seed

    @torch.no_grad()
    def sample(self):
        self.seed += 1
        obs, _ = self.env.reset(seed=self.seed)
        episode, batch, done = Episode(), [], False
        while not done:
            mean = self.policy(torch.from_numpy(obs))
            action = torch.normal(mean, 0.5)
            nxt, reward, terminated, truncated, info = self.env.step(2 * torch.tanh(action).numpy())
            self.callback.on_episode_step(episode, info)
            batch.append((obs, action.numpy(), float(reward)))
            episode.total_reward += float(reward)
            obs, done = nxt, terminated or truncated
        return episode, batch


def returns(rewards, gamma=0.97):
    return list(itertools.accumulate(reversed(rewards), lambda total, r: r + gamma * total))[::-1]


def main(iterations=1000, per_iteration=3):
    torch.manual_seed(3)
    policy = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    worker = RolloutWorker(policy, MonitorInfoCallback(), seed=100)
    metrics = MetricsCollector()
    started = time.time()
    for it in range(1, iterations + 1):
        episodes, batches = zip(*(worker.sample() for _ in range(per_iteration)))
        obs, act = (torch.tensor(np.array([s[k] for b in batches for s in b])) for k in (0, 1))
        ret = torch.tensor([r for b in batches for r in returns([s[2] for s in b])])
        adv = (ret - ret.mean()) / (ret.std() + 1e-6)
        for _ in range(4):
            loss = (adv[:, None] * (act - policy(obs)) ** 2 / 0.5).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        stats = metrics.collect(episodes)
        print(
            f"iter {it}/{iterations} reward {stats['reward_mean']:.1f} energy {stats['energy']:.2f}"
            f" load {stats['joint_load']:.3f} ({time.time() - started:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
