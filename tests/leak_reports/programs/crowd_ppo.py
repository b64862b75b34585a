"""Policy-gradient training of a crowd of walkers with curriculum resets."""

import time
from collections import defaultdict, deque

import numpy as np

OBS_SIZE = 1024
NUM_ACTIONS = 6
NUM_WALKERS = 48
HORIZON = 20
ITERATIONS = 80
SECONDS_PER_ITERATION = 1.6


class CrowdEnv:
    """A crowd of walkers; every reset spawns walkers with new ids."""

    def __init__(self, rng):
        self.rng = rng
        self.reset_count = 0
        self.agent_ids = []
        self.positions = np.zeros((NUM_WALKERS, 2))

    def reset(self, difficulty):
        self.reset_count += 1
        self.difficulty = difficulty
        self.positions = self.rng.uniform(-5.0, 5.0, size=(NUM_WALKERS, 2))
        self.agent_ids = [f"walker-{self.reset_count}-{n}" for n in range(NUM_WALKERS)]

    def _simulate(self, substeps=150):
        for _ in range(substeps):
            apart = self.positions[:, None] - self.positions[None]
            near = 1.0 / (0.5 + np.square(apart).sum(axis=2, keepdims=True))
            self.positions += 0.002 * ((apart * near).sum(axis=1) - self.positions)

    def observe(self):
        noise = self.rng.standard_normal((len(self.agent_ids), OBS_SIZE), dtype=np.float32)
        return dict(zip(self.agent_ids, noise))

    def step(self, actions):
        self._simulate()
        rewards, dones = {}, {}
        for agent_id, action in actions.items():
            rewards[agent_id] = float(action == 2) - 0.1 * self.difficulty
            dones[agent_id] = bool(self.rng.random() < 0.01)
        return rewards, dones


class Policy:
    def __init__(self, rng):
        self.rng = rng
        self.weights = 0.01 * rng.standard_normal((OBS_SIZE, NUM_ACTIONS)).astype(np.float32)

    def act(self, obs):
        logits = obs @ self.weights
        probs = np.exp(logits - logits.max())
        probs /= probs.sum()
        return int(self.rng.choice(NUM_ACTIONS, p=probs / probs.sum()))

    def update(self, batch):
        for obs, action, advantage in batch:
            self.weights[:, action] += 1e-4 * advantage * obs


class AgentProcessor:
    """Collects the experiences of each agent and cuts them into trajectories."""

    def __init__(self, policy, trajectory_queue):
        self.policy = policy
        self.trajectory_queue = trajectory_queue
        self.experiences = defaultdict(list)
        self.episode_rewards = defaultdict(float)

    def add_experiences(self, obs_by_agent, actions, rewards, dones):
        for agent_id, action in actions.items():
            self.experiences[agent_id].append((obs_by_agent[agent_id].copy(), action, rewards[agent_id]))
            self.episode_rewards[agent_id] += rewards[agent_id]
            if dones[agent_id]:
                self.trajectory_queue.append(self.experiences.pop(agent_id))
                self.episode_rewards.pop(agent_id)


def make_batch(trajectory):
    rewards = np.array([reward for _, _, reward in trajectory], dtype=np.float32)
    advantages = rewards - rewards.mean()
    return [(obs, action, adv) for (obs, action, _), adv in zip(trajectory, advantages)]


def main():
    rng = np.random.default_rng(7)
    env, policy = CrowdEnv(rng), Policy(rng)
    trajectory_queue = deque(maxlen=20)
    processor = AgentProcessor(policy, trajectory_queue)
    update_buffer = []
    for iteration in range(1, ITERATIONS + 1):
        started = time.perf_counter()
        env.reset(difficulty=iteration / ITERATIONS)
        total = 0.0
        for _ in range(HORIZON):
            obs_by_agent = env.observe()
            actions = {agent_id: policy.act(obs) for agent_id, obs in obs_by_agent.items()}
            rewards, dones = env.step(actions)
            processor.add_experiences(obs_by_agent, actions, rewards, dones)
            env.agent_ids = [a for a in env.agent_ids if not dones[a]]
            total += sum(rewards.values())
        while trajectory_queue:
            update_buffer.extend(make_batch(trajectory_queue.popleft()))
        policy.update(update_buffer)
        steps = len(update_buffer)
        update_buffer.clear()
        print(f"iteration {iteration}/{ITERATIONS}  reward {total:8.2f}  trained on {steps} steps", flush=True)
        time.sleep(max(0.0, SECONDS_PER_ITERATION - (time.perf_counter() - started)))


if __name__ == "__main__":
    main()
