"""A DQN of stable-baselines3 whose replay buffer takes 1 GB when it is full."""

import time

import gymnasium as gym
import numpy as np
from stable_baselines3 import DQN


class Pixels(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    action_space = gym.spaces.Discrete(4)

    def __init__(self):
        self.rng, self.day = np.random.default_rng(1), 0

    def window(self):
        return self.rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)

    def reset(self, seed=None, options=None):
        self.day = 0
        return self.window(), {}

    def step(self, action):
        self.day += 1
        time.sleep(0.003)
        return self.window(), 1.0, self.day >= 200, False, {}


options = {"learning_starts": 10**9, "train_freq": 100, "policy_kwargs": {"net_arch": [8]}, "verbose": 1}
DQN("MlpPolicy", Pixels(), buffer_size=40_000, **options).learn(14_000, log_interval=10)
