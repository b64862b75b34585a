#!/usr/bin/env -S PYTHONPATH=/srv/memwatch/tests python3
"""The kernel kills a trainer that nobody interrupts: it is told, with and without the kernel's log; the watch lives."""

from support.here import SLOW, machine
from support.machine import WATCH, configuration

LEAVE_IT = "daemon: {wait_seconds: 0.2}\ndiagnosis: {enabled: false}\n"

here = machine()
here.configure(configuration(quick=SLOW.replace("4}", "4, act: false}") + LEAVE_IT))
here.sh(f"systemctl restart {WATCH}")
for evidence in ("oom_kill counter of the trainer's own cgroup rose by 1", "OOM killer killed"):
    here.turn_over()
    here.sh("systemctl stop trainer || true")
    before = here.pid()
    here.trainer("saves 60 6 1 40")
    here.until(lambda: here.told("exited"))
    [exited] = here.told("exited")
    assert "killed by the kernel's OOM killer at the cgroup's limit" in exited and evidence in exited, exited
    assert here.show("trainer", "Result") == "oom-kill" and not here.told("signalled")
    assert (here.pid(), here.show(WATCH, "ActiveState")) == (before, "active")
    print(evidence)
    here.sh(
        "install -D -m 644 -t /etc/systemd/system/memwatch@.service.d /srv/memwatch/systemd/drop-ins/kernel-log.conf;"
        f"systemctl daemon-reload; systemctl restart {WATCH}"
    )
