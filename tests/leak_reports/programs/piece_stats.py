"""Piece statistics of a long stream of sequences, with a subword tokenizer trained beforehand."""

import os

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import time
from collections import deque

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

ROUNDS = 62
ROUND_SECONDS = 2.0
LINES = 6
WORDS = 60


class SequenceStream:
    """Protein-like strings of about 200 letters, never the same twice."""

    LETTERS = np.frombuffer(b"acdefghiklmnpqrstvwy", dtype=np.uint8)

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def word(self, n):
        return self.LETTERS[self.rng.integers(0, 20, size=n)].tobytes().decode()

    def line(self, words=WORDS, length=200):
        return " ".join(self.word(length) for _ in range(words))


class PieceCounter:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.counts = np.zeros(tokenizer.get_vocab_size(), dtype=np.int64)
        self.recent_lines = deque(maxlen=5)
        self.perplexities = []

    def feed(self, line):
        ids = np.array(self.tokenizer.encode(line).ids)
        np.add.at(self.counts, ids, 1)
        self.recent_lines.append(line[:400])
        return len(ids)

    def close_round(self):
        p = self.counts[self.counts > 0] / self.counts.sum()
        self.perplexities.append(float(np.exp(-(p * np.log(p)).sum())))
        return self.perplexities[-1]


def train_tokenizer():
    stream = SequenceStream(0)
    tok = Tokenizer(models.BPE(unk_token="[UNK]"))
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["[UNK]"], show_progress=False)
    tok.train_from_iterator((stream.line(40, 12) for _ in range(200)), trainer)
    return tok


def main():
    counter = PieceCounter(train_tokenizer())
    stream = SequenceStream(1)
    for k in range(1, ROUNDS + 1):
        t0 = time.time()
        n = sum(counter.feed(stream.line()) for _ in range(LINES))
        print(f"round {k}/{ROUNDS} pieces {n} perplexity {counter.close_round():.2f}", flush=True)
        time.sleep(max(0.1, ROUND_SECONDS - (time.time() - t0)))


if __name__ == "__main__":
    main()
