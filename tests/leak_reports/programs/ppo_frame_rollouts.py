"""Policy gradient on frame stacks: collects n_steps per environment, then updates, then collects anew."""

import collections
import time

import numpy as np

N_ENVS = 12
N_STEPS = 36
TOTAL_STEPS = 130
FRAME = (72, 72, 8)


class DriftingBlob:
    """A bright square moves over the frame; the agent has to name its direction."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.stack = np.zeros(FRAME, dtype=np.float32)
        self.reset()

    def reset(self):
        self.xy = self.rng.integers(8, 60, 2)
        self.direction = int(self.rng.integers(4))
        self.stack[:] = 0.0
        self.t = 0

    def step(self, action):
        reward = 1.0 if action == self.direction else -0.2
        self.xy = np.clip(self.xy + [(1, 0), (-1, 0), (0, 1), (0, -1)][self.direction], 4, 67)
        self.stack = np.roll(self.stack, 1, axis=2)
        self.stack[:, :, 0] = 0.02 * self.rng.random(FRAME[:2], dtype=np.float32)
        x, y = self.xy
        self.stack[x - 3 : x + 4, y - 3 : y + 4, 0] = 1.0
        self.t += 1
        done = self.t >= 30
        if done:
            self.reset()
        return reward, done


class VecEnv:
    def __init__(self, n):
        self.envs = [DriftingBlob(k) for k in range(n)]

    def observe(self):
        return np.stack([e.stack for e in self.envs])

    def step(self, actions):
        out = [e.step(int(a)) for e, a in zip(self.envs, actions)]
        return np.array([r for r, _ in out]), np.array([d for _, d in out])


class Policy:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.w = np.zeros((4, 6))

    @staticmethod
    def features(obs):
        gx = (obs * np.arange(FRAME[0], dtype=np.float32)[None, :, None, None]).sum(axis=(1, 2))
        gy = (obs * np.arange(FRAME[1], dtype=np.float32)[None, None, :, None]).sum(axis=(1, 2))
        mass = obs.sum(axis=(1, 2)) + 1e-3
        px, py = gx / mass, gy / mass
        dx, dy = px[:, 0] - px[:, 3], py[:, 0] - py[:, 3]
        return np.column_stack([dx, dy, abs(dx), abs(dy), dx * dy, np.ones(len(dx))]) / 10

    def probs(self, f):
        z = f @ self.w.T
        e = np.exp(z - z.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def act(self, obs):
        p = self.probs(self.features(obs))
        return (p.cumsum(axis=1) > self.rng.random((len(p), 1))).argmax(axis=1)

    def update(self, obs, actions, advantage, lr=0.5):
        f = self.features(obs)
        grad = (np.eye(4)[actions] - self.probs(f)) * advantage[:, None]
        self.w += lr * grad.T @ f / len(f)


class Runner:
    def __init__(self, env, policy):
        self.env, self.policy = env, policy
        self.returns = collections.deque(maxlen=200)
        self.done_steps = 0

    def collect(self, n_steps):
        mb_obs, mb_actions, mb_rewards = [], [], []
        for _ in range(n_steps):
            obs = self.env.observe()
            actions = self.policy.act(obs)
            rewards, _ = self.env.step(actions)
            mb_obs.append(obs.copy())
            mb_actions.append(actions)
            mb_rewards.append(rewards)
            self.returns.append(float(rewards.mean()))
            self.done_steps += 1
            print(f"timestep {self.done_steps}/{TOTAL_STEPS} mean_reward {np.mean(self.returns):+.3f}", flush=True)
            time.sleep(0.65)
        return mb_obs, mb_actions, mb_rewards

    def learn(self, total):
        while self.done_steps < total:
            rollout = self.collect(min(N_STEPS, total - self.done_steps))
            baseline = np.mean(rollout[2])
            for obs, actions, rewards in zip(*rollout):
                self.policy.update(obs, actions, rewards - baseline)


if __name__ == "__main__":
    Runner(VecEnv(N_ENVS), Policy(9)).learn(TOTAL_STEPS)
