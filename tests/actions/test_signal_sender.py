from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.actions.signal_sender import ChildrenSignaller, ExitStatus, PidfdSignaller, choose_signal, system_call
from memwatch.core.measurements import Target
from memwatch.errors import AttachError, ConfigError, NoTrainerError, SourceError, TargetGoneError
from memwatch.sources.target.target_facts import identify, is_same_process
from support.processes import READY, WAIT, python, running, stranger

CATCHES_TERM = "import signal; signal.signal(signal.SIGTERM, lambda *_: None); " + WAIT


def status_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/status").read_bytes()


def lines(caught: int = 0, ignored: int = 0, blocked: int = 0) -> bytes:
    return f"Name:\tx\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n".encode()


def wait_gone(signaller: PidfdSignaller) -> None:
    assert select.select([signaller], [], [], 10)[0], "it did not end"


# --- the plan


def test_python_catches_sigint():
    with running(python(WAIT)) as child:
        chosen = choose_signal(status_of(child.pid))
    assert (chosen.signal, chosen.handled, chosen.ignored) == ("SIGINT", True, ())


def test_a_trainer_started_in_the_background_of_a_script_ignores_sigint_and_term_would_not_save():
    with running(["sh", "-c", f'"{sys.executable}" -S -c "{WAIT}" & wait']) as shell:
        pid = int(Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text())
        try:
            chosen = choose_signal(status_of(pid))
        finally:
            os.kill(pid, 9)
    assert (chosen.signal, chosen.handled, chosen.ignored) == ("SIGTERM", False, ("SIGINT",))
    assert "cmd &" in chosen.reason
    assert "without a checkpoint" in chosen.reason


def test_nohup_in_a_script_falls_back_to_the_signal_that_is_handled():
    command = f'nohup "{sys.executable}" -S -c "{CATCHES_TERM}" 2>/dev/null & wait'
    with running(["sh", "-c", command]) as shell:
        pid = int(Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text())
        try:
            chosen = choose_signal(status_of(pid))
        finally:
            os.kill(pid, 9)
    assert (chosen.signal, chosen.handled, chosen.ignored) == ("SIGTERM", True, ("SIGINT",))
    assert "ignores SIGINT" in chosen.reason
    assert "SIGTERM, which it catches" in chosen.reason


def test_a_program_that_handles_nothing_is_planned_for_and_said_so():
    with running(python("import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); " + WAIT)) as child:
        chosen = choose_signal(status_of(child.pid))
    assert (chosen.signal, chosen.handled) == ("SIGINT", False)
    assert "without a checkpoint" in chosen.reason


@pytest.mark.parametrize(
    ("status", "wanted", "signal", "handled"),
    [
        (lines(caught=0x2), ("SIGTERM", "SIGINT"), "SIGINT", True),
        (lines(caught=0x4002), ("SIGTERM", "SIGINT"), "SIGTERM", True),
        (lines(caught=0x4002, blocked=0x2), ("SIGINT", "SIGTERM"), "SIGTERM", True),
        (lines(blocked=0x2), ("SIGINT", "SIGTERM"), "SIGINT", True),  # sigwait or signalfd
        (lines(ignored=0x4002), ("SIGINT", "SIGTERM"), None, False),
        (lines(caught=0x200), ("SIGINT", "SIGTERM"), "SIGINT", False),  # SIGUSR1 is never chosen by itself
        (lines(caught=0x200), ("SIGUSR1", "SIGINT"), "SIGUSR1", True),
    ],
)
def test_plan(status, wanted, signal, handled):
    chosen = choose_signal(status, wanted)
    assert (chosen.signal, chosen.handled) == (signal, handled)
    assert chosen.reason


def test_unknown_signal_names_are_refused():
    with pytest.raises(ConfigError, match="SIGFOO"):
        choose_signal(lines(), ("SIGFOO",))


@given(st.binary(max_size=300) | st.binary(max_size=40).map(lambda b: b"SigCgt:\t" + b + b"\nSigIgn:\t0\nSigBlk:\t0\n"))
def test_any_bytes_give_a_plan_or_a_named_error(status):
    try:
        chosen = choose_signal(status)
    except SourceError:
        return
    assert chosen.signal in ("SIGINT", "SIGTERM", None)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_an_ignored_signal_is_never_chosen(caught, ignored, blocked):
    chosen = choose_signal(lines(caught, ignored, blocked))
    assert chosen.signal not in chosen.ignored
    assert (chosen.signal is None) == (ignored & 0x4002 == 0x4002)


