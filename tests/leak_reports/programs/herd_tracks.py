"""Annotates drone video of a reindeer herd: detections are joined to tracks (ByteTrack style)."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import itertools
import time
from collections import deque

import numpy as np
from scipy.optimize import linear_sum_assignment

CONFIG = {
    "width": 3840,
    "height": 2160,
    "animals": 48,
    "clips": 78,
    "frames_per_clip": 40,
    "embed_dim": 512,
    "embed_history": 64,
    "buffer_frames": 6,
    "match_thresh": 150.0,
    "pace_s": 0.95,
}


class KalmanBox:
    """Constant-velocity filter over the centre of a box."""

    def __init__(self, xy):
        self.mean = np.array([xy[0], xy[1], 0, 0], dtype=np.float64)
        self.covariance = np.diag([30.0, 30.0, 100.0, 100.0])
        self.motion = np.eye(4)
        self.motion[0, 2] = self.motion[1, 3] = 1.0
        self.noise = np.diag([4.0, 4.0, 1.0, 1.0])

    def predict(self):
        self.mean = self.motion @ self.mean
        self.covariance = self.motion @ self.covariance @ self.motion.T + self.noise

    def update(self, xy):
        s = self.covariance[:2, :2] + np.eye(2) * 16.0
        gain = self.covariance[:, :2] @ np.linalg.inv(s)
        self.mean = self.mean + gain @ (np.asarray(xy) - self.mean[:2])
        self.covariance = self.covariance - gain @ self.covariance[:2]


class STrack:
    _ids = itertools.count(1)

    def __init__(self, xy, embedding, frame_id, history):
        self.track_id = next(self._ids)
        self.kalman = KalmanBox(xy)
        self.features = deque([], maxlen=history)
        self.smooth_feat = None
        self.start_frame = frame_id
        self.end_frame = frame_id
        self.update_features(embedding)

    def update_features(self, embedding):
        unit = embedding / np.linalg.norm(embedding)
        if self.smooth_feat is None:
            self.smooth_feat = unit.copy()
        else:
            self.smooth_feat = 0.9 * self.smooth_feat + 0.1 * unit
        self.features.append(unit)

    def update(self, xy, embedding, frame_id):
        self.kalman.update(xy)
        self.update_features(embedding)
        self.end_frame = frame_id


def sub_stracks(tracks, other):
    keep = {t.track_id: t for t in tracks}
    for t in other:
        keep.pop(t.track_id, None)
    return list(keep.values())


class HerdTracker:
    def __init__(self, cfg):
        self.cfg = cfg
        self.frame_id = 0
        self.tracked_stracks = []
        self.lost_stracks = []
        self.removed_stracks = []

    def update(self, centres, embeddings):
        self.frame_id += 1
        pool = self.tracked_stracks + self.lost_stracks
        for track in pool:
            track.kalman.predict()
        matched, fresh = self._associate(pool, centres)
        activated, removed = [], []
        for ti, di in matched:
            pool[ti].update(centres[di], embeddings[di], self.frame_id)
            activated.append(pool[ti])
        for di in fresh:
            activated.append(STrack(centres[di], embeddings[di], self.frame_id, self.cfg["embed_history"]))
        lost = [t for t in pool if t.end_frame < self.frame_id]
        for track in lost:
            if self.frame_id - track.end_frame > self.cfg["buffer_frames"]:
                removed.append(track)
        self.tracked_stracks = activated
        self.lost_stracks = sub_stracks(lost, removed)
        self.lost_stracks = sub_stracks(self.lost_stracks, self.removed_stracks)
        self.removed_stracks.extend(removed)
        return self.tracked_stracks

    def _associate(self, pool, centres):
        if not pool or len(centres) == 0:
            return [], list(range(len(centres)))
        predicted = np.array([t.kalman.mean[:2] for t in pool])
        cost = np.hypot(*(predicted[:, None] - centres[None]).transpose(2, 0, 1))
        rows, cols = linear_sum_assignment(cost)
        matched = [(r, c) for r, c in zip(rows, cols) if cost[r, c] < self.cfg["match_thresh"]]
        used = {c for _, c in matched}
        return matched, [d for d in range(len(centres)) if d not in used]


class DroneFootage:
    """Animals walk through the view and leave it; new ones come in at the left edge."""

    def __init__(self, cfg, rng):
        self.cfg, self.rng = cfg, rng
        self.gallery = rng.standard_normal((400, cfg["embed_dim"])).astype(np.float32)
        self.background = rng.integers(0, 255, (cfg["height"] // 4, cfg["width"] // 4, 3), dtype=np.uint8)
        self.pos = rng.uniform(0, 1, (cfg["animals"], 2)) * [cfg["width"], cfg["height"]]
        self.speed = rng.uniform(45, 90, cfg["animals"])
        self.who = rng.integers(0, len(self.gallery), cfg["animals"])

    def frame(self):
        self.pos[:, 0] += self.speed
        self.pos[:, 1] += self.rng.normal(0, 3, len(self.pos))
        gone = self.pos[:, 0] > self.cfg["width"]
        self.pos[gone, 0] = 0
        self.pos[gone, 1] = self.rng.uniform(0, self.cfg["height"], gone.sum())
        self.who[gone] = self.rng.integers(0, len(self.gallery), gone.sum())
        seen = self.rng.random(len(self.pos)) > 0.06
        look = self.gallery[self.who[seen]] + 0.1 * self.rng.standard_normal((seen.sum(), self.cfg["embed_dim"]))
        return self.pos[seen], look.astype(np.float32)


def main():
    cfg = CONFIG
    rng = np.random.default_rng(3)
    footage = DroneFootage(cfg, rng)
    tracker = HerdTracker(cfg)
    speeds = deque(maxlen=5000)
    for clip in range(1, cfg["clips"] + 1):
        began = time.time()
        for _ in range(cfg["frames_per_clip"]):
            active = tracker.update(*footage.frame())
            speeds.extend(float(np.hypot(*t.kalman.mean[2:])) for t in active)
        print(
            f"clip {clip}/{cfg['clips']} active {len(active)} lost {len(tracker.lost_stracks)} "
            f"mean speed {np.mean(speeds):.1f} px",
            flush=True,
        )
        time.sleep(max(0.0, cfg["pace_s"] - (time.time() - began)))


if __name__ == "__main__":
    main()
