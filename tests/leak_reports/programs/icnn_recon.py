import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import time

import torch
from torch import nn

torch.set_num_threads(1)


class Encoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 5, stride=2, padding=2)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(2 * width, width, 3, stride=2, padding=1)
        self.fc = nn.Linear(width * 64, 256)

    def forward(self, x):
        h = torch.tanh(self.conv2(torch.tanh(self.conv1(x))))
        h = torch.tanh(self.conv3(h))
        return self.fc(h.flatten(1))


class Generator(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.fc = nn.Linear(256, 2 * width * 64)
        self.up = nn.ModuleList(
            [
                nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
                nn.ConvTranspose2d(width, width, 4, stride=2, padding=1),
                nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1),
            ]
        )

    def forward(self, z):
        h = torch.relu(self.fc(z)).view(len(z), -1, 8, 8)
        h = torch.relu(self.up[1](torch.relu(self.up[0](h))))
        return torch.tanh(self.up[2](h))


class FeatureExtractor:
    """Collects the outputs of some layers for one or more runs of the encoder."""

    def __init__(self, encoder, layers, detach=False):
        self.encoder = encoder
        self.detach = detach
        self._features = {name: [] for name in layers}
        for name in layers:
            getattr(encoder, name).register_forward_hook(self._make_hook(name))

    def _make_hook(self, name):
        def hook(module, inputs, output):
            self._features[name].append(output.detach() if self.detach else output)

        return hook

    def run(self, images):
        for outputs in self._features.values():
            outputs.clear()
        self.encoder(images)
        return {name: outputs[-1] for name, outputs in self._features.items()}


def feature_loss(encoder, recon, target, layers=("conv3", "fc")):
    extractor = FeatureExtractor(encoder, layers)
    with torch.no_grad():
        wanted = extractor.run(target)
    current = extractor.run(recon)
    return sum(nn.functional.mse_loss(current[name], wanted[name]) / wanted[name].var() for name in layers)


def stimuli(batch, gen, size=64):
    y, x = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    cx, cy, f, phi = 2 * torch.rand(4, batch, 3, 1, 1, generator=gen) - 1
    envelope = torch.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 0.15)
    waves = torch.cos(8 * (1 + f.abs()) * (x * phi + y * (1 - phi.abs())))
    return torch.tanh((envelope * waves).sum(1, keepdim=True))


def main(steps=2600, batch=20):
    torch.manual_seed(2)
    gen = torch.Generator().manual_seed(2)
    encoder, generator = Encoder().eval().requires_grad_(False), Generator()
    optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3)
    started = time.time()
    for step in range(1, steps + 1):
        images = stimuli(batch, gen)
        with torch.no_grad():
            codes = encoder(images)
            codes = codes + 0.05 * codes.std() * torch.randn(codes.shape, generator=gen)
        recon = generator(codes)
        loss = feature_loss(encoder, recon, images) + 0.1 * (
            recon.diff(dim=2).abs().mean() + recon.diff(dim=3).abs().mean()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            corr = torch.corrcoef(torch.stack([images.flatten(), recon.detach().flatten()]))[0, 1].item()
            print(
                f"step {step}/{steps} loss {loss.item():.4f} pixel corr {corr:.3f} ({time.time() - started:.0f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