# --- the exit status

REAL_TIME = int(signal.SIGRTMIN) + 1


@pytest.mark.parametrize(
    ("code", "expected"), [(7, (7, None)), (-9, (None, "SIGKILL")), (-REAL_TIME, (None, f"signal {REAL_TIME}"))]
)
def test_exit_status_of_a_child(code, expected):
    assert ExitStatus.from_returncode(code) == ExitStatus(*expected)


# --- sending


def test_sends_to_the_process_alone_and_reads_how_a_child_ended():
    code = "import sys, time\ntry: print('ready', flush=True); time.sleep(60)\nexcept KeyboardInterrupt: sys.exit(7)"
    with running(python(code), start_new_session=True) as child:
        signaller = PidfdSignaller(identify(child.pid), is_same_process)
        assert signaller.may_signal()
        assert not signaller.gone()
        assert signaller.exit_status() is None
        signaller.send_signal("SIGINT")
        wait_gone(signaller)
        assert signaller.gone()
        assert signaller.exit_status() == ExitStatus(7, None)
        signaller.close()


def test_never_the_group():
    worker = "import sys, time; print('ready', flush=True); time.sleep(60)"
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-S', '-c', {worker!r}], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "try: print('ready', flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt: print(child.poll(), flush=True); child.kill(); child.wait()"
    )
    with running(python(code), start_new_session=True) as child:
        signaller = PidfdSignaller(identify(child.pid), is_same_process)
        signaller.send_signal("SIGINT")
        assert child.stdout.readline() == "None\n", "the worker was hit"
        signaller.close()


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ("raise SystemExit(0)", ExitStatus(0, None)),
        ("raise SystemExit(42)", ExitStatus(42, None)),
        ("os.kill(os.getpid(), 9)", ExitStatus(None, "SIGKILL")),
        ("os.kill(os.getpid(), 40)", ExitStatus(None, "signal 40")),
    ],
)
@pytest.mark.parametrize("reaped", [False, True], ids=["zombie", "reaped"])
def test_exit_status_of_a_process_that_is_not_our_child(ending, expected, reaped, tmp_path):
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    code = READY + f"import os; open({str(fifo)!r}).read(); {ending}"
    with stranger(code) as process:
        signaller = PidfdSignaller(identify(process.pid), is_same_process)
        fifo.write_text("go")
        wait_gone(signaller)
        if reaped:
            process.reap()
            if signaller.exit_status() is None:
                pytest.skip("the kernel is older than 6.15: PIDFD_INFO_EXIT is not answered")
        assert signaller.exit_status() == expected
        if not reaped:
            process.reap()
            assert signaller.exit_status() == expected, "known once, known for good"
        with pytest.raises(TargetGoneError):
            signaller.send_signal("SIGINT")
        signaller.close()


def test_a_sigkill_that_waits_and_an_exit_that_has_begun_show_before_the_end(tmp_path):
    def dying(pending: int = 0, flags: int = 0, later: int = 0) -> bool:
        start = signaller.target.start_ticks + later
        rest = ["1", "1", "1", "0", "-1", str(flags), *["0"] * 12, str(start), *["0"] * 30]
        folder = tmp_path / str(child.pid)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(" ".join([str(child.pid), "(python)", "R", *rest]) + "\n")
        (folder / "status").write_text(f"SigPnd:\t{0:016x}\nShdPnd:\t{pending:016x}\nSigBlk:\t{0:016x}\n")
        return signaller.dying(str(tmp_path))

    with running(python(WAIT)) as child:
        signaller = PidfdSignaller(identify(child.pid), is_same_process)
        assert not signaller.dying() and not dying()
        assert not dying(pending=1 << 14), "SIGTERM can be survived"
        assert dying(pending=1 << 8)
        assert dying(flags=0x4) and dying(flags=0x400)
        assert dying(later=1), "another process"
        child.kill()
        wait_gone(signaller)
        assert signaller.dying()
        signaller.close()


def test_a_zombie_counts_as_gone():
    with stranger(READY) as process:
        with pytest.raises(AttachError):
            for _ in range(500):
                PidfdSignaller(identify(process.pid), is_same_process).close()
        process.reap()


