"""Asynchronous actors push transitions to one learner (tabular Q-learning on a grid)."""

import asyncio
import collections
import random

import numpy as np

SIZE = 40
ACTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1))


class GridWorld:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.goal = (SIZE - 3, SIZE - 4)
        self.walls = {(self.rng.randrange(SIZE), self.rng.randrange(SIZE)) for _ in range(180)}
        self.walls.discard(self.goal)
        self.pos = (1, 1)

    def reset(self):
        self.pos = (self.rng.randrange(SIZE), self.rng.randrange(SIZE))
        return self.pos

    def step(self, action):
        dx, dy = ACTIONS[action]
        nxt = (min(max(self.pos[0] + dx, 0), SIZE - 1), min(max(self.pos[1] + dy, 0), SIZE - 1))
        if nxt in self.walls:
            nxt = self.pos
        self.pos = nxt
        done = nxt == self.goal
        return nxt, (10.0 if done else -0.05), done


class Potential:
    """Shaping potential from the pairwise distances of all cells."""

    def __init__(self, goal):
        cells = np.stack(np.meshgrid(np.arange(SIZE), np.arange(SIZE), indexing="ij"), -1).reshape(-1, 2)
        self.distance = np.abs(cells[:, None, :] - cells[None, :, :]).sum(-1).astype(np.float64)
        self.goal = goal[0] * SIZE + goal[1]

    def shaping(self, state, next_state, gamma):
        here = self.distance[state[0] * SIZE + state[1], self.goal]
        there = self.distance[next_state[0] * SIZE + next_state[1], self.goal]
        return 0.02 * (here - gamma * there)


class Transition:
    __slots__ = ("actor", "state", "action", "reward", "next_state", "done")

    def __init__(self, actor, state, action, reward, next_state, done):
        self.actor = actor
        self.state = state
        self.action = action
        self.reward = reward
        self.next_state = next_state
        self.done = done


class Actor:
    def __init__(self, ident, learner, inbox, shutdown):
        self.ident = ident
        self.learner = learner
        self.inbox = inbox
        self.shutdown = shutdown
        self.env = GridWorld(ident)
        self.rng = random.Random(1000 + ident)

    async def run(self):
        state = self.env.reset()
        while not self.shutdown.is_set():
            if self.rng.random() < self.learner.epsilon:
                action = self.rng.randrange(4)
            else:
                action = int(np.argmax(self.learner.q[state]))
            nxt, reward, done = self.env.step(action)
            await self.inbox.put(Transition(self.ident, state, action, reward, nxt, done))
            state = self.env.reset() if done else nxt
            await asyncio.sleep(0.006)


class Learner:
    def __init__(self, inbox, shutdown, replay_size=20000):
        self.inbox = inbox
        self.shutdown = shutdown
        self.q = np.zeros((SIZE, SIZE, 4))
        self.replay = collections.deque(maxlen=replay_size)
        self.potential = Potential((SIZE - 3, SIZE - 4))
        self.epsilon = 0.4
        self.updates = 0
        self.errors = collections.deque(maxlen=2000)

    async def next_transition(self):
        """Next transition of any actor, or None when the run is being shut down."""
        get = asyncio.ensure_future(self.inbox.get())
        closing = asyncio.ensure_future(self.shutdown.wait())
        await asyncio.wait({get, closing}, return_when=asyncio.FIRST_COMPLETED)
        if get.done():
            return get.result()
        get.cancel()
        return None

    def update(self, tr, lr=0.2, gamma=0.97):
        shaped = tr.reward + self.potential.shaping(tr.state, tr.next_state, gamma)
        target = shaped + (0.0 if tr.done else gamma * self.q[tr.next_state].max())
        error = target - self.q[tr.state][tr.action]
        self.q[tr.state][tr.action] += lr * error
        self.errors.append(abs(error))
        self.updates += 1

    async def run(self):
        rng = random.Random(7)
        while True:
            transition = await self.next_transition()
            if transition is None:
                return
            self.replay.append(transition)
            self.update(transition)
            if len(self.replay) > 500:
                for _ in range(9):
                    self.update(self.replay[rng.randrange(len(self.replay))], lr=0.05)


async def train(epochs=260, actors=10, seconds=0.65):
    shutdown = asyncio.Event()
    inbox = asyncio.Queue(maxsize=256)
    learner = Learner(inbox, shutdown)
    workers = [asyncio.create_task(Actor(i, learner, inbox, shutdown).run()) for i in range(actors)]
    workers.append(asyncio.create_task(learner.run()))
    for epoch in range(1, epochs + 1):
        await asyncio.sleep(seconds)
        learner.epsilon = max(0.05, learner.epsilon * 0.99)
        error = float(np.mean(learner.errors)) if learner.errors else 0.0
        print(f"Epoch {epoch}/{epochs} updates {learner.updates} td-error {error:.4f} epsilon {learner.epsilon:.3f}")
    shutdown.set()
    await asyncio.gather(*workers)


if __name__ == "__main__":
    asyncio.run(train())
