import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import asyncio

import numpy as np
from scipy import special

DIM = 256


class Message:
    def __init__(self, ident, chat, reply_to, encoding):
        self.ident, self.chat, self.reply_to = ident, chat, reply_to
        self.encoding = encoding


class Store:
    """Keeps the messages that replies may refer to."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.store = {}
        self.hits = 0

    def __setitem__(self, key, value):
        self.store[key] = value
        if len(self.store) > self.capacity:
            del self.store[next(iter(self.store))]

    def get(self, key):
        message = self.store.get(key)
        if message is not None:
            self.hits += 1
            self.store[key] = self.store.pop(key)
        return message


class Encoder:
    def __init__(self, vocab=6000, seed=0):
        rng = np.random.default_rng(seed)
        self.table = rng.standard_normal((vocab, DIM)).astype(np.float32)
        self.mix = (rng.standard_normal((DIM, DIM)) / np.sqrt(DIM)).astype(np.float32)

    def __call__(self, tokens):
        h = self.table[tokens]
        for _ in range(24):
            scores = h @ self.mix @ h.T / DIM**0.5
            weights = np.exp(scores - scores.max(1, keepdims=True))
            h = 0.9 * h + 0.1 * (weights / weights.sum(1, keepdims=True)) @ h
        return h


class Router:
    def __init__(self, topics=12, max_messages=3000):
        self.encoder = Encoder()
        self.cache = Store(max_messages)
        self.coef = np.zeros((2 * DIM, topics))
        self.accuracy = 1 / topics

    def pooled(self, message):
        parent = self.cache.get((message.chat, message.reply_to)) if message.reply_to is not None else None
        context = parent.encoding.mean(0) if parent is not None else np.zeros(DIM)
        return np.concatenate([message.encoding.mean(0), context])

    async def handle(self, updates):
        rows = []
        for ident, chat, reply_to, tokens, _ in updates:
            message = Message(ident, chat, reply_to, self.encoder(tokens))
            rows.append(self.pooled(message))
            self.cache[chat, ident] = message
            await asyncio.sleep(0)
        X, y = np.stack(rows), np.array([update[-1] for update in updates])
        prob = special.softmax(X @ self.coef, axis=1)
        self.accuracy = 0.97 * self.accuracy + 0.03 * float((prob.argmax(1) == y).mean())
        for _ in range(10):
            prob[np.arange(len(y)), y] -= 1
            self.coef -= 0.3 * X.T @ prob / len(y)
            prob = special.softmax(X @ self.coef, axis=1)


async def listen(queue, batches, seed=7):
    rng = np.random.default_rng(seed)
    centers = rng.integers(6000, size=(12, 300))
    for batch in range(batches):
        updates = []
        for ident in range(16 * batch, 16 * batch + 16):
            topic = int(rng.integers(12))
            tokens = np.where(rng.random(96) < 0.2, rng.choice(centers[topic], 96), rng.integers(6000, size=96))
            reply_to = ident - int(rng.geometric(0.01)) if rng.random() < 0.5 else None
            updates.append((ident, ident % 5, reply_to, tokens, topic))
        await queue.put(updates)
    await queue.put(None)


async def main(batches=1400):
    queue = asyncio.Queue(maxsize=2)
    router = Router()
    listener = asyncio.create_task(listen(queue, batches))
    n = 0
    while (updates := await queue.get()) is not None:
        await router.handle(updates)
        n += 1
        if n % 5 == 0:
            print(f"update {n}/{batches} accuracy {router.accuracy:.3f} known replies {router.cache.hits}", flush=True)
    await listener


if __name__ == "__main__":
    asyncio.run(main())
