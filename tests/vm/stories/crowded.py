#!/usr/bin/env -S PYTHONPATH=/srv/memwatch/tests python3
"""An examination meets memwatch's own MemoryMax: the kernel kills the examination, and the watch goes on."""

from support.here import SLOW, machine
from support.machine import WATCH, configuration

here = machine("2G")  # an examination takes a quarter of what is left, at most
here.configure(configuration(quick=SLOW + "verbose: true\ndaemon: {wait_seconds: 0.2}\n"))
here.drop_in("MemoryMax=34M")
here.sh(f"systemctl restart {WATCH}")
before = here.pid()
here.trainer("saves 60 1 8")
here.until(lambda: here.told("not_examined"))
assert "status -9" in here.told("not_examined")[0], here.told("not_examined")
counted = dict(line.split() for line in here.cgroup(WATCH, "memory.events").splitlines())
assert int(counted["oom_kill"]) >= 1 and int(here.cgroup(WATCH, "memory.peak")) <= 34 << 20
assert (here.pid(), here.show(WATCH, "NRestarts"), here.show(WATCH, "ActiveState")) == (before, "0", "active")
print("the examination was killed, the watch was not")

here.sh(f"systemctl stop {WATCH}; rm /etc/systemd/system/memwatch@.service.d/test.conf; systemctl daemon-reload")
here.turn_over()
here.sh(f"systemctl start {WATCH}")
here.until(lambda: here.told("examined") or here.told("not_examined"))
assert not here.told("not_examined"), here.told("not_examined")
print("peak with an examination:", int(here.cgroup(WATCH, "memory.peak")) >> 20, "MiB")
