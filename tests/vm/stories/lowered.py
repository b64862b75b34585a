#!/usr/bin/env -S PYTHONPATH=/srv/memwatch/tests python3
"""A live limit of cgroup version 2: raised, lowered, another cgroup's, and below the use, where the kernel kills."""

from pathlib import Path

from support.here import SLOW, machine
from support.machine import WATCH, configuration

MIB = 1 << 20
OTHER = Path("/sys/fs/cgroup/other")


def bound() -> tuple[int, str]:
    """The limit that is gone by, and whose it is."""
    main = here.main_memory()
    return main.get("limit", 0), main.get("limit_origin", "")


here = machine("400M")
here.configure(configuration(quick=SLOW + "daemon: {wait_seconds: 0.2}\ndiagnosis: {enabled: false}\n"))
here.sh(f"systemctl restart {WATCH}")
here.trainer("saves 400 0.5 2 60")
unit = "cgroup /training.slice/trainer.service"
here.until(lambda: bound() == (400 * MIB, unit))
for size in (600, 300):
    here.sh(f"systemctl set-property --runtime trainer.service MemoryMax={size}M")
    here.until(lambda size=size: bound() == (size * MIB, unit))
print("raised and lowered by systemd")

assert not here.told("interrupt") and here.told("armed"), here.told("interrupt")
here.sh("systemctl set-property --runtime trainer.service MemoryMax=20M")
here.until(lambda: here.told("exited"))
[exited] = here.told("exited")
assert "killed by the kernel's OOM killer at the cgroup's limit" in exited, exited
assert not here.told("saved") and here.show(WATCH, "NRestarts") == "0"
print("below its use, and killed by the kernel, as is told")

here.turn_over()
here.sh("systemctl revert trainer.service")
here.trainer("saves 400 0.5 2 60")
here.until(lambda: bound() == (400 * MIB, unit))
OTHER.mkdir()
(OTHER / "memory.max").write_text(str(250 * MIB))
(OTHER / "cgroup.procs").write_text(str(here.pid("trainer")))
here.until(lambda: bound() == (250 * MIB, "cgroup /other"))
(OTHER / "memory.max").write_text(str(20 * MIB))  # what was taken before the move is still the unit's
here.until(lambda: here.told("exited"))
assert "checkpoint saved" in here.told("exited")[0], here.told("exited")
here.until(lambda: not (OTHER / "cgroup.procs").read_text())
OTHER.rmdir()
print("moved, and interrupted below the limit there")