def restart_as(pid: int) -> subprocess.Popen[str]:
    """A new process with this very PID, or a skip."""
    last = Path("/proc/sys/kernel/ns_last_pid")
    for _ in range(50):
        try:
            last.write_text(str(pid - 1))
        except OSError as error:
            pytest.skip(f"cannot choose the next PID: {error}")
        child = subprocess.Popen(python(WAIT), stdout=subprocess.PIPE, text=True)
        if child.pid == pid:
            child.stdout.readline()
            return child
        child.kill()
        child.wait()
        child.stdout.close()
    pytest.skip("other processes took the PID each time")


def test_a_recycled_pid_is_never_signalled():
    with running(python(WAIT)) as first:
        target = identify(first.pid)
        held = PidfdSignaller(target, is_same_process)
        time.sleep(2 / os.sysconf("SC_CLK_TCK"))  # the start time counts in ticks of 10 ms
    second = restart_as(target.pid)
    try:
        assert second.pid == target.pid
        assert not is_same_process(target)
        assert held.gone()
        assert not held.may_signal()
        with pytest.raises(TargetGoneError):
            held.send_signal("SIGKILL")
        with pytest.raises(NoTrainerError, match="another one"):
            PidfdSignaller(target, is_same_process)
        assert identify(second.pid) != target
        assert second.poll() is None, "the stranger was hit"
    finally:
        held.close()
        second.kill()
        second.wait()
        second.stdout.close()


@pytest.mark.parametrize("pid", [0, 1, -5, os.getpid()], ids=["zero", "init", "negative", "itself"])
def test_never_init_and_never_itself(pid):
    with pytest.raises(AttachError, match="never signalled"):
        PidfdSignaller(Target("boot", pid, 1), lambda _: True)


def test_without_pidfd_it_watches_and_refuses_to_signal():
    def denied(pid: int) -> int:
        raise OSError(errno.EPERM, "Operation not permitted")

    with running(python(WAIT)) as child:
        signaller = PidfdSignaller(identify(child.pid), is_same_process, pidfd_open=denied)
        assert "Operation not permitted" in signaller.problem
        assert not signaller.may_signal()
        assert not signaller.gone()
        with pytest.raises(SourceError, match="SIGINT not sent") as raised:
            signaller.send_signal("SIGINT")
        assert "pidfd" in raised.value.hint
        with pytest.raises(ValueError, match="not permitted"):
            signaller.fileno()
    assert signaller.gone()
    assert signaller.exit_status() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_users_process_refuses_with_a_hint():
    with running(python(WAIT)) as child:
        worker = os.fork()
        if worker == 0:  # as nobody
            code = 9
            try:
                target = identify(child.pid)
                os.setuid(65534)
                signaller = PidfdSignaller(target, is_same_process)
                try:
                    signaller.send_signal("SIGINT")
                except SourceError as error:
                    code = 0 if "CAP_KILL" in error.hint and not signaller.may_signal() else 8
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 0
        assert child.poll() is None


def test_a_python_without_pidfd_functions_makes_the_system_calls_itself():
    with running(python(WAIT), stderr=subprocess.DEVNULL) as child:
        pidfd = system_call(434, child.pid, 0)
        try:
            assert not os.get_inheritable(pidfd)
            assert system_call(424, pidfd, 2, None, 0) == 0
            assert child.wait(10) == -2
            with pytest.raises(ProcessLookupError):
                system_call(424, pidfd, 2, None, 0)
        finally:
            os.close(pidfd)


def test_ranks_are_signalled_one_by_one():
    with (
        running(python(WAIT), stderr=subprocess.DEVNULL) as one,
        running(python(WAIT), stderr=subprocess.DEVNULL) as two,
    ):
        ranks = [identify(one.pid), identify(two.pid)]
        ChildrenSignaller(lambda: ranks, is_same_process).send_signal("SIGINT")
        assert (one.wait(10), two.wait(10)) == (-2, -2)
    with pytest.raises(TargetGoneError):
        ChildrenSignaller(lambda: ranks, is_same_process).send_signal("SIGINT")


def test_descriptors_are_given_back():
    before = len(list(Path("/proc/self/fd").iterdir()))
    with running(python(WAIT)) as child:
        target = identify(child.pid)
        for _ in range(5):
            PidfdSignaller(target, is_same_process).close()
            ChildrenSignaller(lambda: [target], is_same_process).send_signal("SIGCONT")
        with pytest.raises(AttachError):
            PidfdSignaller(Target(target.boot_id, target.pid, target.start_ticks + 1), is_same_process)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
