import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
from collections import defaultdict

import numpy as np


class TrigramModel:
    """Interpolated trigram model with weights tuned by EM on rescored hypotheses."""

    def __init__(self, vocab_size):
        self.vocab_size = vocab_size
        self.unigrams = np.ones(vocab_size)
        self.words_seen = vocab_size
        self.bigrams = defaultdict(lambda: defaultdict(int))
        self.trigrams = defaultdict(lambda: defaultdict(int))
        self.weights = np.array([0.2, 0.3, 0.5])

    def train(self, sentence):
        a, b = 0, 0
        for w in sentence:
            self.unigrams[w] += 1
            self.words_seen += 1
            self.bigrams[b][w] += 1
            self.trigrams[a, b][w] += 1
            a, b = b, w

    def components(self, a, b, w):
        uni = self.unigrams[w] / self.words_seen
        bi_row, tri_row = self.bigrams[b], self.trigrams[a, b]
        bi = bi_row[w] / (sum(bi_row.values()) or 1) if w in bi_row else 0.0
        tri = tri_row[w] / (sum(tri_row.values()) or 1) if w in tri_row else 0.0
        return uni, bi, tri

    def score(self, sentence):
        a, b, rows = 0, 0, []
        for w in sentence:
            rows.append(self.components(a, b, w))
            a, b = b, w
        probs = np.asarray(rows)
        return float(np.log(probs @ self.weights).sum()), probs

    def update_weights(self, stats, rate=0.1):
        post = stats * self.weights
        post /= post.sum(axis=1, keepdims=True)
        self.weights = (1 - rate) * self.weights + rate * post.mean(axis=0)


class Speech:
    def __init__(self, vocab_size, seed):
        self.rng = np.random.default_rng(seed)
        ranks = np.arange(1, vocab_size + 1)
        self.cdf = np.cumsum(1 / ranks**1.05)
        self.cdf /= self.cdf[-1]
        self.follow = self.rng.integers(vocab_size, size=(vocab_size, 6))

    def words(self, n):
        return np.searchsorted(self.cdf, self.rng.random(n))

    def sentence(self, length=14):
        out = list(self.words(length))
        for i in range(1, length):
            if self.rng.random() < 0.6:
                out[i] = int(self.follow[out[i - 1], self.rng.integers(6)])
        return [int(w) for w in out]

    def nbest(self, sentence, size=24):
        hyps = [list(sentence) for _ in range(size)]
        for hyp in hyps[1:]:
            for pos in self.rng.integers(len(hyp), size=2):
                hyp[pos] = int(self.rng.integers(len(self.follow)))
        return hyps


def main(batches=6000, vocab_size=15_000):
    speech = Speech(vocab_size, seed=4)
    model = TrigramModel(vocab_size)
    for _ in range(9_000):
        model.train(speech.sentence())
    print(f"trained on 9000 sentences, weights {model.weights.round(3)}", flush=True)
    wer = 0.3
    for batch in range(1, batches + 1):
        wrong, stats = 0, []
        for _ in range(8):
            reference = speech.sentence()
            hyps = speech.nbest(reference)
            acoustic = speech.rng.normal(0, 4, len(hyps)) + 10 * (np.arange(len(hyps)) == 0)
            scored = [model.score(h) for h in hyps]
            best = int(np.argmax(acoustic + np.array([s for s, _ in scored])))
            stats.append(scored[best][1])
            wrong += sum(x != y for x, y in zip(reference, hyps[best]))
        model.update_weights(np.concatenate(stats))
        wer = 0.95 * wer + 0.05 * wrong / (8 * 14)
        if batch % 5 == 0:
            print(f"batch {batch}/{batches} wer {wer:.3f} weights {model.weights.round(3)}", flush=True)


if __name__ == "__main__":
    main()
