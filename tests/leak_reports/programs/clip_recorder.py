"""Cross-entropy training of a landing controller; each episode is rendered to a short clip."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gc
import time
from collections import deque

import gymnasium as gym
import numpy as np

CONFIG = {
    "height": 140,
    "width": 190,
    "max_steps": 90,
    "episodes": 78,
    "population": 10,
    "elite": 3,
    "collect_every": 23,
    "noise": 0.6,
    "pace_s": 0.95,
}


class LandingEnv(gym.Env):
    """A probe falls through a gusty atmosphere and shall touch down slowly near the pad."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, cfg):
        self.cfg = cfg
        self.render_mode = "rgb_array"
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (5,), dtype=np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (2,), dtype=np.float32)
        sky = np.linspace(20, 90, cfg["height"], dtype=np.uint8)
        self.backdrop = np.repeat(sky[:, None, None], cfg["width"], axis=1).repeat(3, axis=2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos = np.array([self.np_random.uniform(-0.5, 0.5), 1.0])
        self.vel = np.zeros(2)
        self.t = 0
        return self._obs(), {}

    def _obs(self):
        return np.array([*self.pos, *self.vel, 1.0], dtype=np.float32)

    def step(self, action):
        gust = self.np_random.normal(0, 0.01, 2)
        self.vel += np.array([0.03 * action[0], 0.035 * action[1] - 0.018]) + gust
        self.pos = self.pos + 0.05 * self.vel
        self.t += 1
        landed = self.pos[1] <= 0
        reward = -abs(self.pos[0]) * 0.01
        if landed:
            reward += 2.0 - abs(self.pos[0]) - 3.0 * abs(self.vel[1])
        return self._obs(), float(reward), bool(landed), self.t >= self.cfg["max_steps"], {}

    def render(self):
        frame = self.backdrop.copy()
        h, w = frame.shape[:2]
        y = int(np.clip((1.1 - self.pos[1]) / 1.2 * h, 4, h - 5))
        x = int(np.clip((self.pos[0] + 1) / 2 * w, 4, w - 5))
        frame[y - 3 : y + 4, x - 3 : x + 4] = (250, 220, 80)
        frame[h - 6 :, w // 2 - 12 : w // 2 + 12] = (80, 200, 120)
        return frame


class Clip:
    """A sequence of frames with a frame function, as the movie writers want it."""

    def __init__(self, frames, fps):
        self.frames = frames
        self.fps = fps
        self.duration = len(frames) / fps
        self.frame_function = lambda t: self.frames[min(int(t * self.fps), len(self.frames) - 1)]

    def contact_sheet(self, n=6):
        times = np.linspace(0, self.duration, n, endpoint=False)
        return np.concatenate([self.frame_function(t)[::4, ::4] for t in times], axis=1)


class RecordClips(gym.Wrapper):
    """Renders each step; at the end of an episode the clip is written and dropped."""

    def __init__(self, env, episode_trigger, gc_trigger=None, keep_sheets=10):
        super().__init__(env)
        self.episode_trigger = episode_trigger
        self.gc_trigger = gc_trigger
        self.episode_id = -1
        self.recorded_frames = []
        self.sheets = deque(maxlen=keep_sheets)
        self.recording = False

    def reset(self, **kwargs):
        if self.recording:
            self.stop_recording()
        obs, info = self.env.reset(**kwargs)
        self.episode_id += 1
        self.recording = self.episode_trigger(self.episode_id)
        if self.recording:
            self.recorded_frames = [self.env.render()]
        return obs, info

    def step(self, action):
        result = self.env.step(action)
        if self.recording:
            self.recorded_frames.append(self.env.render())
        return result

    def stop_recording(self):
        clip = Clip(self.recorded_frames, self.env.metadata["render_fps"])
        self.sheets.append(clip.contact_sheet())
        self.recorded_frames = []
        self.recording = False
        if self.gc_trigger and self.gc_trigger(self.episode_id):
            gc.collect()


class CrossEntropy:
    def __init__(self, cfg, rng):
        self.cfg, self.rng = cfg, rng
        self.mean = np.zeros((2, 5))
        self.std = np.full((2, 5), cfg["noise"])

    def sample(self):
        return self.mean + self.std * self.rng.standard_normal(self.mean.shape)

    def fit(self, scored):
        scored.sort(key=lambda pair: -pair[0])
        elite = np.stack([w for _, w in scored[: self.cfg["elite"]]])
        self.mean = 0.3 * self.mean + 0.7 * elite.mean(axis=0)
        self.std = np.maximum(0.7 * elite.std(axis=0) + 0.3 * self.std, 0.05)


def run_episode(env, weights, seed=None):
    obs, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(np.tanh(weights @ obs))
        total += reward
        over = terminated or truncated
    return total


def main():
    cfg = CONFIG
    rng = np.random.default_rng(30)
    trainer = CrossEntropy(cfg, rng)
    probe = LandingEnv(cfg)
    shown = RecordClips(
        LandingEnv(cfg), episode_trigger=lambda e: True, gc_trigger=lambda e: e % cfg["collect_every"] == 0
    )
    for ep in range(1, cfg["episodes"] + 1):
        began = time.time()
        scored = []
        for _ in range(cfg["population"]):
            weights = trainer.sample()
            scored.append((run_episode(probe, weights, seed=int(rng.integers(1 << 30))), weights))
        trainer.fit(scored)
        score = run_episode(shown, trainer.mean, seed=ep)
        print(
            f"episode {ep}/{cfg['episodes']} return {score:.3f} best {scored[0][0]:.3f} clips {len(shown.sheets)}",
            flush=True,
        )
        time.sleep(max(0.0, cfg["pace_s"] - (time.time() - began)))


if __name__ == "__main__":
    main()
