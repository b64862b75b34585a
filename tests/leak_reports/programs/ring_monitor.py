import os
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np


class Oscillators:
    """Kuramoto oscillators on a ring with random long links."""

    def __init__(self, n, rng):
        self.theta = rng.uniform(0, 2 * np.pi, n)
        self.omega = rng.normal(0, 0.6, n)
        self.links = rng.integers(0, n, size=(n, 6))

    def advance(self, steps, k, dt=0.02):
        trace = np.empty(steps)
        waves = np.empty((steps, len(self.theta[::50])), dtype=np.float64)
        for i in range(steps):
            pull = np.sin(self.theta[self.links] - self.theta[:, None]).mean(1)
            self.theta += dt * (self.omega + k * pull)
            trace[i] = np.abs(np.exp(1j * self.theta).mean())
            waves[i] = np.sin(self.theta[::50])
        return trace, waves


class Monitor:
    def __init__(self, folder):
        self.fig, (self.ax_order, self.ax_phase) = plt.subplots(2, 1, figsize=(7, 6))
        self.folder = folder

    def update(self, trace, waves):
        self.ax_order.set_xlim(0, len(trace))
        self.ax_order.plot(trace, lw=0.6, color="tab:blue")
        self.ax_phase.plot(waves, lw=0.4, color="tab:red", alpha=0.5)

    def save(self, name):
        self.fig.savefig(os.path.join(self.folder, name))


def main(epochs=600, n=2000):
    rng = np.random.default_rng(6)
    net = Oscillators(n, rng)
    with tempfile.TemporaryDirectory() as folder:
        monitor = Monitor(folder)
        monitor.save("start.png")
        for epoch in range(1, epochs + 1):
            coupling = 0.5 + 1.5 * epoch / epochs
            trace, waves = net.advance(220, coupling)
            monitor.update(trace, waves)
            if epoch % 5 == 0:
                print(f"epoch {epoch}/{epochs} coupling {coupling:.2f} order {trace[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
