import io
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

torch.set_num_threads(1)

STEPS = 260
PERIOD = 0.5
TOKENS = 384
DIM = 24


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q = torch.nn.Linear(DIM, DIM, bias=False)
        self.k = torch.nn.Linear(DIM, DIM, bias=False)
        self.v = torch.nn.Linear(DIM, DIM, bias=False)

    def forward(self, x):
        att = torch.softmax(self.q(x) @ self.k(x).T / DIM**0.5, dim=-1)
        return att @ self.v(x), att


class LiveMap:
    """One window that shows the attention map, redrawn while training runs."""

    def __init__(self):
        self.fig, self.axes = plt.subplots(1, 2, figsize=(3, 1.5), dpi=40)
        self.axes[1].set_title("loss")
        (self.line,) = self.axes[1].plot([], [])
        self.thumbs = []

    def show(self, step, att, losses):
        self.axes[0].imshow(att, vmin=0.0, vmax=0.02, cmap="magma")
        self.axes[0].set_title("step %d" % step)
        self.line.set_data(range(len(losses)), losses)
        if step % 40 == 0:
            with io.BytesIO() as out:
                self.fig.savefig(out, format="png")
                self.thumbs.append(out.getvalue())


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.head = Head()
        self.opt = torch.optim.Adam(self.head.parameters(), lr=3e-3)
        self.corpus = [torch.randn(TOKENS, DIM) for _ in range(48)]
        self.losses = []
        self.view = LiveMap()

    def step(self, i):
        x = self.corpus[i % len(self.corpus)]
        y, att = self.head(x)
        loss = ((y - x.roll(1, 0)) ** 2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.losses.append(loss.item())
        self.view.show(i, att.detach().double().numpy(), self.losses)
        return self.losses[-1]


def main():
    trainer = Trainer()
    for i in range(STEPS):
        t0 = time.time()
        loss = trainer.step(i)
        print(f"step {i + 1}/{STEPS} loss {loss:.5f} thumbs {len(trainer.view.thumbs)}", flush=True)
        time.sleep(max(0.0, PERIOD - (time.time() - t0)))
    print("final loss %.5f" % trainer.losses[-1], flush=True)


if __name__ == "__main__":
    main()
