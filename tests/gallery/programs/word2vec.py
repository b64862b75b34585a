"""gensim's Word2Vec with logging and a save after each epoch: word2vec.py [--leak: vectors are kept]."""

import logging
import sys

import numpy as np
from gensim.models import Word2Vec
from gensim.models.callbacks import CallbackAny2Vec

logging.basicConfig(format="%(asctime)s : %(levelname)s : %(message)s", level=logging.INFO)


class Epochs(CallbackAny2Vec):
    """What a user writes to compare the epochs later."""

    def __init__(self):
        self.vectors, self.epoch = [], 0

    def on_epoch_end(self, model):
        self.epoch += 1
        model.save(f"word2vec-{self.epoch}.model")
        if "--leak" in sys.argv:
            self.vectors.append(model.wv.vectors.copy())


words = np.random.zipf(1.3, (20000, 20)) % 20000
Word2Vec(
    [[f"w{word}" for word in line] for line in words], epochs=80, vector_size=300, min_count=1, callbacks=[Epochs()]
)
