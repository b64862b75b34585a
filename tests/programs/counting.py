"""Counts in the ways that programs do, slowly enough to be read: counting.py WAY."""

import sys
import time


class Config:
    """Settings, as programs have them."""

    def __init__(self):
        self.max_steps, self.learning_rate = 5000, 0.1


class Trainer:
    """Counts in an attribute, within loops."""

    def __init__(self):
        self.config, self.global_step = Config(), 0

    def train(self, epochs):
        for epoch in range(epochs):
            for i in range(1000):
                self.global_step += 1
                time.sleep(0.01)


class Slotted:
    """Counts in a slot."""

    __slots__ = ("iteration", "max_iterations")

    def __init__(self):
        self.iteration, self.max_iterations = 0, 900

    def run(self):
        while self.iteration < self.max_iterations:
            self.iteration += 1
            time.sleep(0.01)


class Loader:
    """Counts how often it was gone through."""

    def __init__(self):
        self.iteration = 0


def loaders():
    both = Loader(), Loader()
    for epoch in range(200):
        for loader in both:
            loader.iteration += 1
        time.sleep(0.1)


def study(n_trials):
    i_trial = 0
    while i_trial < n_trials:
        i_trial += 1
        Trainer().train(2)


def evolve(generations):
    n_generations = generations
    for gen in range(1, n_generations + 1):
        time.sleep(0.2)
    time.sleep(60)


def closed_over():
    step = 0

    def advance():
        nonlocal step
        step += 1
        time.sleep(0.01)

    while True:
        advance()


def inner_loops():
    while True:
        for step in range(8):
            time.sleep(0.02)


def within():
    for i in range(9):
        for n_iter in range(1000):
            time.sleep(0.02)


def twice():
    for _ in range(2):
        evolve_shortly()
    time.sleep(60)


def evolve_shortly():
    for gen in range(40):
        time.sleep(0.05)


print("ready", flush=True)
WAY = sys.argv[1]
if WAY == "trainer":
    Trainer().train(25)
elif WAY == "slots":
    Slotted().run()
elif WAY == "module":
    iter_num, max_iters, eval_interval = 0, 700, 50
    while iter_num < max_iters:
        iter_num += 1
        time.sleep(0.01)
elif WAY == "bar":
    from tqdm import tqdm

    for _ in tqdm(range(3000), desc="steps"):
        time.sleep(0.01)
elif WAY == "large":
    for step in range(2**40, 2**40 + 3000):
        time.sleep(0.01)
elif WAY == "nothing":
    time.sleep(60)
else:
    globals()[WAY](*([25] if WAY in ("evolve", "study") else []))
