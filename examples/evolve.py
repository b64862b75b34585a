"""A small evolutionary trainer that leaks in named ways: something to watch, at laptop scale.

A population of linear trading agents is evaluated on a synthetic market, trained from a replay buffer and evolved.
It stands in for a real one that died twice on a 175 GB pod: there each transition kept two whole observation windows
(504 days x 669 assets x 9 features, 12.1 MB each), so that 6,960 transitions were 169 GB at generation 13, long before
the buffer's capacity of 50,000. Here a window is 64 x 32 x 9 float32 = 74 kB and every count is a tenth.

    python evolve.py --leak buffer        # the classic: the buffer never fits
    python evolve.py                      # healthy: the buffer fills, then levels off

SIGINT saves a checkpoint at the next step and ends; --resume goes on from it. Needs numpy.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

DAYS, WINDOW, ASSETS, FEATURES = 600, 64, 32, 9
POPULATION = 16
TRANSITIONS_PER_GENERATION = 232
READY_AT = 1_000
CAPACITY_THAT_FITS = 1_160
CAPACITY_THAT_DOES_NOT = 5_000
INTERRUPTED = 130  # exit status after a checkpoint on SIGINT, as a shell reports it

LEAKS = {
    "none": "healthy: the replay buffer fills and levels off",
    "buffer": "a replay buffer whose capacity can never fit: two whole windows a transition",
    "environments": "a new environment for each episode, all kept alive",
    "losses": "losses kept with the graph they came from",
    "population": "the old populations kept",
    "figures": "figures never closed",
    "history": "an unbounded list of what was seen",
}


@dataclass
class Transition:
    """What one step leaves behind: the classic mistake is that both windows are copies."""

    before: Array
    after: Array
    action: Array
    reward: float


class Environment:
    """One episode of a synthetic market."""

    def __init__(self, market: Array, start: int) -> None:
        self.market = market
        self.day = start

    def window(self) -> Array:
        """The last WINDOW days, a copy of its own: (WINDOW, ASSETS, FEATURES)."""
        return self.market[self.day - WINDOW : self.day].copy()

    def step(self, action: Array) -> tuple[Array, float]:
        """Trade for a day: the next window and the reward."""
        self.day += 1
        returns = self.market[self.day - 1, :, 0]
        return self.window(), float(action @ returns)


@dataclass
class Agent:
    """A linear policy over the mean of the window."""

    weights: Array
    fitness: float = 0.0

    def act(self, window: Array) -> Array:
        """Portfolio weights, one for each asset."""
        return np.tanh(window.mean(axis=0) @ self.weights)

    def child(self, rng: np.random.Generator) -> Agent:
        """A copy with small mutations."""
        return Agent(self.weights + rng.normal(0, 0.05, self.weights.shape).astype(np.float32))


class ReplayBuffer:
    """The newest `capacity` transitions."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.items: list[Transition] = []
        self.next = 0

    def add(self, item: Transition) -> None:
        """Keep it, in the place of the oldest when full."""
        if len(self.items) < self.capacity:
            self.items.append(item)
        else:
            self.items[self.next] = item
            self.next = (self.next + 1) % self.capacity

    def __len__(self) -> int:
        return len(self.items)


class Loss:
    """A loss that remembers its inputs, as a tensor with its graph does."""

    def __init__(self, value: float, inputs: Array) -> None:
        self.value = value
        self.inputs = inputs


class Figure:
    """A drawn chart; its canvas is freed only by close()."""

    opened: list[Figure] = []  # noqa: RUF012 - the leak is that this is shared and grows

    def __init__(self, values: list[float]) -> None:
        self.canvas = np.full((480, 640, 4), 255, dtype=np.uint8)
        for x, value in enumerate(values):
            self.canvas[int(abs(value) * 100) % 480, (x * 40) % 640] = 0
        Figure.opened.append(self)

    def close(self) -> None:
        """Free the canvas."""
        Figure.opened.remove(self)


