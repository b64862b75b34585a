"""DQN.learn or SAC.learn with checkpoints: stable_baselines.py dqn|sac [--leak: a callback keeps observations]."""

import sys

import gymnasium
import numpy as np
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback
from wide import Wide


class Watch(BaseCallback):
    """What a user writes to plot the observations later."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def _on_step(self):
        self.seen.append(self.locals["new_obs"].astype(float))
        return True


kept = [CheckpointCallback(1000, "checkpoints")] + ([Watch()] if "--leak" in sys.argv else [])
policy = {"net_arch": [16]}
if sys.argv[1] == "dqn":
    env = Wide(gymnasium.spaces.Discrete(4))
    model = DQN("MlpPolicy", env, buffer_size=25000, train_freq=1, policy_kwargs=policy, verbose=1)
    model.learn(30000, callback=kept, log_interval=10)
else:
    env = Wide(gymnasium.spaces.Box(-1, 1, (2,), np.float32))
    model = SAC("MlpPolicy", env, buffer_size=2000, train_freq=8, policy_kwargs=policy, verbose=1)
    model.learn(12000, callback=kept, log_interval=10)
