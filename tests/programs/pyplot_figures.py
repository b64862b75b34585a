"""A training loop that draws its rewards with pyplot and never closes a figure."""

import time

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt


class Trainer:
    def __init__(self):
        self.rewards = []

    def epoch(self, number):
        self.rewards += [number % 7, number % 5]
        for _ in range(4):
            figure, axes = plt.subplots()
            axes.plot(self.rewards)
            figure.savefig("rewards.png")
        time.sleep(5.0)
        print(f"Epoch {number}/10", flush=True)


trainer = Trainer()
for number in range(1, 11):
    trainer.epoch(number)
