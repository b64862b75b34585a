"""Discrete soft actor-critic style agent on a pixel catch game."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
import time
from collections import deque

import numpy as np

MEMORY_SIZE = 36000
FRAME = (80, 84)
TOTAL_STEPS = 70400
STEPS_PER_TICK = 64
TICK_PAUSE = 0.085
BATCH = 1024
LOG_EVERY = 2560


class CatchEnv:
    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.screen = np.zeros(FRAME, dtype=np.uint8)
        self.reset()

    def reset(self):
        self.ball = [0, int(self.rng.integers(0, FRAME[1] - 4))]
        self.paddle = FRAME[1] // 2
        return self.render()

    def render(self):
        self.screen[:] = 0
        self.screen[self.ball[0] : self.ball[0] + 4, self.ball[1] : self.ball[1] + 4] = 255
        self.screen[-4:, self.paddle : self.paddle + 10] = 180
        return self.screen

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + (action - 1) * 3, 0, FRAME[1] - 10))
        self.ball[0] += 4
        done = self.ball[0] >= FRAME[0] - 4
        reward = float(done and abs(self.ball[1] - self.paddle - 3) < 8)
        return self.render(), reward, done


class ReplayMemory:
    """Ring storage of transitions; next states are found by index."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.states = np.empty((capacity,) + FRAME, dtype=np.uint8)
        self.actions = np.empty(capacity, dtype=np.int8)
        self.rewards = np.empty(capacity, dtype=np.float32)
        self.dones = np.empty(capacity, dtype=bool)
        self.pos = 0
        self.full = False

    def append(self, state, action, reward, done):
        self.states[self.pos] = state
        self.actions[self.pos] = action
        self.rewards[self.pos] = reward
        self.dones[self.pos] = done
        self.pos += 1
        if self.pos == self.capacity:
            self.pos, self.full = 0, True

    def __len__(self):
        return self.capacity if self.full else self.pos

    def sample(self, rng, n):
        idx = rng.integers(0, len(self) - 1, n)
        return self.states[idx], self.actions[idx], self.rewards[idx], self.states[idx + 1], self.dones[idx]


class Agent:
    def __init__(self, seed=1):
        self.rng = np.random.default_rng(seed)
        self.w = np.zeros((FRAME[0] // 4 * (FRAME[1] // 4), 3), dtype=np.float32)
        self.target = self.w.copy()
        self.alpha = 0.2
        self.errors = deque(maxlen=300)

    def features(self, states):
        s = states.reshape(-1, FRAME[0] // 4, 4, FRAME[1] // 4, 4)[:, :, 0, :, 0]
        return s.reshape(len(s), -1).astype(np.float32) / 255.0

    def act(self, state):
        q = self.features(state[None])[0] @ self.w / self.alpha
        p = np.exp(q - q.max())
        return int(self.rng.choice(3, p=p / p.sum()))

    def learn(self, batch):
        s, a, r, s2, d = batch
        x, q2 = self.features(s), self.features(s2) @ self.target
        v2 = self.alpha * np.log(np.exp(q2 / self.alpha).sum(1))
        td = r + 0.97 * (1 - d) * v2 - (x @ self.w)[np.arange(len(a)), a]
        for k in range(3):
            self.w[:, k] += 0.02 * (x[a == k] * td[a == k, None]).sum(0) / len(a)
        self.target += 0.05 * (self.w - self.target)
        self.errors.append(float(np.abs(td).mean()))


def main():
    env, memory, agent = CatchEnv(), ReplayMemory(MEMORY_SIZE), Agent()
    returns = deque(maxlen=100)
    state = env.reset()
    for step in range(1, TOTAL_STEPS + 1):
        if step % 4 == 1:
            action = agent.act(state)
        kept = state.copy()
        state, reward, done = env.step(action)
        memory.append(kept, action, reward, done)
        if done:
            returns.append(reward)
            state = env.reset()
        if step % STEPS_PER_TICK == 0:
            if len(memory) > 1000:
                agent.learn(memory.sample(agent.rng, BATCH))
            time.sleep(TICK_PAUSE)
        if step % LOG_EVERY == 0:
            print(f"steps: {step:<8d} return: {np.mean(returns):.3f} td: {np.mean(agent.errors):.4f}", flush=True)


if __name__ == "__main__":
    main()
