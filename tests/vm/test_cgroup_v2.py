"""cgroup v2 under systemd, in a virtual machine: the limit that binds, and the kernel's kill by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.guest import Guest

pytestmark = [pytest.mark.vm, pytest.mark.timeout(900)]

# A guest is emulated, and slower still beside other tests: the trainer waits until it is watched.
WATCHED = """
watched() {  # COMMAND...: its output, and its exit status
    "$@" > watch.out 2>&1 & watch=$!
    until grep -qs '"attached"' watch.out || ! kill -0 $watch; do sleep 0.1; done
    touch go
    code=0; wait $watch || code=$?
    cat watch.out; echo code $code
}
"""
# The trainer in a unit of its own within a slice, its output in a file, as a deployment has it.
START = (
    WATCHED
    + """
cd /srv/run && rm -f main.log go
systemd-run -q --unit=trainer --slice=training -p MemoryMax=140M -p MemorySwapMax=0 -p WorkingDirectory=/srv/run \\
    -p StandardOutput=append:/srv/run/main.log python3 leak.py saves 60 3 1 --wait
until pid=$(pgrep -f '^/usr/bin/python3 leak.py'); do sleep 0.1; done
"""
)
WATCH = "/opt/memwatch/bin/memwatch --pid $pid --listen none --interval 0.5 --checkpoint-time 2 --json"

# What wakes memwatch for a process that goes beyond memory.high, and what does not while it stays below.
WAKES = """
systemd-run -q --unit=holder --slice=training -p MemoryHigh=60M -p MemoryMax=140M -p MemorySwapMax=0 \\
    sh -c 'until test -e /run/go; do sleep 0.1; done; exec python3 -c "b = bytearray(90 << 20); input()" < /dev/zero'
until pid=$(systemctl show -P MainPID holder) && test "$pid" != 0; do sleep 0.1; done
/opt/memwatch/bin/python - $pid <<'END'
import json, select, sys, time
from pathlib import Path
from memwatch.core.measurements import Limit
from memwatch.sources.memory.cgroup import CgroupReader
from memwatch.sources.memory.memory_wakeup import CgroupWaker

reader = CgroupReader(int(sys.argv[1]))
wakes, cgroup = CgroupWaker(reader.level_directories), reader.read_memory(0.0)
wakes.set_thresholds(cgroup, Limit(140 << 20, f"cgroup {cgroup.levels[0].path}", 100 << 20), (50 << 20,))
poll = select.poll()
poll.register(wakes.fileno(), select.POLLIN)
calm = not poll.poll(2000)
Path("/run/go").touch()
woken = bool(poll.poll(60_000)) and wakes.consume_wakeup()
events = dict(line.split() for line in Path(reader.level_directories()[0], "memory.events").read_text().splitlines())
print(json.dumps({"armed": wakes.armed, "failure": wakes.failure, "calm": calm, "woken": woken, "events": events}))
END
"""

# A pod of two containers, as far as the kernel knows: cgroups below one, each with a cgroup namespace and mounts of its
# own, in one PID namespace. `within CONTAINER WHO COMMAND...`; `root` has what runtimes give to root.
POD = (
    WATCHED
    + """
user="--reuid=1000 --regid=1000 --clear-groups --bounding-set=-all"
root="--bounding-set=-all,+chown,+dac_override,+fsetid,+fowner,+mknod,+net_raw,+setgid,+setuid,+setfcap,+setpcap,\\
+net_bind_service,+sys_chroot,+audit_write,+kill"
bare_root="--bounding-set=-all"
tracing_root="--bounding-set=-all,+kill,+sys_ptrace,+dac_read_search"
cat > /srv/within <<'END'
#!/bin/sh
echo $$ > /sys/fs/cgroup/pod/$1/cgroup.procs; who=$2; shift 2
exec unshare --cgroup --mount --propagation private \\
    sh -c 'umount /sys/fs/cgroup && mount -t cgroup2 -o ro cgroup2 /sys/fs/cgroup && exec "$@"' sh \\
    setpriv $who --inh-caps=-all --no-new-privs "$@"
