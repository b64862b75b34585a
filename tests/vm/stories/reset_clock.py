#!/usr/bin/env -S PYTHONPATH=/srv/memwatch/tests python3
"""The machine's clock is set forward and back, also while memwatch is away: its trainer is saved all the same."""

from support.here import SLOW, machine
from support.machine import WATCH, configuration

here = machine()
here.configure(configuration(quick=SLOW + "daemon: {wait_seconds: 0.2}\n"))
here.sh(f"systemctl stop systemd-timesyncd || true; systemctl restart {WATCH}")
here.trainer("saves 60 3 4 40")
for change in ("2 hours", "4 hours ago"):
    known = len(here.main_memory().get("generations", ()))
    here.sh(f"date -s '{change}'")
    here.until(lambda known=known: len(here.main_memory().get("generations", ())) > known + 1)
rows = [one for one in here.main_memory()["generations"] if one["end_t"] is not None]
lengths = [round(one["end_t"] - one["start_t"]) for one in rows]
assert lengths and all(0 < length < 60 for length in lengths), lengths
print("set forward and back, and no generation is longer for it:", lengths)

here.sh(f"date -s '3 hours ago'; kill -9 {here.pid()}")
here.until(lambda: len(here.told("attached")) > 1)
here.until(lambda: here.told("exited"))
assert "checkpoint saved" in here.told("exited")[0], here.told("exited")
assert "oom_kill 0" in here.sh("cat /sys/fs/cgroup/training.slice/memory.events")
print("begun anew three hours earlier, and saved below memory.max")
