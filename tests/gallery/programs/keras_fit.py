"""keras.Model.fit with checkpoints: keras_fit.py [--leak: a callback keeps each epoch's predictions]."""

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np

PREDICTIONS = []


class KeepPredictions(keras.callbacks.Callback):
    """What a user writes to draw them later."""

    def on_epoch_end(self, epoch, logs=None):
        PREDICTIONS.append(self.model.predict(inputs, verbose=0).repeat(20, axis=1))


inputs, targets = np.random.rand(100_000, 32).astype("float32"), np.random.rand(100_000, 4).astype("float32")
model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(4)])
model.compile("adam", "mse")
callbacks = [keras.callbacks.ModelCheckpoint("saved/model-{epoch:02d}.keras")]
if "--leak" in sys.argv:
    callbacks.append(KeepPredictions())
model.fit(inputs, targets, epochs=40, batch_size=256, callbacks=callbacks)
