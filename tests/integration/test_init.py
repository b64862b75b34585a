"""memwatch as PID 1, in PID namespaces of its own: signals, orphans, exit codes, and a memwatch that is killed."""

from __future__ import annotations

import fcntl
import os
import pty
import shlex
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from memwatch.errors import ExitCode
from support.mainjob import Folder, Memwatch, memwatch, until

NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child")
CONTAINER = (*NAMESPACE, "--mount-proc")
LEADER = (*CONTAINER, "setsid", "--ctty")  # PID 1 leads its session, as in `docker run -t`
QUIET = ("--listen", "none", "--interval", "0.1")
PSS_BYTES = 6 << 20
RESUMING = Path(__file__).parents[1] / "programs" / "resuming.py"


def permitted() -> bool:
    """Whether this user may make namespaces."""
    return subprocess.run([*CONTAINER, "true"], check=False, capture_output=True).returncode == 0


pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not permitted(), reason="no PID namespaces may be made here: needs root"),
]

# Counts each signal in the file `got`, from `ready` on; ends by itself when the file `go` is there.
COUNTING = """
import os, signal, sys, time
def count(number, frame):
    with open("got", "a") as file: print(number, file=file)
for number in (1, 2, 10, 15, 28, signal.SIGRTMIN + 1):
    signal.signal(number, count)
print("ready", os.getpid(), flush=True)
while not os.path.exists("go"): time.sleep(0.02)
sys.exit(7)
"""
ORPHANS = """
import os, sys, time
for _ in range(200):
    if not os.fork():
        if os.fork(): os._exit(0)
        os._exit(3)
    os.wait()
def zombies():
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file: found.append(file.read().rpartition(")")[2].split()[0])
        except OSError: pass
    return found.count("Z")
for _ in range(100):
    if not zombies(): sys.exit(0)
    time.sleep(0.05)
sys.exit(1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def code(text: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-u", "-c", text)


class Containers:
    """Starts memwatch as the first process of containers, which end with the test."""

    def __init__(self, folder: Folder, held: ExitStack) -> None:
        self.folder, self._held = folder, held

    def run(self, *trainer: str, before: Sequence[str] = CONTAINER) -> Memwatch:
        """`memwatch run` of this trainer."""
        return self.memwatch("run", *QUIET, "--", *trainer, before=before)

    def memwatch(self, *arguments: str, before: Sequence[str] = CONTAINER) -> Memwatch:
        return self._held.enter_context(memwatch(self.folder, *arguments, before=before))

    def counting(self) -> tuple[Memwatch, int]:
        """`memwatch run` of the counting trainer, which is ready, and PID 1 as it is called outside."""
        watch = self.run(*code(COUNTING))
        until(lambda: "ready" in watch.out.read_text())
        return watch, child(watch.process.pid)


@pytest.fixture
def containers(folder: Folder) -> Iterator[Containers]:
    with ExitStack() as held:
        yield Containers(folder, held)


def child(pid: int) -> int:
    """The first child of a process."""
    until(Path(f"/proc/{pid}/task/{pid}/children").read_text)
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def got(folder: Folder) -> list[int]:
    path = folder.path / "got"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def ended(folder: Folder, watch: Memwatch) -> int:
    """The exit code, after the trainer was let go."""
    (folder.path / "go").touch()
    return watch.wait()


# --- exit codes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "status"), [("", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_exit_code_is_the_trainer_s(containers: Containers, text: str, status: int) -> None:
    assert containers.run(*code(text)).wait() == status


def test_every_command_runs_as_pid_1(containers: Containers) -> None:
    watch = containers.memwatch("--pid", "1", "--history", "none")
    assert watch.wait() == ExitCode.CANNOT_ATTACH
    assert "PID 1 is never watched" in watch.said()


def test_without_a_proc_of_its_own_nothing_is_started(folder: Folder, containers: Containers) -> None:
    watch = containers.run("touch", "started", before=NAMESPACE)
    assert watch.wait() == ExitCode.CANNOT_ATTACH
    assert "/proc does not show the processes of memwatch's own PID namespace" in watch.said()
    assert "unshare --mount-proc" in watch.said()
    assert not (folder.path / "started").exists()


# --- signals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGWINCH, signal.SIGHUP, signal.SIGRTMIN + 1]
)
def test_a_signal_to_pid_1_reaches_the_trainer_once(folder: Folder, containers: Containers, number: int) -> None:
    watch, init = containers.counting()
    os.kill(init, number)
    until(lambda: got(folder))
    os.kill(init, signal.SIGINT)  # what comes in order proves that no second one was on its way
    until(lambda: int(signal.SIGINT) in got(folder))
    assert ended(folder, watch) == 7, watch.said()
    assert got(folder) == [number, signal.SIGINT]


def test_what_would_stop_a_process_does_not_stop_pid_1(folder: Folder, containers: Containers) -> None:
    watch, init = containers.counting()
    for number in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT, signal.SIGTERM):
        os.kill(init, number)
    until(lambda: got(folder))
    assert ended(folder, watch) == 7, watch.said()
    assert got(folder) == [signal.SIGTERM]


@contextmanager
def on_terminal(folder: Folder, before: Sequence[str]) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """`memwatch run` of the counting trainer on a terminal: the other side of that, and the process."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "memwatch", "run", *QUIET, "--", *code(COUNTING)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder.path,
        env=folder.environ(),
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no threads here
    )
    os.close(slave)
    try:
        said = b""
        while b"ready" not in said:
            said += os.read(master, 4096)
        yield master, process
    finally:
        process.kill()
        process.wait()


