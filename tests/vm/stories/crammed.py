#!/usr/bin/env -S PYTHONPATH=/srv/memwatch/tests python3
"""20 busy processes on 2 cores, 97 % of all memory taken: a leak of the rest is met in time, memwatch is not killed."""

import json
import os
from pathlib import Path

from support.here import SLOW, machine
from support.machine import WATCH, configuration

LONGEST_GAP_SECONDS = 10.0  # between looks that should be a second apart: a guest runs at a tenth of the speed
LEFT = 0.03  # of memory, when the trainer begins; it takes the rest, most of it before the interrupt
BALLAST = """
import time
kept, total = [], 0
def available():
    lines = dict(line.split(":") for line in open("/proc/meminfo"))
    return int(lines["MemAvailable"].split()[0]) / int(lines["MemTotal"].split()[0])
while available() > LEFT:
    kept.append(bytearray(b"x" * (1 << 20)))
open("/run/full", "w").close()
time.sleep(3600)
"""
GAPS = """
import glob, json, sqlite3
[path] = glob.glob("/var/lib/memwatch/trainer/**/history.db", recursive=True)
times = [t for (t,) in sqlite3.connect(path).execute("SELECT DISTINCT t FROM samples ORDER BY t")]
print(json.dumps(sorted(round(b - a, 2) for a, b in zip(times, times[1:]))))
"""


def kills() -> int:
    """Of all processes, by the kernel, for memory."""
    return int(dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())["oom_kill"])


assert os.cpu_count() == 2
here = machine("2G")  # more than there is: the machine's memory binds
here.configure(configuration(quick=SLOW + "daemon: {wait_seconds: 0.2}\ndiagnosis: {enabled: false}\n"))
here.sh(f"systemctl restart {WATCH}")
pid, before = here.pid(), kills()

Path("/run/ballast.py").write_text(BALLAST.replace("LEFT", str(LEFT)))
here.sh("systemd-run -q --unit=ballast python3 /run/ballast.py")
here.until(Path("/run/full").exists)
here.sh("systemd-run -q --unit=busy sh -c 'for i in $(seq 20); do (while :; do :; done) & done; wait'")
here.trainer("saves 400 1 2")
here.until(lambda: here.told("attached"))
status = dict(line.split(":\t", 1) for line in here.sh(f"cat /proc/{here.pid()}/status").splitlines())
assert int(status["VmLck"].split()[0]) > 10_000, status["VmLck"]
print("at", Path("/proc/meminfo").read_text().split("Buffers")[0].split())
here.until(lambda: here.told("exited"))
[exited] = here.told("exited")
gaps = json.loads(here.sh(f"python3 -c '{GAPS}'"))
interrupts = here.told("interrupt")
print(interrupts)
print(
    json.dumps(
        {"gaps": len(gaps), "median": gaps[len(gaps) // 2], "longest": gaps[-1], "load": 20, "cores": os.cpu_count()}
    )
)
assert gaps[-1] < LONGEST_GAP_SECONDS, gaps[-10:]
assert "checkpoint saved" in exited, exited
assert here.sh("stat -c %s /srv/trainer/state.ckpt").strip() == "1000000"
assert kills() == before and (here.pid(), here.show(WATCH, "NRestarts")) == (pid, "0")
assert here.told("armed") and not here.told("unarmed"), here.told("unarmed")
print("armed, in time, and nobody was killed")
