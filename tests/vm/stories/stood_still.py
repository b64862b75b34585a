#!/usr/bin/env -S PYTHONPATH=/srv/memwatch/tests python3
"""systemd restarts a watch that stands still; memwatch tells afterwards how a trainer ended meanwhile."""

from support.here import SLOW, machine
from support.machine import WATCH, configuration

here = machine()
here.configure(configuration(quick=SLOW + "daemon: {wait_seconds: 0.2}\n"))
here.drop_in("WatchdogSec=12s")
here.sh(f"systemctl restart {WATCH}")
before = here.pid()
here.sh(f"kill -STOP {before}")
here.until(lambda: here.show(WATCH, "NRestarts") == "1" and here.show(WATCH, "ActiveState") == "active")
assert here.pid() not in (0, before) and any("watchdog" in one["MESSAGE"].lower() for one in here.journal())
print("standing still, and begun anew by the watchdog")

# This kernel keeps no exit status of a reaped process. systemd keeps that of a failed unit.
here.trainer("saves 60 1 40 40")
here.until(lambda: here.told("forecast"))
here.sh(f"kill -STOP {here.pid()}; systemctl kill -s KILL trainer; sleep 2; kill -CONT {here.pid()}")
here.until(lambda: here.told("exited"))
assert "SIGKILL" in here.told("exited")[0], here.told("exited")
print("systemd says how the trainer ended while memwatch was stopped")
here.sh(f"systemctl stop {WATCH}")
assert here.show(WATCH, "Result") == "success"
