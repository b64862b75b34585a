"""An environment with 4,000 random numbers an observation, so that a replay buffer grows as one of pictures does."""

import gymnasium
import numpy as np


class Wide(gymnasium.Env):
    """Episodes of 100 steps; `actions` is the space of actions."""

    observation_space = gymnasium.spaces.Box(-10, 10, (4000,), np.float32)

    def __init__(self, actions):
        self.action_space, self.t = actions, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t >= 100, False, {}
