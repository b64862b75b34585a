import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import time

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
SIZE, HORIZON = 96, 60


class PixelReacher:
    """Two-link arm that has to touch a target; an observation is one grey image."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.axis = np.linspace(-1, 1, SIZE)

    def joints(self):
        a, b = self.q[0], self.q.sum()
        elbow = 0.5 * np.array([np.cos(a), np.sin(a)])
        return elbow, elbow + 0.4 * np.array([np.cos(b), np.sin(b)])

    def draw(self):
        img = np.zeros((SIZE, SIZE))
        for (x, y), w in zip((self.target, *self.joints()), (1.0, 0.4, 0.7)):
            img += w * np.outer(np.exp(-((self.axis - y) ** 2) / 0.01), np.exp(-((self.axis - x) ** 2) / 0.01))
        return np.clip(255 * img + self.rng.integers(0, 12, img.shape), 0, 255).astype(np.uint8)

    def reset(self):
        self.q, self.dq = self.rng.uniform(-np.pi, np.pi, 2), np.zeros(2)
        r, phi = self.rng.uniform(0.3, 0.8), self.rng.uniform(-np.pi, np.pi)
        self.target = np.array([r * np.cos(phi), r * np.sin(phi)])
        return self.draw()

    def step(self, action):
        self.dq = 0.9 * self.dq + 0.08 * np.array([action // 3 - 1, action % 3 - 1])
        self.q = self.q + self.dq
        return self.draw(), -float(np.linalg.norm(self.joints()[1] - self.target))


class EpisodeReplay:
    def __init__(self, size):
        self._storage, self._maxsize, self._next_idx = [], size, 0

    def add(self, frames, actions, rewards):
        episode = (np.stack(frames), np.array(actions), np.array(rewards, dtype=np.float32))
        self._storage[self._next_idx : self._next_idx + 1] = [episode]
        self._next_idx = (self._next_idx + 1) % self._maxsize

    def sample(self, n, rng):
        picks = [
            (self._storage[i], t)
            for i, t in zip(rng.integers(len(self._storage), size=n), rng.integers(2, HORIZON, size=n))
        ]
        obs = torch.from_numpy(np.stack([e[0][t - 2 : t + 2] for e, t in picks])).float() / 255
        act, rew = (torch.tensor([e[k][t] for e, t in picks]) for k in (1, 2))
        return obs[:, :3], act, rew, obs[:, 1:]


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(8, 16, 4, stride=3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 49, 64),
        nn.ReLU(),
        nn.Linear(64, 9),
    )


def play(env, q, epsilon, rng):
    frames, actions, rewards = [env.reset()], [], []
    for _ in range(HORIZON):
        if len(frames) < 3 or rng.random() < epsilon:
            action = int(rng.integers(9))
        else:
            with torch.no_grad():
                action = int(q(torch.from_numpy(np.stack(frames[-3:])[None]).float() / 255).argmax())
        frame, reward = env.step(action)
        frames.append(frame), actions.append(action), rewards.append(reward)
    return frames, actions, rewards


def main(episodes=1000, capacity=220):
    torch.manual_seed(0)
    rng, env, replay = np.random.default_rng(0), PixelReacher(seed=1), EpisodeReplay(capacity)
    q, target = network(), network()
    target.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=5e-4)
    started = time.time()
    for episode in range(1, episodes + 1):
        episode_data = play(env, q, max(0.1, 1 - episode / 200), rng)
        replay.add(*episode_data)
        for _ in range(10):
            s, a, r, s2 = replay.sample(24, rng)
            with torch.no_grad():
                goal = r + 0.95 * target(s2).max(1).values
            loss = nn.functional.smooth_l1_loss(q(s).gather(1, a[:, None])[:, 0], goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if episode % 8 == 0:
            target.load_state_dict(q.state_dict())
        print(
            f"episode {episode}/{episodes} return {sum(episode_data[2]):.2f} loss {loss.item():.4f}"
            f" stored {len(replay._storage)} ({time.time() - started:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
