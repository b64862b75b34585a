"""Next-piece model on machine logs; documents are split into pieces in the loader workers."""

import time
from collections import OrderedDict, deque

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

EPOCHS = 48
EPOCH_SECONDS = 2.6
DOCS = 64
SEQ = 160


class PieceTokenizer:
    """Greedy pair merging with ranks, as in byte-pair encoding."""

    def __init__(self):
        alphabet = "abcdefghijklmnopqrstuvwxyz0123456789-_/."
        pairs = ["er", "in", "on", "re", "st", "at", "en", "or", "0x", "io", "se", "tr", "lo", "og", "ke", "rn"]
        self.ranks = {p: i for i, p in enumerate(pairs)}
        self.ids = {t: i + 1 for i, t in enumerate(list(alphabet) + pairs)}
        self.cache = {}

    def split(self, word):
        if word in self.cache:
            return self.cache[word]
        parts = list(word)
        while len(parts) > 1:
            best, where = None, -1
            for i in range(len(parts) - 1):
                r = self.ranks.get(parts[i] + parts[i + 1])
                if r is not None and (best is None or r < best):
                    best, where = r, i
            if best is None:
                break
            parts[where : where + 2] = [parts[where] + parts[where + 1]]
        self.cache[word] = parts
        return parts

    def encode(self, text):
        return [self.ids.get(p, 0) for w in text.split() for p in self.split(w)]


class LogDocs(Dataset):
    """Each access reads the next document of the log: templates with request ids and paths."""

    WORDS = "kernel store login retry error state token origin series trains".split()

    def __init__(self, tokenizer, n_docs=DOCS):
        self.tokenizer = tokenizer
        self.n_docs = n_docs
        self.lengths = deque(maxlen=500)
        self.templates = OrderedDict()
        self.rng = None

    def __len__(self):
        return self.n_docs

    def template(self, k):
        if k not in self.templates:
            self.templates[k] = [self.WORDS[(k + j) % len(self.WORDS)] for j in range(6)]
            if len(self.templates) > 32:
                self.templates.popitem(last=False)
        return self.templates[k]

    def __getitem__(self, index):
        if self.rng is None:
            self.rng = np.random.default_rng(torch.initial_seed() % 2**32)
        words = list(self.template(index % 40))
        for _ in range(62):
            words.append("/req/" + self.rng.bytes(20).hex())
        ids = self.tokenizer.encode(" ".join(words))
        self.lengths.append(len(ids))
        ids = (ids + [0] * SEQ)[:SEQ]
        return torch.tensor(ids)


class PieceModel(nn.Module):
    def __init__(self, vocab=64, dim=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        h, _ = self.mix(self.emb(ids))
        return self.out(h)


def main():
    torch.manual_seed(0)
    loader = DataLoader(
        LogDocs(PieceTokenizer()), batch_size=16, num_workers=2, persistent_workers=True, prefetch_factor=2
    )
    model = PieceModel()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    loss_fn = nn.CrossEntropyLoss()
    history = []
    for epoch in range(1, EPOCHS + 1):
        t0 = time.time()
        total, n = 0.0, 0
        for ids in loader:
            opt.zero_grad()
            logits = model(ids[:, :-1])
            loss = loss_fn(logits.reshape(-1, 64), ids[:, 1:].reshape(-1))
            loss.backward()
            opt.step()
            total += loss.item()
            n += 1
        history.append(total / n)
        print(f"epoch {epoch}/{EPOCHS} loss {history[-1]:.4f}", flush=True)
        time.sleep(max(0.1, EPOCH_SECONDS - (time.time() - t0)))


if __name__ == "__main__":
    main()
