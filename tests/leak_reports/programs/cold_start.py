"""Matrix-factorisation recommender for a podcast app; each round is evaluated on a fresh sample of listeners."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections import Counter, defaultdict, deque

import numpy as np

CONFIG = {
    "dim": 112,
    "episodes": 24_000,
    "members": 9_000,
    "all_listeners": 40_000_000,
    "rounds": 76,
    "updates_per_round": 9_000,
    "eval_listeners": 9_500,
    "cold_share": 0.8,
    "lr": 0.12,
    "reg": 0.01,
    "pace_s": 1.0,
}


class PlayLog:
    """Who played what. Members are known to the model, the others only pass by."""

    def __init__(self, cfg, rng):
        self.cfg, self.rng = cfg, rng
        self.member_ids = rng.choice(cfg["all_listeners"], cfg["members"], replace=False)
        self.popularity = rng.zipf(1.6, cfg["episodes"]).astype(np.float64)
        self.popularity /= self.popularity.sum()
        self.taste = rng.standard_normal((cfg["members"], 8), dtype=np.float32)
        self.topics = rng.standard_normal((cfg["episodes"], 8), dtype=np.float32)

    def training_plays(self, n):
        who = self.rng.integers(0, len(self.member_ids), n)
        what = self.rng.integers(0, self.cfg["episodes"], n)
        liked = ((self.taste[who] * self.topics[what]).sum(1) > 0).astype(np.float32)
        return self.member_ids[who].tolist(), what, liked

    def evaluation_plays(self, n):
        cold = self.rng.integers(0, self.cfg["all_listeners"], int(n * self.cfg["cold_share"]))
        known = self.rng.choice(self.member_ids, n - len(cold))
        who = np.concatenate([cold, known])
        self.rng.shuffle(who)
        what = self.rng.choice(self.cfg["episodes"], n, p=self.popularity)
        return who.tolist(), what


class Recommender:
    def __init__(self, cfg, rng):
        self.cfg = cfg
        dim = cfg["dim"]
        self.episode_vecs = 0.1 * rng.standard_normal((cfg["episodes"], dim), dtype=np.float32)
        self.episode_bias = np.zeros(cfg["episodes"], dtype=np.float32)
        self.profiles = defaultdict(lambda: np.full(dim, 1.0 / dim, dtype=np.float32))

    def enrol(self, member_ids, rng):
        for uid in member_ids.tolist():
            self.profiles[uid] = 0.1 * rng.standard_normal(self.cfg["dim"], dtype=np.float32)

    def fit(self, who, what, liked):
        lr, reg = self.cfg["lr"], self.cfg["reg"]
        loss = 0.0
        for uid, item, y in zip(who, what, liked):
            p, q = self.profiles[uid], self.episode_vecs[item]
            pred = 1.0 / (1.0 + np.exp(-(p @ q + self.episode_bias[item])))
            err = y - pred
            loss -= np.log(pred if y > 0.5 else 1.0 - pred)
            grad = err * q - reg * p
            q += lr * (err * p - reg * q)
            p += lr * grad
            self.episode_bias[item] += lr * err
        return float(loss) / len(who)

    def score(self, uid, item):
        return float(self.profiles[uid] @ self.episode_vecs[item] + self.episode_bias[item])


class Evaluator:
    def __init__(self, log, model):
        self.log, self.model = log, model
        self.recent = deque(maxlen=20_000)
        self.top_episodes = Counter()

    def run(self, n):
        who, what = self.log.evaluation_plays(n)
        hits = 0
        decoys = self.log.rng.integers(0, self.model.cfg["episodes"], n)
        for uid, item, decoy in zip(who, what, decoys):
            played = self.model.score(uid, item)
            other = self.model.score(uid, decoy)
            hits += played >= other
            self.recent.append(played)
        self.top_episodes.update(what.tolist())
        return hits / n


def main():
    cfg = CONFIG
    rng = np.random.default_rng(8)
    log = PlayLog(cfg, rng)
    model = Recommender(cfg, rng)
    model.enrol(log.member_ids, rng)
    evaluator = Evaluator(log, model)
    for rnd in range(1, cfg["rounds"] + 1):
        began = time.time()
        loss = model.fit(*log.training_plays(cfg["updates_per_round"]))
        auc = evaluator.run(cfg["eval_listeners"])
        print(f"round {rnd}/{cfg['rounds']} loss {loss:.4f} auc {auc:.3f} members {cfg['members']}", flush=True)
        time.sleep(max(0.0, cfg["pace_s"] - (time.time() - began)))


if __name__ == "__main__":
    main()
