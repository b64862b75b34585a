"""PPO on a small drawing task, two worker processes, the first one films the whole training."""

import time

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import RenderCollection
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import SubprocVecEnv

SIZE = 128


class DotChase(gym.Env):
    """A dot follows a moving target on a square; the image is drawn with numpy."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, render_mode=None, max_steps=100):
        self.render_mode = render_mode
        self.max_steps = max_steps
        self.observation_space = gym.spaces.Box(-2.0, 2.0, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(5)
        self.moves = [np.array(m, np.float32) for m in ((0, 0), (0.08, 0), (-0.08, 0), (0, 0.08), (0, -0.08))]
        self.palette = [(255, 255, 255), (200, 30, 30), (30, 30, 200)]
        self.returns = []

    def _obs(self):
        return np.concatenate([self.pos, self.target]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        self.target = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        self.pos = np.clip(self.pos + self.moves[int(action)], -1, 1)
        self.target = np.clip(self.target + self.np_random.normal(0, 0.03, 2), -1, 1).astype(np.float32)
        reward = -float(np.abs(self.pos - self.target).sum())
        time.sleep(0.012)
        return self._obs(), reward, False, self.t >= self.max_steps, {}

    def render(self):
        frame = np.full((SIZE, SIZE, 3), 255, np.uint8)
        for (x, y), colour in ((self.pos, self.palette[1]), (self.target, self.palette[2])):
            cx, cy = int((x + 1) * 60), int((y + 1) * 60)
            frame[cy : cy + 8, cx : cx + 8] = colour
        return frame


def make_env(rank):
    def _init():
        env = DotChase(render_mode="rgb_array")
        env = RenderCollection(env, pop_frames=False, reset_clean=rank > 0)
        return Monitor(env)

    return _init


class PrintCallback(BaseCallback):
    def __init__(self):
        super().__init__()
        self.rewards = []

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        mean = float(np.mean(self.model.rollout_buffer.rewards))
        self.rewards.append(mean)
        print(f"iteration {len(self.rewards)} timesteps {self.num_timesteps} reward {mean:.4f}", flush=True)


def main():
    import torch

    torch.set_num_threads(1)
    env = SubprocVecEnv([make_env(i) for i in range(2)])
    model = PPO("MlpPolicy", env, n_steps=128, batch_size=64, n_epochs=2, device="cpu")
    model.learn(total_timesteps=2 * 128 * 62, callback=PrintCallback())
    env.close()


if __name__ == "__main__":
    main()
