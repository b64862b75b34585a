"""CleanRL's dqn.py, unmodified, on an environment with 4,000 numbers an observation: cleanrl_dqn.py CHECKOUT."""

import runpy
import sys
from pathlib import Path

import gymnasium
import numpy as np


class Wide(gymnasium.Env):
    """Random observations."""

    observation_space = gymnasium.spaces.Box(-10, 10, (4000,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t >= 100, False, {}


gymnasium.register("Wide-v0", Wide)
source = Path(sys.argv[1]).resolve()
sys.path[0] = str(source)
steps = ["--total-timesteps", "30000", "--buffer-size", "25000", "--learning-starts", "1000", "--train-frequency", "50"]
sys.argv[1:] = ["--env-id", "Wide-v0", "--save-model", *steps]
runpy.run_path(str(source / "cleanrl" / "dqn.py"), run_name="__main__")
