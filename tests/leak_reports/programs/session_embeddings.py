"""Session recommender: user profiles live in an on-disk shelf and are updated in place."""

import os
import os.path
import shelve
import tempfile
import time
from collections import deque

import numpy as np

ITEMS = 400
DIM = 96
USERS_PER_ROUND = 90
RETURNING_PER_ROUND = 20
ROUNDS = 80
ROUND_SECONDS = 1.6


class ProfileStore:
    """Profiles on disk, one record for each user, changed in place."""

    def __init__(self, path):
        self._db = shelve.open(path, writeback=True)

    def __contains__(self, user):
        return user in self._db

    def add(self, user, profile):
        self._db[user] = profile

    def update(self, user, clicks, vector):
        profile = self._db[user]
        profile["clicks"].extend(clicks)
        profile["sessions"][-1] = vector
        profile["visits"] += 1

    def close(self):
        self._db.close()


class ItemModel:
    def __init__(self, rng):
        self.items = 0.1 * rng.standard_normal((ITEMS, DIM)).astype(np.float32)

    def session_matrix(self, clicks):
        return np.cumsum(self.items[clicks], axis=0)

    def train(self, clicks, rate=0.02, windows=60):
        ends = np.linspace(4, len(clicks), windows).astype(int)
        return float(np.mean([self._train_window(clicks[max(0, end - 12) : end], rate) for end in ends]))

    def _train_window(self, clicks, rate):
        context = self.items[clicks[:-1]].mean(axis=0)
        scores = self.items @ context
        probs = np.exp(scores - scores.max())
        probs /= probs.sum()
        loss = -float(np.log(probs[clicks[-1]] + 1e-9))
        probs[clicks[-1]] -= 1.0
        self.items -= rate * np.outer(probs, context)
        return loss


def draw_session(rng, length=110):
    start = int(rng.integers(0, ITEMS))
    return (start + rng.integers(0, 25, size=length).cumsum()) % ITEMS


def main():
    rng = np.random.default_rng(23)
    model = ItemModel(rng)
    losses = deque(maxlen=500)
    popularity = dict.fromkeys(range(ITEMS), 0)
    users = 0
    with tempfile.TemporaryDirectory(prefix="profiles-") as folder:
        store = ProfileStore(os.path.join(folder, "profiles"))
        for turn in range(1, ROUNDS + 1):
            tick = time.perf_counter()
            for _ in range(USERS_PER_ROUND):
                clicks = draw_session(rng)
                losses.append(model.train(clicks))
                store.add(
                    f"user:{users:07d}",
                    {"clicks": clicks.tolist(), "visits": 1, "sessions": [model.session_matrix(clicks)]},
                )
                users += 1
            for user in rng.integers(0, users, size=RETURNING_PER_ROUND):
                clicks = draw_session(rng, length=20)
                losses.append(model.train(clicks))
                store.update(f"user:{user:07d}", clicks.tolist(), model.session_matrix(clicks))
                for item in clicks:
                    popularity[int(item)] += 1
            print(f"round {turn}/{ROUNDS} users={users} loss={np.mean(losses):.3f}", flush=True)
            time.sleep(max(0.0, ROUND_SECONDS - (time.perf_counter() - tick)))
        store.close()


if __name__ == "__main__":
    main()
