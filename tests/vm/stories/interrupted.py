#!/usr/bin/env -S PYTHONPATH=/srv/memwatch/tests python3
"""A trainer nears its MemoryMax and is interrupted, by a watch that is killed and reloaded on the way."""

from support.here import SLOW, machine
from support.machine import WATCH, configuration

ROOM = 50_000_000  # bytes below the limit that is set when memwatch has been killed and is back

here = machine("480M")  # room for five minutes
here.configure(configuration(quick=SLOW + "daemon: {wait_seconds: 0.2}\n"))
here.sh(f"systemctl restart {WATCH}")
here.trainer("saves 100 6 4 40")
here.until(lambda: len(here.main_memory().get("generations", ())) > 2)
main = here.main_memory()
assert (main["limit"], main["limit_origin"]) == (480 << 20, "cgroup /training.slice/trainer.service"), main
run, first = here.status()["run_id"], here.pid()
status = dict(line.split(":\t", 1) for line in here.sh(f"cat /proc/{first}/status").splitlines())
assert int(status["CapEff"], 16) == 1 << 5 | 1 << 19 and int(status["VmLck"].split()[0]) > 10_000, status
assert here.sh(f"cat /proc/{first}/oom_score_adj").strip() == "-900"

here.sh(f"kill -9 {first}")
here.until(lambda: len(here.told("attached")) > 1)
assert here.told("attached")[1].startswith("watching again")
here.until(here.main_memory)
assert here.status()["run_id"] == run and len(here.main_memory()["generations"]) > 2
assert here.show(WATCH, "NRestarts") == "1"
print("killed, and back with its past")

limit = here.main_memory()["used"] + ROOM
limited = SLOW.replace("1}", f"1, limit: {limit}}}")
here.configure(configuration(quick=limited + "daemon: {wait_seconds: 0.2}\n"))
here.sh(f"systemctl reload {WATCH}")
here.until(lambda: here.main_memory().get("limit") == limit)
here.configure("target: [")
here.sh(f"systemctl reload {WATCH}")
here.until(lambda: any("configuration" in one and "stays in force" in one for one in here.told("source_failed")))
assert here.show(WATCH, "ActiveState") == "active" and here.main_memory()["limit"] == limit
print("reloaded; refused what is broken")

here.until(lambda: here.told("exited"))
assert "checkpoint saved" in here.told("exited")[0], here.told("exited")
assert [one["PRIORITY"] for one in here.journal() if one["MESSAGE"].startswith("interrupt ")] == ["4"]
assert here.sh("stat -c %s /srv/trainer/state.ckpt").strip() == "1000000"
assert "oom_kill 0" in here.sh("cat /sys/fs/cgroup/training.slice/memory.events")
print("interrupted and saved below memory.max")
