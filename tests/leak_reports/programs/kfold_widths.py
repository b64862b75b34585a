import os

os.environ["KERAS_BACKEND"] = "torch"

import time

import numpy as np
import torch

torch.set_num_threads(1)
import keras

N_ROUNDS = 9
N_FOLDS = 10
PERIOD = 1.5
FEATURES = 96
CLASS_NAMES = ["class_%03d" % i for i in range(12)]


class SensorData:
    """A fixed synthetic table with a few noisy linear classes."""

    def __init__(self, rows=3000, seed=3):
        rng = np.random.default_rng(seed)
        self.x = rng.normal(size=(rows, FEATURES)).astype("float32")
        w = rng.normal(size=(FEATURES, len(CLASS_NAMES)))
        self.y = (self.x @ w + rng.normal(size=(rows, len(CLASS_NAMES)))).argmax(1)
        self.order = rng.permutation(rows)

    def fold(self, k, n):
        held = self.order[k::n]
        keep = np.setdiff1d(self.order, held)[:256]
        return (self.x[keep], self.y[keep]), (self.x[held][:128], self.y[held][:128])


def make_network(width):
    net = keras.Sequential(
        [
            keras.layers.Input((FEATURES,)),
            keras.layers.Dense(width, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(width // 2, activation="relu"),
            keras.layers.Dense(len(CLASS_NAMES), activation="softmax"),
        ]
    )
    net.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return net


class CrossValidation:
    def __init__(self, data, folds):
        self.data = data
        self.folds = folds
        self.scores = {}
        self.curves = []

    def run_fold(self, round_no, k, width):
        train, held = self.data.fold(k, self.folds)
        net = make_network(width)
        fit = net.fit(*train, epochs=1, batch_size=128, verbose=0, validation_data=held, shuffle=False)
        self.curves.append(fit)
        acc = float(fit.history["val_accuracy"][-1])
        self.scores.setdefault(width, []).append(acc)
        return acc

    def best_width(self):
        return max(self.scores, key=lambda w: np.mean(self.scores[w]))


def main():
    cv = CrossValidation(SensorData(), N_FOLDS)
    widths = [576 + 8 * i for i in range(N_ROUNDS)]
    for round_no, width in enumerate(widths):
        for k in range(N_FOLDS):
            t0 = time.time()
            acc = cv.run_fold(round_no, k, width)
            print(
                f"round {round_no + 1}/{N_ROUNDS} width {width} fold {k + 1}/{N_FOLDS} val_accuracy {acc:.4f}",
                flush=True,
            )
            time.sleep(max(0.0, PERIOD - (time.time() - t0)))
    losses = [c.history["loss"][-1] for c in cv.curves]
    print(f"best width {cv.best_width()} mean train loss {np.mean(losses):.4f}", flush=True)


if __name__ == "__main__":
    main()
