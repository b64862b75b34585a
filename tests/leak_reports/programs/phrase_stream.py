"""Collocations of maritime radio transcripts: gensim Phrases fed hour by hour from an endless stream."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections import deque

import numpy as np
from gensim.models.phrases import Phrases

CONFIG = {
    "words": 60_000,
    "zipf": 1.25,
    "sentences_per_hour": 4600,
    "mean_length": 11,
    "hours": 80,
    "call_sign_share": 0.85,
    "max_vocab": 450_000,
    "min_count": 8,
    "threshold": 2.0,
    "keep_hours": 3,
    "report_every": 12,
    "pace_s": 0.95,
}

SYLLABLES = ["ka", "lo", "mer", "ti", "san", "bru", "nor", "vel", "du", "pri", "sha", "gon"]


class TranscriptStream:
    """Sentences of a Zipf vocabulary with call signs and misheard words in between."""

    def __init__(self, cfg, rng):
        self.cfg, self.rng = cfg, rng
        pick = rng.integers(0, len(SYLLABLES), size=(cfg["words"], 4))
        self.lexicon = ["".join(SYLLABLES[i] for i in row) + str(k % 97) for k, row in enumerate(pick)]
        ranks = np.arange(1, cfg["words"] + 1, dtype=np.float64)
        self.cdf = np.cumsum(ranks ** -cfg["zipf"])
        self.cdf /= self.cdf[-1]
        self.set_phrases = [("mayday", "relay"), ("pan", "pan"), ("port", "side"), ("over", "out")]

    def _call_sign(self):
        a, b = self.rng.integers(0, 10_000_000, 2)
        return f"{a:x}-{b % 89}"

    def hour(self):
        for _ in range(self.cfg["sentences_per_hour"]):
            n = 3 + int(self.rng.poisson(self.cfg["mean_length"]))
            idx = np.searchsorted(self.cdf, self.rng.random(n))
            words = [self.lexicon[i] for i in idx]
            if self.rng.random() < self.cfg["call_sign_share"]:
                words[0] = self._call_sign()
            if self.rng.random() < 0.2:
                words.extend(self.set_phrases[self.rng.integers(0, len(self.set_phrases))])
            yield words


class CollocationModel:
    def __init__(self, cfg):
        self.cfg = cfg
        self.phrases = Phrases(
            min_count=cfg["min_count"],
            threshold=cfg["threshold"],
            max_vocab_size=cfg["max_vocab"],
        )

    def learn(self, sentences):
        self.phrases.add_vocab(sentences)

    def top(self, n=5):
        found = self.phrases.export_phrases()
        return sorted(found.items(), key=lambda kv: -kv[1])[:n]


class RecentHours:
    """The last few hours stay in memory for the duty officer's search."""

    def __init__(self, keep):
        self.hours = deque(maxlen=keep)

    def add(self, sentences):
        self.hours.append(sentences)

    def search(self, word):
        return sum(word in s for hour in self.hours for s in hour)


def main():
    cfg = CONFIG
    rng = np.random.default_rng(21)
    stream = TranscriptStream(cfg, rng)
    model = CollocationModel(cfg)
    recent = RecentHours(cfg["keep_hours"])
    for hour in range(1, cfg["hours"] + 1):
        began = time.time()
        sentences = list(stream.hour())
        model.learn(sentences)
        recent.add(sentences)
        print(
            f"hour {hour}/{cfg['hours']} types {len(model.phrases.vocab)} "
            f"tokens {model.phrases.corpus_word_count} mayday {recent.search('mayday')}",
            flush=True,
        )
        if hour % cfg["report_every"] == 0:
            model.top()
        time.sleep(max(0.0, cfg["pace_s"] - (time.time() - began)))
    print("strongest:", model.top())


if __name__ == "__main__":
    main()
