"""`memwatch run`'s child and its output, with real children."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from memwatch.app.launched_trainer import (
    FORWARDED_SIGNALS,
    LaunchedTrainer,
    Passthrough,
    new_run_log_path,
    shell_status,
)
from memwatch.cli.demo import Confinement, _can_start, _cgroup, _rlimit, confine
from memwatch.errors import AttachError
from memwatch.system.clock import signal_handlers
from support.mainjob import until

MB = 10**6


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "child.log"


def shell(code: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", code)


# --- Child ----------------------------------------------------------------------------------------------------------


def test_both_outputs_go_to_the_log_in_order(log: Path) -> None:
    child = LaunchedTrainer(shell("echo one; echo two >&2; echo three"), log)
    assert child.wait() == 0
    assert log.read_text() == "one\ntwo\nthree\n"
    assert log.stat().st_mode & 0o777 == 0o600


def test_status_of_an_exit_and_of_a_death(log: Path) -> None:
    assert LaunchedTrainer(shell("exit 7"), log).wait() == 7
    log.unlink()
    assert LaunchedTrainer(shell("kill -9 $$"), log).wait() == -9


@pytest.mark.parametrize(("status", "code"), [(0, 0), (7, 7), (-9, 137), (-2, 130)])
def test_the_exit_code_is_the_shell_s(status: int, code: int) -> None:
    assert shell_status(status) == code


@pytest.mark.parametrize(
    ("command", "why"), [("/nowhere/python", "No such file"), ("/etc/passwd", "Permission denied")]
)
def test_what_cannot_start_is_told_and_leaves_no_log(log: Path, command: str, why: str) -> None:
    with pytest.raises(AttachError, match=why) as caught:
        LaunchedTrainer((command,), log)
    assert "memwatch run --" in caught.value.hint
    assert not log.exists()


def test_a_log_that_is_there_already_is_never_written_over(log: Path) -> None:
    log.parent.mkdir()
    log.write_text("another's")
    with pytest.raises(AttachError, match="File exists"):
        LaunchedTrainer(shell("echo mine"), log)
    assert log.read_text() == "another's"


def test_it_has_a_session_of_its_own_and_handles_sigint_even_when_memwatch_does_not(log: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as under `memwatch run ... &` in a script
    try:
        child = LaunchedTrainer(("sleep", "60"), log)
    finally:
        signal.signal(signal.SIGINT, before)
    assert os.getsid(child.pid) == child.pid
    child.forward_signal(signal.SIGINT)
    assert child.wait() == -signal.SIGINT


def test_signals_to_memwatch_go_to_the_child_alone(log: Path) -> None:
    child = LaunchedTrainer(shell("trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.05; done"), log)
    until(lambda: "ready" in log.read_text())
    before = signal.getsignal(signal.SIGUSR1)
    with signal_handlers(FORWARDED_SIGNALS, child.forward_signal):
        os.kill(os.getpid(), signal.SIGUSR1)
        assert child.wait() == 5
        os.kill(os.getpid(), signal.SIGUSR1)  # it has ended: nobody gets it, nobody dies of it
    assert signal.getsignal(signal.SIGUSR1) is before


@pytest.mark.parametrize("number", [signal.SIGWINCH, signal.SIGALRM, signal.SIGRTMIN + 1, signal.SIGRTMAX])
def test_every_signal_that_a_program_may_be_told_something_by_is_passed_on(log: Path, number: int) -> None:
    got: list[int] = []
    with signal_handlers(FORWARDED_SIGNALS, got.append):
        os.kill(os.getpid(), number)
    assert got == [number]


def test_it_knows_whether_it_was_told_to_end(log: Path) -> None:
    child = LaunchedTrainer(shell("trap : USR1 TERM; while :; do sleep 0.05; done"), log)
    child.forward_signal(signal.SIGWINCH)
    assert not child.end_requested
    child.forward_signal(signal.SIGTERM)
    assert child.end_requested
    child.forward_signal(signal.SIGKILL)
    child.wait()


def test_a_log_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AttachError, match=r"cannot make .*/file/runs/child\.log: ") as caught:
        LaunchedTrainer(shell("true"), tmp_path / "file" / "runs" / "child.log")
    assert "XDG_STATE_HOME" in caught.value.hint


def test_end_ends_it_once(log: Path) -> None:
    child = LaunchedTrainer(("sleep", "60"), log)
    child.terminate()
    assert child.wait() == -signal.SIGTERM
    child.terminate()


def test_environment_and_folder(log: Path, tmp_path: Path) -> None:
    child = LaunchedTrainer(
        shell('echo "$GREETING $PYTHONUNBUFFERED"; pwd'), log, {"GREETING": "hello"}, folder=tmp_path
    )
    child.wait()
    assert log.read_text().splitlines() == ["hello 1", str(tmp_path)]


# --- Passthrough ----------------------------------------------------------------------------------------------------


def passed_on(log: Path, code: str, take: Callable[[int], bytes]) -> bytes:
    read, write = os.pipe()
    child = LaunchedTrainer(shell(code), log)
    passthrough = Passthrough(log, write)
    taken = take(read)
    child.wait()
    passthrough.close()
    os.close(write)
    rest = b"".join(iter(lambda: os.read(read, 65536), b""))
    os.close(read)
    return taken + rest


def test_bytes_come_through_as_they_are_and_to_the_last(log: Path) -> None:
    code = r"printf 'a\r\377\000b'; sleep 0.3; printf 'last words, no newline'"
    assert passed_on(log, code, lambda _: b"") == b"a\r\xff\x00blast words, no newline"


def test_output_comes_while_the_child_runs(log: Path) -> None:
    began = time.monotonic()
    first: list[float] = []

    def take(read: int) -> bytes:
        data = os.read(read, 65536)
        first.append(time.monotonic() - began)
        return data

    assert passed_on(log, "echo early; sleep 1; echo late", take) == b"early\nlate\n"
    assert first[0] < 0.9


def test_what_is_written_is_shown_when_it_has_caught_up(log: Path) -> None:
    read, write = os.pipe()
    child = LaunchedTrainer(shell("echo first; echo last words"), log)
    child.wait()
    passthrough = Passthrough(log, write)
    passthrough.catch_up()
    os.set_blocking(read, False)
    assert os.read(read, 65536) == b"first\nlast words\n"
    passthrough.close()
    os.close(write)
    os.close(read)


def test_a_reader_that_stands_still_is_waited_for_a_second(log: Path) -> None:
    read, write = os.pipe()
    child = LaunchedTrainer(shell("head -c 300000 /dev/zero"), log)
    child.wait()
    passthrough, began = Passthrough(log, write), time.monotonic()
    passthrough.catch_up()
    assert 0.9 < time.monotonic() - began < 3.0
    taken = 0
    while taken < 300_000:
        taken += len(os.read(read, 65536))
    passthrough.close()
    os.close(write)
    os.close(read)


def test_a_reader_that_leaves_does_not_stop_the_child(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    child = LaunchedTrainer(shell("for i in 1 2 3; do echo $i; sleep 0.1; done; exit 3"), log)
    passthrough = Passthrough(log, write)
    assert child.wait() == 3
    passthrough.close()
    os.close(write)
    assert log.read_text() == "1\n2\n3\n"
    assert str(log) in capsys.readouterr().err


# --- confine --------------------------------------------------------------------------------------------------------

GREEDY = "kept = []\nwhile len(kept) < 400: kept.append(b'x' * 1_000_000)\nprint('never')"


def outcome(confinement: Confinement) -> tuple[int, str]:
    """Status and words of a program that wants 400 MB."""
    command = [*confinement.prefix, sys.executable, "-S", "-c", GREEDY]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, preexec_fn=confinement.before_exec, timeout=60, check=False
        )
    finally:
        confinement.close()
    return ended.returncode, ended.stdout + ended.stderr


def test_the_last_resort_is_a_limit_that_python_hears_of() -> None:
    status, words = outcome(_rlimit(100 * MB))
    assert (status, "MemoryError" in words) == (1, True), words


@pytest.mark.cgroup
def test_a_cgroup_is_entered_and_removed() -> None:
    made = _cgroup(100 * MB)
    if made is None:
        pytest.skip("no memory cgroup can be made here")
    [folder] = Path("/sys/fs/cgroup").glob(f"**/memwatch-demo-{os.getpid()}")
    status, _ = outcome(made)
    assert status == -signal.SIGKILL, "killed at its limit"
    assert not folder.exists()


def test_whatever_this_user_may_have_it_limits() -> None:
    status, _ = outcome(confine(100 * MB))
    assert status in (1, -signal.SIGKILL)


def test_a_way_that_does_not_start_anything_is_not_taken() -> None:
    def fails() -> None:
        raise OSError("as in a cgroup that takes no processes")

    assert _can_start(())
    assert not _can_start((), fails)
    assert not _can_start(("false",))
    assert not _can_start(("/nowhere/systemd-run",))


def test_where_the_usual_folder_cannot_be_used_the_output_goes_to_a_temporary_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "memwatch").touch()
    log = new_run_log_path({"XDG_STATE_HOME": str(tmp_path)})
    child = LaunchedTrainer(shell("echo hello"), log)
    child.wait()
    assert log.read_text() == "hello\n" and "memwatch-run-" in str(log)
    assert f"the usual folder cannot be used: {tmp_path}/memwatch" in capfd.readouterr().err
    shutil.rmtree(log.parent)
