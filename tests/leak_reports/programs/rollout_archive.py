"""Neuro-evolution of a small controller for a chain of coupled pendulums.

Every generation evaluates a population of linear-tanh controllers, archives the
complete episodes on disk for later offline analysis and resamples around the elite.
"""

import argparse
import collections
import pickle
import tempfile
import time

import numpy as np


class PendulumChain:
    """N coupled pendulums with a torque on the first one."""

    def __init__(self, links=24, dt=0.04, substeps=16, seed=0):
        self.links = links
        self.substeps = substeps
        self.dt = dt / substeps
        self.rng = np.random.default_rng(seed)
        self.theta = np.zeros(links)
        self.omega = np.zeros(links)

    def reset(self):
        self.theta = self.rng.normal(0.0, 0.15, self.links)
        self.omega = np.zeros(self.links)
        return self.observe()

    def observe(self):
        return np.concatenate([np.sin(self.theta), np.cos(self.theta), self.omega])

    def step(self, torque):
        for _ in range(self.substeps):
            coupling = np.zeros(self.links)
            coupling[1:] += self.theta[:-1] - self.theta[1:]
            coupling[:-1] += self.theta[1:] - self.theta[:-1]
            accel = -9.81 * np.sin(self.theta) + 4.0 * coupling - 0.08 * self.omega
            accel[0] += torque
            self.omega = self.omega + self.dt * accel
            self.theta = self.theta + self.dt * self.omega
        reward = -float(np.mean(self.theta**2)) - 0.001 * torque * torque
        return self.observe(), reward


class Controller:
    def __init__(self, weights):
        self.weights = weights

    def act(self, obs):
        return 6.0 * np.tanh(self.weights @ obs)

    def mutate(self, rng, sigma):
        return Controller(self.weights + rng.normal(0.0, sigma, self.weights.shape))


class Episode:
    def __init__(self, generation, candidate, weights):
        self.generation = generation
        self.candidate = candidate
        self.weights = weights
        self.observations = None
        self.torques = None
        self.rewards = None

    @property
    def total(self):
        return float(self.rewards.sum())


class EpisodeArchive:
    """Appends episodes to one file; read back with successive Unpickler.load() calls."""

    def __init__(self):
        self._file = tempfile.TemporaryFile(prefix="episodes_")
        self._writer = pickle.Pickler(self._file, protocol=pickle.HIGHEST_PROTOCOL)
        self.written = 0

    def append(self, episode):
        self._writer.dump(episode)
        self.written += 1

    def size_mb(self):
        return self._file.tell() / 1e6


class NoveltyIndex:
    """Mean squared distance of an episode's end state to a fixed set of reference states."""

    def __init__(self, dim, rng, references=40000):
        self.references = rng.normal(0.0, 0.5, (references, dim))

    def score(self, state, rng):
        rows = self.references[rng.integers(0, len(self.references), 400)]
        return float(np.sort(((rows - state) ** 2).mean(axis=1))[:5].mean())


class EliteSet:
    def __init__(self, size):
        self.size = size
        self.members = []

    def update(self, scored):
        merged = self.members + scored
        merged.sort(key=lambda pair: pair[0], reverse=True)
        self.members = merged[: self.size]

    def sample(self, rng):
        return self.members[rng.integers(len(self.members))][1]


def run_episode(env, controller, generation, candidate, horizon):
    obs = env.reset()
    episode = Episode(generation, candidate, controller.weights)
    observations = np.empty((horizon, obs.size))
    torques = np.empty(horizon)
    rewards = np.empty(horizon)
    for t in range(horizon):
        observations[t] = obs
        torques[t] = controller.act(obs)
        obs, rewards[t] = env.step(torques[t])
    episode.observations, episode.torques, episode.rewards = observations, torques, rewards
    return episode


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--generations", type=int, default=320)
    parser.add_argument("--population", type=int, default=14)
    parser.add_argument("--horizon", type=int, default=90)
    args = parser.parse_args()

    rng = np.random.default_rng(11)
    env = PendulumChain(seed=3)
    dim = env.observe().size
    elite = EliteSet(size=8)
    elite.update([(-1e9, Controller(rng.normal(0.0, 0.1, dim))) for _ in range(8)])
    archive = EpisodeArchive()
    novelty = NoveltyIndex(dim, rng)
    returns = collections.deque(maxlen=500)

    for generation in range(1, args.generations + 1):
        scored = []
        for candidate in range(args.population):
            controller = elite.sample(rng).mutate(rng, sigma=0.05)
            episode = run_episode(env, controller, generation, candidate, args.horizon)
            archive.append(episode)
            returns.append(episode.total)
            bonus = 0.05 * novelty.score(episode.observations[-1], rng)
            scored.append((episode.total + bonus, controller))
            time.sleep(0.015)
        elite.update(scored)
        time.sleep(0.1)
        print(
            f"Generation {generation}/{args.generations} best {elite.members[0][0]:.3f} "
            f"mean {np.mean(returns):.3f} archive {archive.size_mb():.1f} MB"
        )


if __name__ == "__main__":
    main()
