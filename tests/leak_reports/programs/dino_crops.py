import gc
import time

import torch

torch.set_num_threads(1)

EPOCHS = 13
STEPS = 20
PERIOD = 0.5
BATCH = 6
SIDE = 112
N_LOCAL = 4
CENTER_MOMENTUM = 0.9


class Crop:
    """A view of an image; knows the sample that it was cut from."""

    def __init__(self, sample, pixels, kind):
        self.sample = sample
        self.pixels = pixels
        self.kind = kind


class Sample:
    def __init__(self, image, label):
        self.image = image
        self.label = label
        self.crops = []

    def add_crop(self, kind, size):
        r = torch.randint(0, SIDE - size + 1, (2,)).tolist()
        pixels = self.image[:, r[0] : r[0] + size, r[1] : r[1] + size].clone()
        self.crops.append(Crop(self, pixels, kind))


class ImageFolder:
    def __init__(self, n=64):
        g = torch.Generator().manual_seed(0)
        self.images = [torch.rand(3, SIDE, SIDE, generator=g) for _ in range(n)]
        self.labels = torch.randint(0, 10, (n,), generator=g).tolist()

    def batch(self, size):
        picks = torch.randint(0, len(self.images), (size,)).tolist()
        samples = [Sample(self.images[i] + 0.05 * torch.randn(1), self.labels[i]) for i in picks]
        for s in samples:
            for _ in range(2):
                s.add_crop("global", 64)
            for _ in range(N_LOCAL):
                s.add_crop("local", 32)
        return samples


class Encoder(torch.nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.patch = torch.nn.Conv2d(3, 8, 16, stride=16)
        self.head = torch.nn.Linear(8, dim)

    def forward(self, x):
        return self.head(torch.relu(self.patch(x)).mean((2, 3)))


class SelfDistillation:
    def __init__(self):
        self.student, self.teacher = Encoder(), Encoder()
        self.teacher.load_state_dict(self.student.state_dict())
        self.opt = torch.optim.AdamW(self.student.parameters(), lr=5e-4)
        self.center = torch.zeros(16)
        self.loss_log = []
        self.teacher_snapshots = []

    def step(self, samples):
        views = {
            k: torch.stack([c.pixels for s in samples for c in s.crops if c.kind == k]) for k in ("global", "local")
        }
        with torch.no_grad():
            t = (
                torch.softmax((self.teacher(views["global"]) - self.center) / 0.05, -1)
                .view(len(samples), 2, -1)
                .mean(1)
            )
            self.center = CENTER_MOMENTUM * self.center + (1 - CENTER_MOMENTUM) * t.mean(0)
        s = torch.log_softmax(self.student(views["local"]) / 0.1, -1).view(len(samples), N_LOCAL, -1)
        loss = -(t[:, None] * s).sum(-1).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        with torch.no_grad():
            for a, b in zip(self.teacher.parameters(), self.student.parameters()):
                a.lerp_(b, 0.01)
        self.loss_log.append(loss.item())
        return self.loss_log[-1]


def main():
    torch.manual_seed(0)
    data, trainer = ImageFolder(), SelfDistillation()
    gc.disable()
    for epoch in range(EPOCHS):
        for step in range(STEPS):
            t0 = time.time()
            loss = trainer.step(data.batch(BATCH))
            if step % 2 == 1:
                print(f"epoch {epoch} step {step + 1}/{STEPS} loss {loss:.4f}", flush=True)
            time.sleep(max(0.0, PERIOD - (time.time() - t0)))
        trainer.teacher_snapshots.append({k: v.clone() for k, v in trainer.teacher.state_dict().items()})
    print("done", flush=True)


if __name__ == "__main__":
    main()
