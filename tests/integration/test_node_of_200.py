"""Two hundred trainers on one node: what watching them costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean

import pytest

from support.mainjob import Folder, Memwatch, memwatch, until

pytestmark = [pytest.mark.integration, pytest.mark.thorough]

TRAINERS = 200
MAX_CPU_SHARE = 0.06  # of one core, in all
MAX_BYTES = 12 << 20  # for each trainer, of all processes
SETTLE_SECONDS, MEASURED_SECONDS, SCRAPE_SECONDS = 150.0, 120.0, 15.0
# 12 MB that go up and down, a line each 5 s.
PROGRAM = """
import random, time
time.sleep(5 * random.random())
kept = []
for generation in range(100_000):
    print(f"Generation {generation + 1}/100000 loss={random.random():.3f}", flush=True)
    kept.append(bytearray(200_000))
    if len(kept) > 60:
        kept = kept[:20]
    time.sleep(5)
"""


def test_it_takes_six_percent_of_a_core_and_twelve_mebibytes_apiece(tmp_path: Path) -> None:
    folder, mark = Folder(tmp_path), f"node-of-{TRAINERS}-{os.getpid()}"
    config = tmp_path / "memwatch.yaml"
    config.write_text(f"node: {{trainers: [{{match: {mark}}}]}}\nlisten: '127.0.0.1:0'\nmemory: {{limit: 1GB}}\n")
    with ExitStack() as stack:
        for number in range(TRAINERS):
            log = stack.enter_context((tmp_path / f"{number}.log").open("wb"))
            trainer = subprocess.Popen([sys.executable, "-c", PROGRAM, mark], stdout=log, stderr=log)
            stack.callback(trainer.wait)
            stack.callback(trainer.kill)
        service = stack.enter_context(memwatch(folder, "serve", "--config", str(config), "--json"))
        until(lambda: len(trainers(service)) == TRAINERS)
        time.sleep(SETTLE_SECONDS)
        shares = []
        before, then = cpu_seconds(service), time.monotonic()
        while sum(share for share, _ in shares) < MEASURED_SECONDS:
            time.sleep(SCRAPE_SECONDS)
            scraped(service)
            spent, now = cpu_seconds(service), time.monotonic()
            shares.append((now - then, (spent - before) / (now - then)))
            before, then = spent, now
        share = sum(seconds * each for seconds, each in shares) / sum(seconds for seconds, _ in shares)
        apiece = sum(pss_bytes(pid) for pid in processes(service)) / TRAINERS
        print(f"CPU: {share:.2%} of a core, {[f'{each:.1%}' for _, each in shares]}")
        print(f"memory: {apiece / 2**20:.2f} MiB apiece")
        known = trainers(service)
        assert len(known) == TRAINERS and all(one["used"] and one["gen"] > 20 for one in known)
        assert fmean(one["gen"] for one in known) > 30
        assert apiece <= MAX_BYTES
        assert share <= MAX_CPU_SHARE
        service.process.terminate()
        assert service.wait(15) == 0


def address(service: Memwatch) -> str:
    until(lambda: any("metrics and status" in one["text"] for one in service.named("note")))
    return next(one["text"] for one in service.named("note") if "metrics and status" in one["text"]).split()[-1]


def scraped(service: Memwatch, path: str = "metrics") -> bytes:
    with urllib.request.urlopen(address(service) + path, timeout=30) as answer:
        return bytes(answer.read())


def trainers(service: Memwatch) -> list[dict[str, float]]:
    found: list[dict[str, float]] = json.loads(scraped(service, "status.json"))["trainers"]
    return found


def processes(service: Memwatch) -> list[int]:
    """The supervisor and its children."""
    own = service.process.pid
    return [own, *map(int, Path(f"/proc/{own}/task/{own}/children").read_text().split())]


def cpu_seconds(service: Memwatch) -> float:
    """Of all of them, and of what they have started and collected."""
    total = 0.0
    for pid in processes(service):
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0]) / 1e9
        if pid != service.process.pid:  # its own children are counted one by one
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    return total


def pss_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
