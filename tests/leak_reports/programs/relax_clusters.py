"""Relax noisy Morse clusters with a batched L-BFGS; forces come from autograd."""

import time
from dataclasses import dataclass

import numpy as np
import torch

torch.set_num_threads(1)
DTYPE = torch.float64


class MorsePotential(torch.nn.Module):
    """Pair potential with a smooth cut-off, one learnable well depth for each pair of species."""

    def __init__(self, species=2, r0=1.2, alpha=2.5, cutoff=3.2):
        super().__init__()
        self.depth = torch.nn.Parameter(torch.rand(species, species, dtype=DTYPE) * 0.4 + 0.8)
        self.r0, self.alpha, self.cutoff = r0, alpha, cutoff

    def forward(self, positions, kinds):
        positions.requires_grad_(True)
        delta = positions[:, :, None, :] - positions[:, None, :, :]
        dist = torch.sqrt((delta**2).sum(-1) + 1e-9)
        depth = self.depth[kinds][:, kinds]
        x = torch.exp(-self.alpha * (dist - self.r0))
        window = torch.clamp(1.0 - (dist / self.cutoff) ** 2, min=0.0) ** 2
        pair = depth * (x * x - 2.0 * x) * window
        eye = torch.eye(dist.shape[-1], dtype=torch.bool)
        energy = 0.5 * pair.masked_fill(eye, 0.0).sum((1, 2))
        forces = -torch.autograd.grad(energy.sum(), positions)[0]
        return energy.detach(), forces


@dataclass
class RelaxState:
    positions: torch.Tensor
    forces: torch.Tensor
    energy: torch.Tensor
    s_history: torch.Tensor
    y_history: torch.Tensor


class BatchedLBFGS:
    def __init__(self, potential, kinds, memory=6, max_step=0.06):
        self.potential = potential
        self.kinds = kinds
        self.memory = memory
        self.max_step = max_step

    def init(self, positions):
        energy, forces = self.potential(positions, self.kinds)
        empty = positions.new_zeros((positions.shape[0], 0) + positions.shape[1:])
        return RelaxState(positions, forces, energy, empty, empty.clone())

    def direction(self, state):
        q = -state.forces
        used = state.s_history.shape[1]
        alphas = []
        dots = (state.s_history * state.y_history).sum((-1, -2)).clamp(min=1e-8)
        for i in reversed(range(used)):
            a = (state.s_history[:, i] * q).sum((-1, -2)) / dots[:, i]
            q = q - a[:, None, None] * state.y_history[:, i]
            alphas.append(a)
        q = q * 0.02
        for i, a in zip(range(used), reversed(alphas)):
            b = (state.y_history[:, i] * q).sum((-1, -2)) / dots[:, i]
            q = q + (a - b)[:, None, None] * state.s_history[:, i]
        return -q

    def step(self, state):
        move = self.direction(state)
        longest = move.norm(dim=-1).amax(dim=1).clamp(min=1e-12)
        move = move * (self.max_step / longest).clamp(max=1.0)[:, None, None]
        target = state.positions + move
        energy, forces = self.potential(target, self.kinds)
        s_new = target - state.positions
        y_new = state.forces - forces
        state.s_history = torch.cat([state.s_history, s_new.unsqueeze(1)], dim=1)[:, -self.memory :]
        state.y_history = torch.cat([state.y_history, y_new.unsqueeze(1)], dim=1)[:, -self.memory :]
        state.positions, state.forces, state.energy = target, forces, energy
        return state


class RadialProfile:
    """Smoothed radial distribution of the pairs, averaged over the clusters."""

    def __init__(self, reach=4.0, bins=240, width=0.08):
        self.centres = np.linspace(0.4, reach, bins)
        self.width = width

    def first_peak(self, positions):
        points = positions.detach().numpy()
        profile = np.zeros(len(self.centres))
        for cluster in points:
            dist = np.sqrt(((cluster[:, None] - cluster[None]) ** 2).sum(-1))
            for values in dist:
                near = values[values < self.centres[-1]]
                kernel = np.exp(-0.5 * ((near[:, None] - self.centres[None]) / self.width) ** 2)
                profile += kernel.sum(0)
        profile /= self.centres**2
        return float(self.centres[50 + profile[50:].argmax()])


class ThermalKick:
    """Shakes the clusters whenever they have come to rest."""

    def __init__(self, every=25, amplitude=0.08):
        self.every = every
        self.amplitude = amplitude

    def apply(self, step, state):
        if step % self.every == 0:
            with torch.no_grad():
                state.positions.add_(torch.randn_like(state.positions) * self.amplitude)


def main():
    torch.manual_seed(17)
    clusters, atoms = 10, 32
    kinds = torch.randint(0, 2, (atoms,))
    grid = torch.stack(torch.meshgrid(*[torch.arange(4, dtype=DTYPE)] * 3, indexing="ij"), -1)
    start = grid.reshape(-1, 3)[:atoms] * 1.25
    positions = start[None] + 0.15 * torch.randn(clusters, atoms, 3, dtype=DTYPE)
    optimiser = BatchedLBFGS(MorsePotential(), kinds)
    state = optimiser.init(positions)
    kick = ThermalKick()
    radial = RadialProfile()
    steps = 360
    for step in range(1, steps + 1):
        for _ in range(2):
            state = optimiser.step(state)
            time.sleep(0.2)
            peak = radial.first_peak(state.positions)
        kick.apply(step, state)
        print(
            f"Step {step}/{steps} energy {state.energy.mean():.5f} "
            f"max force {state.forces.abs().max():.4f} first peak {peak:.3f}"
        )


if __name__ == "__main__":
    main()