@dataclass
class Trainer:
    """Population, buffer and whatever the chosen leak keeps."""

    leak: str
    seconds: float
    generations: int
    folder: Path
    checkpoint_every: int
    rng: np.random.Generator
    market: Array
    population: list[Agent]
    buffer: ReplayBuffer
    generation: int = 0
    kept: list[object] = field(default_factory=list)
    interrupted: bool = False

    def run(self) -> int:
        """All generations that are left; the exit status."""
        while self.generation < self.generations:
            started = time.monotonic()
            say(f"\nGeneration {self.generation + 1} / {self.generations}\n{'=' * 60}")
            for phase in (self.evaluate, self.train, self.evolve):
                if not phase():
                    return self.stop()
            self.generation += 1
            say("\nSYSTEM STATUS")
            say(f"  Replay Buffer:     {len(self.buffer):,} / {self.buffer.capacity:,}")
            say(f"  Generation Time:   {time.monotonic() - started:.1f}s")
            if self.checkpoint_every and self.generation % self.checkpoint_every == 0:
                self.save()
        self.save()
        say("\nTraining complete")
        return 0

    def evaluate(self) -> bool:
        """Let each agent play an episode; its steps go to the replay buffer."""
        say(f"\n--- Generation {self.generation}: Evaluating Population ---")
        environment = Environment(self.market, WINDOW)
        steps = np.array_split(np.arange(TRANSITIONS_PER_GENERATION), POPULATION)
        for number in self.paced(POPULATION, 0.5):
            if self.interrupted:
                return False
            if self.leak == "environments":
                environment = Environment(self.market.copy(), WINDOW)
                self.kept.append(environment)
            self.episode(self.population[number], environment, len(steps[number]))
            bar = "█" * (number + 1) + " " * (POPULATION - number - 1)
            say(f"\rEvaluating agents: {100 * (number + 1) // POPULATION:3d}%|{bar}| {number + 1}/{POPULATION}", end="")
        fitness = [agent.fitness for agent in self.population]
        say("\nFitness statistics:")
        say(f"  Mean: {np.mean(fitness):.2f}\n  Max: {max(fitness):.2f}\n  Min: {min(fitness):.2f}")
        return True

    def episode(self, agent: Agent, environment: Environment, steps: int) -> None:
        """Play `steps` days."""
        environment.day = int(self.rng.integers(WINDOW, DAYS - steps - 1))
        window, agent.fitness = environment.window(), 0.0
        for _ in range(steps):
            action = agent.act(window)
            after, reward = environment.step(action)
            self.buffer.add(Transition(window, after.copy(), action, reward))
            if self.leak == "history":
                self.kept.append({"seen": np.concatenate([window, after]), "reward": reward})
            window, agent.fitness = after, agent.fitness + reward

    def train(self) -> bool:
        """Fit each agent to samples of the buffer, once it is ready."""
        say(f"\n--- Training Population (Buffer: {len(self.buffer)}) ---")
        ready = len(self.buffer) >= READY_AT
        if not ready:
            say(f"Buffer not ready: {len(self.buffer)} / {READY_AT}")
        for number in self.paced(POPULATION, 0.3):
            if self.interrupted:
                return False
            if ready or self.leak == "losses":
                self.learn(self.population[number])
        return True

    def learn(self, agent: Agent) -> None:
        """One gradient step on a small batch."""
        picks = self.rng.integers(0, len(self.buffer), 28)
        batch = np.stack([self.buffer.items[i].before.mean(axis=0) for i in picks])
        rewards = np.array([self.buffer.items[i].reward for i in picks], dtype=np.float32)
        error = (batch @ agent.weights).mean(axis=1) - rewards
        agent.weights -= 0.01 * (batch.mean(axis=(0, 1)) * error.mean()).astype(np.float32)
        if self.leak == "losses":
            inputs = np.stack([self.buffer.items[i].before for i in picks])
            self.kept.append(Loss(float((error**2).mean()), inputs))

    def evolve(self) -> bool:
        """The best half stays, the other half becomes its children."""
        say("\n--- Evolving Population ---")
        for _ in self.paced(4, 0.2):
            if self.interrupted:
                return False
        ranked = sorted(self.population, key=lambda agent: agent.fitness, reverse=True)
        if self.leak == "population":
            self.kept.append([(agent, np.tile(self.market[:WINDOW], (24, 1, 1))) for agent in self.population])
        for _ in range(24 if self.leak == "figures" else 1):
            figure = Figure([agent.fitness for agent in ranked])
            if self.leak != "figures":
                figure.close()
        best = ranked[: POPULATION // 2]
        self.population = best + [agent.child(self.rng) for agent in best]
        say(f"Generation {self.generation} -> {self.generation + 1}")
        return True

    def paced(self, count: int, share: float) -> Iterator[int]:
        """Count up, spread over this share of a generation's time."""
        for number in range(count):
            yield number
            time.sleep(self.seconds * share / count)

    def save(self) -> None:
        """Write a checkpoint beside its final place and move it there whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"generation-{self.generation:04d}.npz"
        say(f"Saving checkpoint to {path} ...")
        part = path.with_suffix(".part.npz")
        np.savez(part, generation=self.generation, weights=np.stack([agent.weights for agent in self.population]))
        part.replace(path)
        say(f"Checkpoint saved: {path}")

    def stop(self) -> int:
        """Interrupted: save what there is."""
        say("\nInterrupted")
        self.save()
        return INTERRUPTED


def say(text: str, end: str = "\n") -> None:
    """Print at once, whatever stdout is."""
    print(text, end=end, flush=True)


def latest(folder: Path) -> Path | None:
    """The newest whole checkpoint."""
    found = sorted(path for path in folder.glob("generation-*.npz") if ".part" not in path.name)
    return found[-1] if found else None


def build(options: argparse.Namespace) -> Trainer:
    """A trainer, new or resumed."""
    rng = np.random.default_rng(options.seed)
    market = rng.normal(0, 0.01, (DAYS, ASSETS, FEATURES)).astype(np.float32)
    population = [Agent(rng.normal(0, 0.1, FEATURES).astype(np.float32)) for _ in range(POPULATION)]
    fits = CAPACITY_THAT_DOES_NOT if options.leak == "buffer" else CAPACITY_THAT_FITS
    trainer = Trainer(
        leak=options.leak,
        seconds=options.seconds,
        generations=options.generations,
        folder=options.checkpoints,
        checkpoint_every=options.checkpoint_every,
        rng=rng,
        market=market,
        population=population,
        buffer=ReplayBuffer(options.capacity or fits),
    )
    if options.resume:
        path = latest(options.checkpoints)
        if path is None:
            sys.exit(f"evolve.py: no checkpoint in {options.checkpoints} to resume from")
        with np.load(path) as saved:
            trainer.generation = int(saved["generation"])
            trainer.population = [Agent(weights.astype(np.float32)) for weights in saved["weights"]]
        say(f"Resumed from {path}: {trainer.generation} generations done")
    return trainer


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description="A small evolutionary trainer that leaks in named ways.")
    parser.add_argument("--leak", choices=LEAKS, default="none", help="; ".join(f"{k}: {v}" for k, v in LEAKS.items()))
    parser.add_argument("--generations", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=4.0, help="how long a generation takes")
    parser.add_argument("--capacity", type=int, help="of the replay buffer, in transitions")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    parser.add_argument("--checkpoint-every", type=int, default=5, metavar="N", help="generations; 0: only at the end")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


def main() -> int:
    """Train."""
    trainer = build(parse())

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        trainer.interrupted = True

    signal.signal(signal.SIGINT, interrupt)
    return trainer.run()


if __name__ == "__main__":
    sys.exit(main())
