import time

import numpy as np
import torch

torch.set_num_threads(1)
from tensordict import TensorDict
from torchrl.data import ListStorage, TensorDictReplayBuffer

EPOCHS = 27
STEPS_PER_EPOCH = 150
STEPS_PER_S = 30
CAPACITY = 2430
SHAPE = (2, 180, 280)


class HealthGathering:
    """A tiny stand-in world: move over a floor of acid, pick up kits."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.walls = [self.rng.integers(0, 90, SHAPE, dtype=np.uint8) for _ in range(32)]
        self.where = np.zeros(2)

    def observe(self):
        img = self.walls[int(abs(self.where).sum()) % len(self.walls)].copy()
        r, c = (np.abs(self.where) * 7).astype(int) % 160
        img[:, r : r + 12, c : c + 12] = 255
        return torch.from_numpy(img)

    def step(self, action):
        self.where += [(1, 0), (-1, 0), (0, 1)][action]
        self.where = np.clip(self.where, -20, 20)
        return self.observe(), float(np.cos(self.where).sum()), bool(self.rng.random() < 0.01)


class QNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3, stride=2)
        self.out = torch.nn.Linear(4 * 11 * 17, 3)

    def forward(self, x):
        small = x[:, :, ::8, ::8].float() / 255
        return self.out(torch.relu(self.conv(small)).flatten(1))


class Learner:
    def __init__(self):
        self.net = QNet()
        self.opt = torch.optim.RMSprop(self.net.parameters(), lr=2.5e-4)
        self.memory = TensorDictReplayBuffer(storage=ListStorage(CAPACITY), batch_size=16)
        self.env = HealthGathering()
        self.obs = self.env.observe()
        self.scores = []
        self.eval_episodes = []

    def act(self, eps):
        if self.env.rng.random() < eps:
            return int(self.env.rng.integers(3))
        with torch.no_grad():
            return int(self.net(self.obs[None]).argmax())

    def interact(self, eps):
        a = self.act(eps)
        nxt, r, done = self.env.step(a)
        self.memory.add(
            TensorDict(
                {"obs": self.obs, "action": torch.tensor(a), "reward": torch.tensor(r), "done": torch.tensor(done)},
                batch_size=[],
            )
        )
        self.obs = nxt
        self.scores.append(r)

    def learn(self):
        batch = self.memory.sample()
        q = self.net(batch["obs"]).gather(1, batch["action"][:, None])[:, 0]
        loss = torch.nn.functional.smooth_l1_loss(q, batch["reward"])
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def main():
    learner = Learner()
    start, n = time.time(), 0
    for epoch in range(EPOCHS):
        losses = []
        for _ in range(STEPS_PER_EPOCH):
            learner.interact(eps=max(0.1, 1 - epoch / 10))
            n += 1
            if n % 15 == 0:
                losses.append(learner.learn())
            if n % 50 == 0:
                print(f"epoch {epoch} step {n} score {np.mean(learner.scores[-200:]):.3f}", flush=True)
            time.sleep(max(0.0, n / STEPS_PER_S - (time.time() - start)))
        learner.eval_episodes.append((epoch, float(np.mean(losses))))
        print(f"epoch {epoch} loss {learner.eval_episodes[-1][1]:.4f}", flush=True)


if __name__ == "__main__":
    main()
