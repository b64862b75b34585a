import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
from unittest.mock import MagicMock

import numpy as np


class Lander:
    def __init__(self, seed, sensors=1500):
        self.rng = np.random.default_rng(seed)
        self.sensors = sensors
        self.mix = self.rng.standard_normal((4, sensors)) / 2

    def reset(self):
        self.pos = np.array([self.rng.uniform(-1, 1), 2.0, 0.0, 0.0])
        self.t = 0
        return self.observe()

    def observe(self):
        return self.pos @ self.mix + 0.05 * self.rng.standard_normal(self.sensors)

    def step(self, action):
        ax, ay = action
        self.pos[2:] += 0.05 * np.array([ax, ay - 0.6])
        self.pos[:2] += 0.05 * self.pos[2:]
        self.t += 1
        done = self.pos[1] <= 0 or self.t >= 80
        return self.observe(), -float(np.abs(self.pos[:2]).sum()), done


class Policy:
    def __init__(self, sensors, rng):
        self.w = rng.standard_normal((sensors, 576)) * 0.02
        self.v = rng.standard_normal((576, 576)) * 0.06
        self.out = rng.standard_normal((576, 2)) * 0.05

    def act(self, obs):
        h = np.tanh(obs @ self.w)
        for _ in range(12):
            h = np.tanh(h @ self.v)
        return np.clip(h @ self.out, -1, 1)


def episode(env, policy, telemetry):
    obs, done, total = env.reset(), False, 0.0
    while not done:
        action = policy.act(obs)
        telemetry.publish("state", obs, action=action)
        obs, reward, done = env.step(action)
        total += reward
    return total


def main(episodes=600):
    rng = np.random.default_rng(0)
    env = Lander(3)
    telemetry = MagicMock(name="telemetry")
    policy, best = Policy(env.sensors, rng), -1e9
    for ep in range(1, episodes + 1):
        trial = Policy(env.sensors, rng)
        trial.w = policy.w + 0.01 * rng.standard_normal(policy.w.shape)
        ret = episode(env, trial, telemetry)
        if ret > best:
            best, policy = ret, trial
        if ep % 5 == 0:
            print(f"episode {ep}/{episodes} return {ret:.2f} best {best:.2f}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
