"""The watcher is smaller than what it watches: memory, CPU, start and imports of the attached daemon."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

import pytest

from support.mainjob import Folder, memwatch, trainer, until
from support.stopwatch import Stopwatch

pytestmark = pytest.mark.integration

MIB = 2**20
MOST_RSS_BYTES = 30 * MIB
MOST_SCRAPED_RSS_BYTES = 44 * MIB  # the first scrape imports prometheus_client
MOST_CPU_SHARE = 0.003 * 1.5  # 0.3 % of a core, and room for what else runs on the machine: it takes from the caches
WINDOWS, WINDOW_SECONDS = 3, 10.0  # the least of them, since what else runs comes and goes


def cpu_seconds(pid: int) -> float:
    """All threads, by the scheduler's own count: stat's 10 ms ticks are too coarse for what is measured here."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def cpu_share(pid: int) -> float:
    cpu, begun = cpu_seconds(pid), time.monotonic()
    time.sleep(WINDOW_SECONDS)
    return (cpu_seconds(pid) - cpu) / (time.monotonic() - begun)


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_attached_at_one_hertz_it_stays_small(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with trainer(folder, "--seconds", "3", "--generations", "100") as run:
        started = Stopwatch()
        with memwatch(folder, "--pid", str(run.pid), "--listen", "127.0.0.1:0", "--json") as watch:
            until(lambda: watch.named("forecast"))
            cold_start = started.undisturbed_seconds
            [url] = [note["text"].split()[-1] for note in watch.named("note") if "metrics" in note["text"]]
            pid = watch.process.pid
            time.sleep(3)  # what a start costs is not what a second costs
            share = min(cpu_share(pid) for _ in range(WINDOWS))
            before_scrape = rss_bytes(pid)
            assert b"memwatch_target_up 1.0" in urllib.request.urlopen(url + "metrics", timeout=5).read()
            after_scrape = rss_bytes(pid)
            loaded = Path(f"/proc/{pid}/maps").read_text()
    print(
        f"cold start {cold_start:.2f} s, CPU {share:.2%}, RSS {before_scrape / MIB:.1f}, {after_scrape / MIB:.1f} MiB"
    )
    assert cold_start < 0.5 * 3  # alone it is a quarter of a second
    assert share < MOST_CPU_SHARE
    assert before_scrape < MOST_RSS_BYTES
    assert after_scrape < MOST_SCRAPED_RSS_BYTES
    assert "numpy" not in loaded
