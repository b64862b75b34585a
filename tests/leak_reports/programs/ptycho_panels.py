"""Ptychographic reconstruction of a test object, with a panel figure that follows the fit."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import time
from collections import deque

import numpy as np
import torch
from matplotlib import pyplot as plt

torch.set_num_threads(1)

CONFIG = {
    "probe_px": 64,
    "object_px": 256,
    "positions": 120,
    "modes": 4,
    "epochs": 70,
    "batch": 15,
    "lr": 0.02,
    "panel_size": (5.0, 2.8),
    "pace_s": 1.0,
}


class ScanDataset:
    """Diffraction patterns of a simulated object, measured on a jittered grid."""

    def __init__(self, cfg, gen):
        n, m = cfg["object_px"], cfg["probe_px"]
        span = n - m
        self.corners = torch.randint(0, span, (cfg["positions"], 2), generator=gen)
        ax = torch.linspace(-1, 1, n)
        phase = torch.sin(9 * ax)[:, None] * torch.cos(7 * ax)[None, :]
        self.truth = torch.polar(torch.full((n, n), 0.9), 0.8 * phase)
        r = torch.linspace(-1, 1, m)
        self.illumination = torch.exp(-4 * (r[:, None] ** 2 + r[None, :] ** 2)).to(torch.complex64)
        self.patterns = torch.stack(
            [
                torch.fft.fft2(self.illumination * self.truth[y : y + m, x : x + m]).abs()
                for y, x in self.corners.tolist()
            ]
        )

    def __len__(self):
        return len(self.corners)


class Reconstruction(torch.nn.Module):
    def __init__(self, cfg, illumination):
        super().__init__()
        n = cfg["object_px"]
        self.window = cfg["probe_px"]
        self.real = torch.nn.Parameter(torch.ones(cfg["modes"], n, n))
        self.imag = torch.nn.Parameter(torch.zeros(cfg["modes"], n, n))
        self.register_buffer("probe", illumination)

    def object_modes(self):
        return torch.complex(self.real, self.imag)

    def forward(self, corners):
        obj = self.object_modes().mean(dim=0)
        m = self.window
        views = torch.stack([obj[y : y + m, x : x + m] for y, x in corners.tolist()])
        return torch.fft.fft2(self.probe * views).abs()


def plot_stack(im, fig, title, transform):
    """Shows one slice of a stack; the up and down keys step through the others."""
    fig.plot_idx = 0
    ax = fig.add_subplot(111)
    shown = ax.imshow(transform(im[0]).numpy(), cmap="viridis")
    ax.set_title(title, fontsize=8)

    def on_action(event):
        if event.inaxes not in fig.axes:
            return
        step = {"up": -1, "down": 1}.get(event.key)
        if step is None:
            return
        fig.plot_idx = (fig.plot_idx + step) % len(im)
        shown.set_data(transform(im[fig.plot_idx]).numpy())
        fig.canvas.draw_idle()

    fig.canvas.mpl_connect("key_press_event", on_action)
    return fig


class Inspector:
    """One figure with a panel for each quantity, redrawn after every epoch."""

    def __init__(self, cfg):
        self.fig = plt.figure("reconstruction", figsize=cfg["panel_size"])
        self.last_render = None
        self.render_times = deque(maxlen=20)

    def render(self, model, residuals):
        t0 = time.time()
        self.fig.clear()
        left, right = self.fig.subfigures(1, 2)
        modes = model.object_modes().detach()
        plot_stack(modes, left, "object phase", torch.angle)
        plot_stack(residuals, right, "residual", lambda r: r)
        self.fig.canvas.draw()
        self.last_render = np.asarray(self.fig.canvas.buffer_rgba()).copy()
        self.render_times.append(time.time() - t0)


class Fitter:
    def __init__(self, cfg):
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(2)
        self.data = ScanDataset(cfg, self.gen)
        self.model = Reconstruction(cfg, self.data.illumination)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg["lr"])
        self.loss_history = []

    def epoch(self):
        order = torch.randperm(len(self.data), generator=self.gen)
        residuals = torch.zeros_like(self.data.patterns)
        total = 0.0
        for idx in order.split(self.cfg["batch"]):
            simulated = self.model(self.data.corners[idx])
            diff = simulated - self.data.patterns[idx]
            loss = diff.pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            residuals[idx] = diff.detach()
            total += loss.item() * len(idx)
        self.loss_history.append(total / len(self.data))
        return residuals


def main():
    cfg = CONFIG
    fitter = Fitter(cfg)
    inspector = Inspector(cfg)
    for epoch in range(1, cfg["epochs"] + 1):
        began = time.time()
        residuals = fitter.epoch()
        inspector.render(fitter.model, residuals)
        print(
            f"epoch {epoch}/{cfg['epochs']} loss {fitter.loss_history[-1]:.5f} "
            f"render {np.mean(inspector.render_times):.2f}s",
            flush=True,
        )
        time.sleep(max(0.0, cfg["pace_s"] - (time.time() - began)))


if __name__ == "__main__":
    main()
