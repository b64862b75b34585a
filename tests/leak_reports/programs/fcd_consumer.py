"""Microscopic traffic simulation that publishes floating-car data as one XML stream.

The simulator writes the usual <fcd-export><timestep><vehicle .../></timestep>... document,
the consumer parses the stream while it arrives and learns travel speeds for each lane.
"""

import collections
import time
import xml.etree.ElementTree as ET

import numpy as np

LANES = 48
LANE_LENGTH = 900.0


class Simulation:
    """Intelligent-driver model on parallel ring lanes."""

    def __init__(self, vehicles=130, seed=0):
        self.rng = np.random.default_rng(seed)
        self.lane = np.sort(self.rng.integers(0, LANES, vehicles))
        self.pos = self.rng.uniform(0, LANE_LENGTH, vehicles)
        self.speed = self.rng.uniform(5, 20, vehicles)
        self.wish = self.rng.normal(27.0, 3.0, vehicles)
        self.time = 0.0

    def step(self, dt=0.5):
        order = np.lexsort((self.pos, self.lane))
        lane, pos, speed = self.lane[order], self.pos[order], self.speed[order]
        lead = np.roll(np.arange(len(order)), -1)
        same = lane[lead] == lane
        gap = np.where(same, pos[lead] - pos - 5.0, 300.0)
        gap = np.clip(np.where(gap <= 0, gap + LANE_LENGTH, gap), 1.0, None)
        closing = np.where(same, speed - speed[lead], 0.0)
        wanted = 2.0 + speed * 1.4 + speed * closing / (2 * np.sqrt(1.2 * 2.0))
        accel = 1.2 * (1 - (speed / self.wish[order]) ** 4 - (np.maximum(wanted, 0) / gap) ** 2)
        speed = np.clip(speed + dt * np.clip(accel, -6, 2), 0, 40)
        self.speed[order] = speed
        self.pos[order] = (pos + dt * speed) % LANE_LENGTH
        self.time += dt

    def header(self):
        return '<?xml version="1.0" encoding="UTF-8"?>\n<fcd-export>\n'

    def fcd(self):
        lines = [f'<timestep time="{self.time:.2f}">']
        for k in range(len(self.pos)):
            lines.append(
                f'<vehicle id="veh{k}" x="{self.pos[k]:.2f}" y="{self.lane[k] * 3.2:.2f}" '
                f'angle="90.00" type="car" speed="{self.speed[k]:.2f}" '
                f'pos="{self.pos[k]:.2f}" lane="e0_{self.lane[k]}" slope="0.00"/>'
            )
        lines.append("</timestep>\n")
        return "\n".join(lines)


class FcdReader:
    """Incremental reader: yields the vehicles of every finished time step."""

    def __init__(self):
        self._parser = ET.XMLPullParser(events=("end",))

    def feed(self, text):
        self._parser.feed(text)
        for _, element in self._parser.read_events():
            if element.tag == "timestep":
                yield (
                    float(element.get("time")),
                    [(v.get("id"), int(v.get("lane")[3:]), float(v.get("speed"))) for v in element.iter("vehicle")],
                )


class LaneSpeedModel:
    """Exponential averages for each lane and the variance of the last observations."""

    def __init__(self, rate=0.02):
        self.rate = rate
        self.mean = np.full(LANES, 15.0)
        self.recent = [collections.deque(maxlen=200) for _ in range(LANES)]
        self.trips = {}

    def observe(self, when, vehicles):
        for ident, lane, speed in vehicles:
            self.mean[lane] += self.rate * (speed - self.mean[lane])
            self.recent[lane].append(speed)
            self.trips[ident] = when

    def spread(self, rng, resamples=900):
        """Mean width of the bootstrap interval of the lane speeds."""
        widths = []
        for recent in self.recent:
            if len(recent) > 2:
                draws = rng.choice(np.array(recent), (resamples, len(recent))).mean(axis=1)
                widths.append(np.ptp(np.percentile(draws, (5, 95))))
        return float(np.mean(widths))


def main():
    simulation = Simulation(seed=12)
    history = np.zeros((2400, LANES, 24))
    history += simulation.rng.normal(15.0, 3.0, history.shape)
    reader = FcdReader()
    model = LaneSpeedModel()
    for _ in reader.feed(simulation.header()):
        pass
    rounds = 260
    for number in range(1, rounds + 1):
        for _ in range(8):
            simulation.step()
            for when, vehicles in reader.feed(simulation.fcd()):
                model.observe(when, vehicles)
            time.sleep(0.065)
        deviation = float(np.abs(history.mean(axis=(0, 2)) - model.mean).mean())
        print(
            f"Round {number}/{rounds} t={simulation.time:.0f}s mean speed {model.mean.mean():.3f} "
            f"spread {model.spread(simulation.rng):.3f} vs history {deviation:.3f}"
        )


if __name__ == "__main__":
    main()