END
chmod +x /srv/within
cd /sys/fs/cgroup && echo +memory > cgroup.subtree_control && mkdir -p pod && echo +memory > pod/cgroup.subtree_control
mkdir -p pod/trainer pod/memwatch
echo 140M > pod/trainer/memory.max; echo 0 > pod/trainer/memory.swap.max; echo 1 > pod/trainer/memory.oom.group
export XDG_STATE_HOME=/run/state; mkdir -p -m 777 /run/state
cd /srv/run && chmod 777 . && rm -f main.log go
trainer() {  # WHO ARGUMENT...
    who=$1; shift
    /srv/within trainer "$who" sh -c 'exec python3 leak.py saves "$@" > main.log 2>&1' sh "$@" &
    until pid=$(pgrep -f '^python3 leak.py'); do sleep 0.1; done
}
"""
)


def events(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


@pytest.mark.thorough  # Two watches take minutes; the test beside the container sees such an end, too.
def test_left_alone_the_kernel_kills_it_and_the_cause_says_so_with_and_without_the_kernels_log(guest: Guest) -> None:
    blind = f"systemd-run -q --wait --pipe -p ProtectKernelLogs=yes {WATCH} --dry-run --history none"
    done = guest(
        f"{START}\n/opt/memwatch/bin/memwatch doctor --pid $pid --json --listen none\n"
        f"{blind} > blind.out 2>&1 &\nuntil grep -qs attached blind.out; do sleep 0.1; done\n"
        f"watched {WATCH} --dry-run; wait; echo; cat blind.out"
    )
    said = done.stdout + done.stderr
    doctor = {check["part"]: check for check in json.loads(done.stdout.splitlines()[0])}
    assert "version 2, /training.slice/trainer.service" in doctor["cgroup"]["text"], said
    assert "own" in doctor["cgroup"]["text"] and "shared" not in doctor["cgroup"]["text"], said
    assert "cgroup 146.8 MB" in doctor["limit"]["text"], said
    assert doctor["signal"]["level"] == "ok" and "SIGINT" in doctor["signal"]["text"]
    seeing, counting = (events(part) for part in done.stdout.split("code 12"))
    [interrupt] = [one for one in seeing if one["event"] == "interrupt"]
    assert interrupt["limit"] == 140 << 20 and interrupt["limit_origin"] == "cgroup /training.slice/trainer.service"
    assert seeing[-1]["event"] == "exited" and seeing[-1]["cause"] == "oom_cgroup", said
    assert "OOM killer killed" in seeing[-1]["evidence"][0] and "/trainer.service" in seeing[-1]["evidence"][0]
    assert [one["dry_run"] for one in seeing if one["event"] == "signalled"] == [True], said
    assert counting[-1]["event"] == "exited" and counting[-1]["cause"] == "oom_cgroup", said
    assert "oom_kill counter of the trainer's own cgroup rose by 1" in counting[-1]["evidence"][0]
    assert any("kernel's log cannot be read" in one["text"] for one in counting if one["event"] == "note")


def test_what_wakes_it_when_memory_high_is_met(guest: Guest) -> None:
    done = guest(WAKES)
    [told] = events(done.stdout) or [done.stdout + done.stderr]
    assert told["armed"] == ["memory.events", "memory pressure"], told
    assert told["failure"] == "cgroup version 2 has no thresholds"
    assert told["calm"] and told["woken"], told
    assert int(told["events"]["high"]) > 0 and told["events"]["oom_kill"] == "0", told


def test_beside_the_trainers_container_its_limit_is_seen_and_its_end_is_survived(guest: Guest) -> None:
    watch = "/opt/memwatch/bin/memwatch --pid $pid --log main.log --listen none --interval 0.5 --json --dry-run"
    done = guest(
        f'{POD}\ntrainer "$user" 60 6 1 --wait\nwatched /srv/within memwatch "$user" {watch}\n'
        "cat /sys/fs/cgroup/pod/trainer/memory.events"
    )
    said = done.stdout + done.stderr
    told = events(done.stdout)
    [interrupt] = [one for one in told if one["event"] == "interrupt"] or [said]
    assert (interrupt["limit"], interrupt["limit_origin"]) == (140 << 20, "cgroup /../trainer"), said
    assert told[-1]["event"] == "exited" and told[-1]["cause"] == "oom_cgroup", said
    assert "code 12" in done.stdout and "oom_group_kill 1" in done.stdout, said


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("trainer", "memwatch", "origin", "signal"),
    [
        ("user", "user", "cgroup", True),
        ("user", "bare_root", "--limit", False),
        ("user", "root", "--limit", True),
        ("user", "tracing_root", "cgroup", True),
        ("root", "user", "--limit", False),
        ("root", "bare_root", "--limit", True),
        ("root", "root", "cgroup", True),
        ("root", "tracing_root", "cgroup", True),
    ],
)
def test_who_sees_the_limit_of_another_container_and_may_signal(
    guest: Guest, trainer: str, memwatch: str, origin: str, signal: bool
) -> None:
    doctor = "/opt/memwatch/bin/memwatch doctor --pid $pid --limit 140MiB --listen none --json"
    done = guest(f'{POD}\ntrainer "${trainer}" 900 0.05 1\n/srv/within memwatch "${memwatch}" {doctor}')
    assert done.stdout.startswith("["), done.stdout + done.stderr
    found = {check["part"]: check for check in json.loads(done.stdout.splitlines()[0])}
    assert found["limit"]["text"].startswith(f"{origin} 146.8 MB binds"), found["limit"]
    assert (found["signal"]["level"] == "ok") is signal, found["signal"]
