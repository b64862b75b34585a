"""Keeps objects in the ways that leaking trainers do."""

import sys
from collections import deque


class Tensor:
    pass


class Node:
    def __init__(self, following):
        self.following = following


class Transition:
    def __init__(self):
        self.state, self.next_state = bytearray(1000), bytearray(1000)


class Buffer:
    def __init__(self):
        self.buffer = deque(maxlen=5000)


class Agent:
    def __init__(self, trainer):
        self.trainer = trainer
        self.memory = [bytearray(1 << 20) for _ in range(2)]


class Environment:
    pass


class Loss:
    pass


class Request:
    pass


class Lone:
    pass


class Figure:
    pass


class Member:
    pass


class Looped:
    pass


class Slotted:
    __slots__ = ("items",)


class Trainer:
    registry = []  # noqa: RUF012 - that is how it leaks

    def __init__(self):
        members = [Member() for _ in range(40)]
        self.clubs = {"now": members[:20], "before": [[[(member,) for member in members]]]}
        self.ring = [Looped() for _ in range(30)]
        self.ring.append([self.ring])
        self.actor_losses = [Tensor() for _ in range(21504)]
        self.replay_buffer = Buffer()
        self.environments = {}
        self.agents = [Agent(self) for _ in range(16)]
        self.state = {"memory": [bytes(50_000)], 3: 1}
        self.obs = bytearray(20 << 20)


cache = {}


def main():
    trainer = Trainer()
    trainer.replay_buffer.buffer.extend(Transition() for _ in range(3000))
    trainer.environments.update((i, Environment()) for i in range(500))
    Trainer.registry.extend(Loss() for _ in range(700))
    cache.update((f"r{i}", {"request": Request()}) for i in range(300))
    slotted = Slotted()
    slotted.items = [Lone() for _ in range(90)]
    figures = [Figure() for _ in range(50)]
    node = None
    for _ in range(2000):
        node = Node(node)
    print("ready", flush=True)
    sys.stdin.read()
    return slotted, figures


main()
