import random
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


class PixelPendulum(gym.ObservationWrapper):
    """Pendulum state drawn as a small grey image."""

    def __init__(self, env, size=32):
        super().__init__(env)
        axis = np.linspace(-1.3, 1.3, size, dtype=np.float32)
        self.xx, self.yy = np.meshgrid(axis, axis)
        self.observation_space = gym.spaces.Box(0, 1, (2 * size * size,), np.float32)

    def observation(self, obs):
        c, s, v = obs
        tip = np.exp(-12 * ((self.xx - s) ** 2 + (self.yy - c) ** 2))
        lag = np.exp(-12 * ((self.xx - s + 0.05 * v * c) ** 2 + (self.yy - c - 0.05 * v * s) ** 2))
        return np.concatenate([tip.ravel(), lag.ravel()]).astype(np.float32)


class Replay:
    def __init__(self, size):
        self.memory = deque(maxlen=size)

    def add(self, *transition):
        self.memory.append(transition)

    def sample(self, n):
        s, a, r, s2 = zip(*random.sample(self.memory, n))
        return (
            torch.from_numpy(np.stack(s)),
            torch.tensor(a),
            torch.tensor(r, dtype=torch.float32),
            torch.from_numpy(np.stack(s2)),
        )


def make_q():
    return nn.Sequential(nn.Linear(2048, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))


def main(episodes=280, capacity=24_000):
    random.seed(0)
    torch.manual_seed(0)
    env = PixelPendulum(gym.make("Pendulum-v1"))
    torques = np.linspace(-2, 2, 5, dtype=np.float32)
    q, target = make_q(), make_q()
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=5e-4)
    replay, steps = Replay(capacity), 0
    for ep in range(1, episodes + 1):
        s, _ = env.reset(seed=ep)
        total, done = 0.0, False
        while not done:
            if random.random() < max(0.05, 1 - steps / 8000):
                a = random.randrange(5)
            else:
                with torch.no_grad():
                    a = int(q(torch.from_numpy(s)).argmax())
            s2, r, term, trunc, _ = env.step(torques[a : a + 1])
            replay.add(s, a, r, s2)
            s, total, done, steps = s2, total + float(r), term or trunc, steps + 1
            if steps % 4 == 0 and len(replay.memory) > 500:
                bs, ba, br, bs2 = replay.sample(64)
                with torch.no_grad():
                    goal = br / 8 + 0.97 * target(bs2).max(1).values
                loss = nn.functional.smooth_l1_loss(q(bs).gather(1, ba[:, None])[:, 0], goal)
                opt.zero_grad()
                loss.backward()
                opt.step()
            if steps % 1000 == 0:
                target.load_state_dict(q.state_dict())
        print(f"episode {ep}/{episodes} return {total:.1f} replay {len(replay.memory)}", flush=True)
    env.close()


if __name__ == "__main__":
    main()
