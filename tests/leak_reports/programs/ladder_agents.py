"""Self-play of several agents over message queues, with a small linear value learner."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
import asyncio
import random
from collections import deque

import numpy as np

N_AGENTS = 6
TURN_DELAY = 0.16
TURNS_PER_BATTLE = 30
BATTLES = 22
FEATURES = (96, 72)
LEARN_EVERY = 24
HIDDEN = 1024


class Server:
    """Fake game server which sends turn messages to each player."""

    def __init__(self, n):
        self.inboxes = [asyncio.Queue(maxsize=8) for _ in range(n)]

    async def run(self):
        for battle in range(BATTLES):
            for turn in range(TURNS_PER_BATTLE):
                for inbox in self.inboxes:
                    await inbox.put(f"|battle-{battle}|turn|{turn}|{random.getrandbits(32)}")
                await asyncio.sleep(TURN_DELAY)
            for inbox in self.inboxes:
                await inbox.put(f"|battle-{battle}|win|{random.randint(0, 1)}|0")
        for inbox in self.inboxes:
            await inbox.put(None)


class Battle:
    def __init__(self, tag):
        self.tag, self.turn, self.won = tag, 0, None
        self.last_actions = deque(maxlen=10)


class Player:
    def __init__(self, name, inbox, learner):
        self.name, self.inbox, self.learner = name, inbox, learner
        self.battles = {}
        self.wins = 0

    def embed(self, battle, seed):
        rng = np.random.default_rng(seed)
        obs = rng.standard_normal(FEATURES)
        obs[:, 0] = battle.turn / TURNS_PER_BATTLE
        return obs

    async def _handle_message(self, message):
        _, tag, kind, value, extra = message.split("|")
        battle = self.battles.setdefault(tag, Battle(tag))
        if kind == "win":
            battle.won = value == "1"
            self.wins += battle.won
            self.battles.pop(tag, None)
            return None
        battle.turn = int(value)
        obs = self.embed(battle, int(extra))
        await asyncio.sleep(random.random() * 0.02)
        battle.last_actions.append(self.learner.act(obs))
        self.learner.observe(obs, 1.0 if battle.last_actions[-1] > 0 else 0.0)
        return obs

    async def listen(self):
        coroutines = []
        try:
            while True:
                message = await self.inbox.get()
                if message is None:
                    break
                coroutines.append(asyncio.create_task(self._handle_message(message)))
                await asyncio.sleep(0)
        finally:
            for coroutine in coroutines:
                coroutine.cancel()


class Learner:
    def __init__(self):
        self.hidden = np.random.default_rng(1).standard_normal((FEATURES[1], HIDDEN)) / 8.0
        self.weights = np.zeros(HIDDEN)
        self.memory = deque(maxlen=64)
        self.updates = 0
        self.losses = []

    def summary(self, obs):
        return np.tanh(obs @ self.hidden).mean(0)

    def act(self, obs):
        return float(self.summary(obs) @ self.weights) + random.gauss(0, 0.1)

    def observe(self, obs, reward):
        self.memory.append((self.summary(obs), reward))
        if len(self.memory) == self.memory.maxlen and random.random() < 1 / LEARN_EVERY:
            self.learn()

    def learn(self):
        x = np.stack([m[0] for m in self.memory])
        y = np.array([m[1] for m in self.memory])
        err = x @ self.weights - y
        self.weights -= 0.05 * x.T @ err / len(y)
        self.updates += 1
        self.losses.append(float((err**2).mean()))
        del self.losses[:-200]


async def report(players, learner):
    while True:
        await asyncio.sleep(6)
        loss = np.mean(learner.losses[-20:]) if learner.losses else float("nan")
        print(
            f"updates {learner.updates:4d} | loss {loss:.4f} | wins " + " ".join(f"{p.name}:{p.wins}" for p in players),
            flush=True,
        )


async def main():
    random.seed(5)
    server, learner = Server(N_AGENTS), Learner()
    players = [Player(f"agent{i}", server.inboxes[i], learner) for i in range(N_AGENTS)]
    reporter = asyncio.create_task(report(players, learner))
    await asyncio.gather(server.run(), *(p.listen() for p in players))
    reporter.cancel()
    print("final wins", {p.name: p.wins for p in players})


if __name__ == "__main__":
    asyncio.run(main())
