"""Replay daily plant event frames and roll them up into a per-site alarm report."""

import time

import numpy as np
import pandas as pd

SITES = [f"site-{i:02d}" for i in range(24)]


def load_day(day, rng, events=19000):
    """One day of events indexed by (site, event id), as the archive delivers them."""
    site = rng.choice(SITES, events)
    ids = [f"{day:04d}-{value:016x}-{n:06d}-{site[n]}" for n, value in enumerate(rng.integers(0, 2**62, events))]
    index = pd.MultiIndex.from_arrays([site, np.array(ids, dtype=object)], names=["site", "event"])
    return pd.DataFrame(
        {"severity": rng.gamma(2.0, 1.5, events), "duration": rng.exponential(40.0, events)}, index=index
    ).sort_index()


class AlarmReport:
    """Keeps the worst events of every day, for the monthly report."""

    def __init__(self, per_day=12, threshold=9.0):
        self.per_day, self.threshold = per_day, threshold
        self.worst_by_day = {}
        self.hours = pd.Series(0.0, index=SITES)
        self.alarms = 0

    def ingest(self, day, frame):
        over = frame[frame["severity"] > self.threshold]
        self.alarms += len(over)
        self.hours = self.hours.add(frame["duration"].groupby(level="site").sum() / 60, fill_value=0)
        self.worst_by_day[day] = frame.nlargest(self.per_day, "severity")

    def busiest(self):
        return self.hours.idxmax()

    def worst(self, days):
        recent = [self.worst_by_day[d] for d in sorted(self.worst_by_day)[-days:]]
        return max(float(part["severity"].iloc[0]) for part in recent)


def main(days=200):
    rng = np.random.default_rng(2024)
    report = AlarmReport()
    for day in range(1, days + 1):
        started = time.time()
        report.ingest(day, load_day(day, rng))
        if day % 5 == 0:
            print(
                f"day {day:4d}/{days}  alarms {report.alarms:7d}  busiest {report.busiest()}  "
                f"worst of week {report.worst(7):6.2f}",
                flush=True,
            )
        time.sleep(max(0.1, 0.58 - (time.time() - started)))
    print("report complete:", len(report.worst_by_day), "days", flush=True)


if __name__ == "__main__":
    main()