def ended_after(folder: Folder, number: int, process: subprocess.Popen[bytes]) -> int:
    """The exit code, after this signal has come and then, so that a second one would have come too, SIGUSR1."""
    until(lambda: number in got(folder))
    os.kill(child(process.pid), signal.SIGUSR1)
    until(lambda: int(signal.SIGUSR1) in got(folder))
    (folder.path / "go").touch()
    return process.wait(30)


@pytest.mark.parametrize("before", [CONTAINER, LEADER], ids=["in a job", "leading its session"])
def test_ctrl_c_reaches_the_trainer_once(folder: Folder, before: Sequence[str]) -> None:
    with on_terminal(folder, before) as (master, process):
        init = child(process.pid)
        os.kill(init, signal.SIGSTOP)  # or a second SIGINT might be one with the first
        os.write(master, b"\x03")
        until(lambda: got(folder))
        os.kill(init, signal.SIGCONT)
        assert ended_after(folder, signal.SIGINT, process) == 7
        os.close(master)
    assert got(folder) == [signal.SIGINT, signal.SIGUSR1]


def test_a_terminal_that_goes_away_is_told_once(folder: Folder) -> None:
    with on_terminal(folder, LEADER) as (master, process):
        os.close(master)
        assert ended_after(folder, signal.SIGHUP, process) == 7
    assert got(folder) == [signal.SIGHUP, signal.SIGUSR1]


# --- orphans --------------------------------------------------------------------------------------------------------


def test_orphans_are_reaped(containers: Containers) -> None:
    watch = containers.run(*code(ORPHANS))
    assert watch.wait() == 0, watch.said()


def test_what_the_trainer_leaves_behind_ends_with_the_container(containers: Containers) -> None:
    watch = containers.run("sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & sleep 0.5; exit 4")
    init = child(watch.process.pid)
    assert watch.wait() == 4
    assert not Path(f"/proc/{init}").exists(), "unshare has reaped PID 1, so that nobody of its namespace is left"


# --- a memwatch that is killed --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_killed_memwatch_leaves_the_trainer_to_pid_1(
    folder: Folder, containers: Containers, number: signal.Signals
) -> None:
    watch, init = containers.counting()
    os.kill(child(init), number)
    until(lambda: "goes on unwatched" in watch.err.read_text())
    os.kill(init, signal.SIGTERM)
    until(lambda: got(folder) == [signal.SIGTERM])
    assert ended(folder, watch) == 7, watch.said()
    [line] = [line for line in watch.err.read_text().splitlines() if "unwatched" in line]
    [log] = (folder.path / "state" / "memwatch" / "runs").glob("*.log")
    assert line.startswith(f"memwatch: memwatch itself has ended (signal {number:d}); the trainer, PID ")
    assert line.endswith(f"goes on unwatched; its output goes on in {log}")


def test_killed_memwatch_leaves_the_trainer_that_runs_now(folder: Folder, containers: Containers) -> None:
    first = (sys.executable, "-S", str(RESUMING), "60", "12", "0.3", "0")
    again = ("--max-restarts", "1", "--resume-with", shlex.join(code(COUNTING)))
    fast = ("--limit", "90MB", "--checkpoint-time", "0.5")
    watch = containers.memwatch("run", *QUIET, *fast, *again, "--", *first)
    until(lambda: "ready" in watch.out.read_text())
    os.kill(child(child(watch.process.pid)), signal.SIGKILL)
    until(lambda: "goes on unwatched" in watch.err.read_text())
    assert ended(folder, watch) == 7, watch.said()


def test_killed_with_its_trainer_the_container_ends(containers: Containers) -> None:
    watch, init = containers.counting()
    own = child(init)
    trainer = child(own)
    os.kill(own, signal.SIGSTOP)  # so that it does not see the trainer's end
    os.kill(trainer, signal.SIGKILL)
    os.kill(own, signal.SIGKILL)
    assert watch.wait() == 128 + signal.SIGKILL


# --- what it costs --------------------------------------------------------------------------------------------------


def test_pid_1_is_small(folder: Folder, containers: Containers) -> None:
    watch, init = containers.counting()
    [line] = [one for one in Path(f"/proc/{init}/smaps_rollup").read_text().splitlines() if one.startswith("Pss:")]
    threads = [*Path(f"/proc/{init}/task").iterdir()]
    assert ended(folder, watch) == 7
    pss_bytes = int(line.split()[1]) << 10
    assert (len(threads), pss_bytes < PSS_BYTES) == (1, True), pss_bytes
