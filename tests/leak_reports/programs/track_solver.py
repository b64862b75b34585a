"""Multi-object tracking: association costs learned from the flow solver's output."""

import ctypes
import time

import numpy as np

_libc = ctypes.CDLL(None)
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]


class FlowSolver:
    """Binding in the way of C solvers that return a vector of their own."""

    def __init__(self, n_tracks=48, n_frames=256):
        self.shape = (n_tracks, n_frames)
        self.nbytes = n_tracks * n_frames * 8
        self.runs = 0

    def solve(self, cost):
        order = np.argsort(cost, axis=0).astype(np.float64)
        ptr = _libc.malloc(self.nbytes)
        ctypes.memmove(ptr, order.ctypes.data, self.nbytes)
        self.runs += 1
        return ctypes.cast(ptr, ctypes.POINTER(ctypes.c_double))

    def tracks(self, cost):
        vec = self.solve(cost)
        return np.ctypeslib.as_array(vec, shape=self.shape)


class Detections:
    def __init__(self, shape, seed=2):
        self.rng = np.random.default_rng(seed)
        self.shape = shape
        self.scenes = [self.rng.normal(size=shape) for _ in range(30)]

    def scene(self, i):
        return self.scenes[i % 30] + 0.1 * self.rng.normal(size=self.shape)


class CostLearner:
    def __init__(self, dim, lr=1e-3):
        self.scale = np.ones(dim)
        self.lr = lr
        self.history = []

    def cost(self, scene):
        return scene * self.scale[:, None]

    def update(self, scene, tracks):
        target = tracks / tracks.shape[0]
        err = self.cost(scene) - target
        self.scale -= self.lr * (err * scene).mean(1)
        loss = float((err**2).mean())
        self.history.append(loss)
        return loss


def main():
    solver = FlowSolver()
    data = Detections(solver.shape)
    learner = CostLearner(solver.shape[0])
    due = time.time()
    step = 0
    for epoch in range(68):
        for _ in range(64):
            scene = data.scene(step)
            loss = learner.update(scene, solver.tracks(learner.cost(scene)))
            step += 1
            due += 0.03125
            time.sleep(max(0.0, due - time.time()))
        print(f"epoch {epoch} loss {loss:.4f} solves {solver.runs} scale {learner.scale.mean():.4f}", flush=True)


if __name__ == "__main__":
    main()
