"""What trainers do that a watch must live through: stop, exec, fork, move, change user, have their limit changed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from memwatch.errors import ExitCode
from support.mainjob import MB, Folder, Memwatch, memwatch, trainer, until
from support.stopwatch import Stopwatch
from support.trainers import memory_cgroup

pytestmark = pytest.mark.integration

PROGRAMS = Path(__file__).parents[1] / "programs"
LEAK, RECYCLED = PROGRAMS / "leak.py", PROGRAMS / "recycled.py"
QUIET = ("--listen", "none", "--interval", "0.1", "--json")
FAST = "policy: {confirmation_seconds: 0.2, checkpoint_seconds: 0.5, save_timeout_seconds: 4}\n"
NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def configured(folder: Folder, more: str = "") -> tuple[str, str]:
    path = folder.path / "memwatch.yaml"
    path.write_text(FAST + more)
    return ("--config", str(path))


def leaking(on_signal: str = "saves", megabytes: int = 12, seconds: float = 0.3) -> tuple[str, ...]:
    return (sys.executable, str(LEAK), on_signal, "60", str(megabytes), str(seconds), "--wait")


def program(text: str) -> tuple[str, ...]:
    return (sys.executable, "-uc", "import os, sys, time\n" + text)


WAIT = "while not os.path.exists('go'): time.sleep(0.02)\n"  # until memwatch is attached


PERL = "/usr/bin/perl"
GROWS_IN_PERL = """
$SIG{TERM} = sub {
    open(F, ">state.ckpt"); print F "x" x 4096; close F;
    print "Checkpoint saved: state.ckpt\\n"; exit 0
};
$| = 1;
for (1..60) { print "Generation $_ / 60\\n"; push @kept, "x" x 12_000_000; select(undef, undef, undef, 0.3) }
"""


def go(folder: Folder, watch: Memwatch) -> None:
    """memwatch has looked: let the trainer go on."""
    until(lambda: watch.named("forecast") or watch.process.poll() is not None)
    (folder.path / "go").touch()


@contextmanager
def watched(
    folder: Folder, run_this: Sequence[str], *arguments: str
) -> Iterator[tuple[subprocess.Popen[bytes], Memwatch]]:
    """A trainer, and memwatch at it."""
    with ExitStack() as held:
        run = held.enter_context(trainer(folder, program=run_this))
        yield run, held.enter_context(memwatch(folder, "--pid", str(run.pid), *QUIET, *arguments))


def notes(watch: Memwatch) -> str:
    return "\n".join(one["text"] for one in watch.named("note"))


def needs_cgroup() -> None:
    if os.geteuid() != 0 or not Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists():
        pytest.skip("needs root and a memory cgroup of version 1")


# --- the process ----------------------------------------------------------------------------------------------------


def test_stopped_and_continued_it_is_still_watched_to_its_end(folder: Folder) -> None:
    with watched(folder, leaking(), "--limit", "150MB", *configured(folder)) as (run, watch):
        go(folder, watch)
        until(lambda: watch.named("marker"))
        run.send_signal(signal.SIGSTOP)
        before = len(watch.named("marker"))
        time.sleep(1.0)
        assert watch.process.poll() is None and len(watch.named("marker")) <= before + 1
        assert not watch.named("source_failed")
        run.send_signal(signal.SIGCONT)
        assert watch.wait() == ExitCode.SAVED, watch.said()


def test_after_exec_it_is_the_same_target(folder: Folder) -> None:
    text = WAIT + "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    with watched(folder, (*program(text), *leaking()[1:]), "--limit", "150MB", *configured(folder)) as (_, watch):
        go(folder, watch)
        assert watch.wait() == ExitCode.SAVED, watch.said()
    assert len(watch.named("attached")) == 1


def test_exec_of_another_program_leaves_the_target_and_changes_what_is_sent(folder: Folder) -> None:
    """It is the same process, its memory meets the same limit; which signal it handles is asked when one is sent."""
    text = (
        WAIT
        + "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        + f"os.execv({PERL!r}, ['perl', '-e', {GROWS_IN_PERL!r}])"
    )
    with watched(folder, program(text), "--limit", "150MB", *configured(folder)) as (_, watch):
        go(folder, watch)
        assert watch.wait() == ExitCode.SAVED, watch.said()
    assert [one["signal"] for one in watch.named("signalled")] == ["SIGTERM"] and len(watch.named("attached")) == 1


def test_what_daemonizes_ends_and_its_orphan_is_not_the_target(folder: Folder) -> None:
    text = WAIT + "if not os.fork():\n    os.setsid()\n    time.sleep(2)\nprint('left')"
    with watched(folder, program(text)) as (_, watch):
        go(folder, watch)
        started = Stopwatch()
        assert watch.wait(10) == ExitCode.ENDED, watch.said()
        assert started.undisturbed_seconds < 2.5
    assert watch.named("exited")[0]["cause"] == "completed"


def test_a_pid_that_is_gone_or_a_zombie_is_refused_with_a_hint(folder: Folder) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    until(lambda: Path(f"/proc/{gone.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    with memwatch(folder, "--pid", str(gone.pid), *QUIET, name="zombie") as watch:
        assert watch.wait(10) == ExitCode.CANNOT_ATTACH
    assert "has ended: it is a zombie" in watch.err.read_text()
    gone.wait()
    with memwatch(folder, "--pid", str(gone.pid), *QUIET, name="gone") as watch:
        assert watch.wait(10) == ExitCode.CANNOT_ATTACH
    assert f"no process {gone.pid}" in watch.err.read_text()


@pytest.mark.parametrize(
    ("pids", "seconds"),
    [
        (500, 3.0),
        pytest.param(100_000, 60.0, marks=[pytest.mark.thorough, pytest.mark.timeout(1800)]),
    ],
)
def test_a_pid_that_was_given_to_a_stranger_is_never_the_trainer(folder: Folder, pids: int, seconds: float) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, for a PID namespace whose next PID can be chosen")
    space = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    command = [*space, sys.executable, RECYCLED, str(pids), str(seconds), folder.path]
    done = subprocess.run(command, env=folder.environ(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    met = json.loads(done.stdout)
    assert (met["signal"], met["attach"], met["pidfile"]) == (pids, pids, pids) and met["match"] > 0, met


def test_workers_that_come_and_go_are_no_failure_and_no_growth(folder: Folder) -> None:
    text = WAIT + (
        "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "base = bytearray(b'x' * 40_000_000)\n"
        "for g in range(12):\n"
        "    print('Generation', g + 1, '/ 12')\n"
        "    for _ in range(4):\n"
        "        if not os.fork():\n"
        "            own = bytearray(b'x' * 5_000_000); time.sleep(0.15); os._exit(0)\n"
        "    time.sleep(0.3)\n"
    )
    with watched(folder, program(text), "--limit", "400MB", "--interval", "0.05") as (_, watch):
        go(folder, watch)
        assert watch.wait() == ExitCode.ENDED, watch.said()
    assert not watch.named("source_failed"), watch.said()
    assert not watch.named("interrupt") and not watch.named("warn")


def test_a_machine_without_a_gpu_has_no_failing_source(folder: Folder) -> None:
    if Path("/dev/nvidiactl").exists() or Path("/proc/driver/nvidia").exists():
        pytest.skip("there is a GPU driver here")
    with watched(folder, program(WAIT + "time.sleep(0.5)")) as (_, watch):
        go(folder, watch)
        assert watch.wait(10) == ExitCode.ENDED, watch.said()
    assert not watch.named("source_failed"), watch.said()


# --- another user's -------------------------------------------------------------------------------------------------


PYTHON = "/usr/bin/python3"  # of the system: nobody may not look into a virtual environment in root's home
POWERLESS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


def test_another_users_trainer_is_watched_and_what_cannot_be_done_is_said(folder: Folder) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None or not Path(PYTHON).exists():
        pytest.skip("needs root to have two users, setpriv, and a Python of the system")
    # memwatch keeps root's files and loses root's powers: to another user's process it is another user
    arguments = ("--listen", "none", "--interval", "0.1", "--json", "--limit", "300MB")
    with folder.log.open("wb") as log, LEAK.open() as leak:
        run = subprocess.Popen([PYTHON, "-u", "-", "saves", "60", "6", "0.3"], stdin=leak, stdout=log, user=NOBODY)
    out = (folder.path / "memwatch.out").open("w+")
    command = [sys.executable, "-m", "memwatch", "--pid", str(run.pid), "--log", str(folder.log), *arguments]
    watch = subprocess.Popen(
        [*POWERLESS, *command, *configured(folder)], stdout=out, stderr=out, cwd=folder.path, env=folder.environ()
    )
    try:
        until(lambda: '"event":"signalled"' in Path(out.name).read_text())
        run.kill()
        watch.wait(10)
    finally:
        run.kill()
        run.wait()
        watch.kill()
        watch.wait()
        out.close()
    said = Path(out.name).read_text()
    told = [json.loads(line) for line in said.splitlines()]
    named = {one["event"]: one for one in told}
    assert "not permitted" in named["signalled"]["error"], said
    assert "CAP_KILL" in named["unarmed"]["reason"], said
    assert named["generation"]["gen"] >= 1
    assert named["exited"]["cause"] in ("unknown", "signalled"), "it got no signal of ours, and 0 was not its status"
    assert [one["event"] for one in told if one["event"] in ("source_failed", "source_recovered")] == []
    assert any("open files" in one["text"] for one in told if one["event"] == "note")


# --- its limits -----------------------------------------------------------------------------------------------------


def page(size: int) -> int:
    """As the kernel rounds a limit."""
    return size // 4096 * 4096


def last_limit(watch: Memwatch) -> dict[str, Any]:
    told = watch.named("forecast")
    return told[-1] if told else {}


@pytest.mark.cgroup
def test_moved_to_another_cgroup_its_limit_moves_too(folder: Folder) -> None:
    needs_cgroup()
    with ExitStack() as held:
        first = held.enter_context(memory_cgroup("memwatch-a", 2000 * MB))
        second = held.enter_context(memory_cgroup("memwatch-b", 200 * MB))
        run, watch = held.enter_context(watched(folder, leaking(megabytes=6), *configured(folder)))
        (first / "cgroup.procs").write_text(str(run.pid))
        until(lambda: last_limit(watch).get("limit_origin", "").endswith(first.name))
        (second / "cgroup.procs").write_text(str(run.pid))
        go(folder, watch)
        assert watch.wait() == ExitCode.SAVED, watch.said()
    [interrupt] = watch.named("interrupt")
    assert interrupt["limit_origin"].endswith(second.name)
    assert interrupt["limit"] == page(200 * MB)


@pytest.mark.cgroup
def test_a_limit_that_is_lowered_live_is_obeyed_and_one_that_is_raised_gives_time(folder: Folder) -> None:
    needs_cgroup()
    with memory_cgroup("memwatch-live", 1000 * MB) as group, trainer(folder, program=leaking(megabytes=6)) as run:
        (group / "cgroup.procs").write_text(str(run.pid))
        with memwatch(folder, "--pid", str(run.pid), *QUIET, *configured(folder)) as watch:
            until(lambda: last_limit(watch).get("limit") == page(1000 * MB))
            go(folder, watch)
            (group / "memory.limit_in_bytes").write_text(str(4000 * MB))
            until(lambda: last_limit(watch).get("limit") == page(4000 * MB))
            until(lambda: int((group / "memory.usage_in_bytes").read_text()) > 20 * MB)
            with pytest.raises(OSError, match="busy"):  # below its use
                (group / "memory.limit_in_bytes").write_text(str(4 * MB))
            assert not watch.named("interrupt")
            (group / "memory.limit_in_bytes").write_text(str(160 * MB))
            assert watch.wait() == ExitCode.SAVED, watch.said()
    [interrupt] = watch.named("interrupt")
    assert interrupt["limit"] == page(160 * MB) and interrupt["headroom"] > 0


# --- torchrun -------------------------------------------------------------------------------------------------------

AGENT = """
import os, signal, subprocess, sys
def leave(number, _):
    print("agent got", signal.Signals(number).name, flush=True)
    for rank in ranks: rank.send_signal(number)
signal.signal(signal.SIGINT, leave); signal.signal(signal.SIGTERM, leave)
command = [sys.executable, *sys.argv[1:]]
ranks = [subprocess.Popen(command, env={**os.environ, "RANK": n, "LOCAL_RANK": n}) for n in "01"]
sys.exit(max(rank.wait() for rank in ranks))
"""


@pytest.mark.parametrize("mode", ["agent", "ranks"])
def test_torchrun_is_signalled_as_configured(folder: Folder, mode: str) -> None:
    script = folder.path / "torchrun"
    script.write_text(AGENT)
    command = (sys.executable, str(script), str(LEAK), "saves", "60", "6", "0.3", "--wait")
    with trainer(folder, program=command) as run:
        config = configured(folder, f"signals: {{torchrun: {mode}}}\n")
        with memwatch(folder, "--pid", str(run.pid), *QUIET, "--limit", "200MB", *config) as watch:
            go(folder, watch)
            assert watch.wait() == ExitCode.SAVED, watch.said()
    log = folder.log.read_text()
    assert ("agent got SIGINT" in log) == (mode == "agent"), log
    assert log.count("Checkpoint saved") == 2
    assert "30 s" in notes(watch), notes(watch)
