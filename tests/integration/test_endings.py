"""How trainers end, each cause for real, and what memwatch says of it: the truth, or nothing."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from memwatch.errors import ExitCode
from support.mainjob import MB, Folder, Memwatch, memwatch, trainer, until

pytestmark = pytest.mark.integration

LEAK = Path(__file__).parents[1] / "programs" / "leak.py"
QUIET = ("--listen", "none", "--interval", "0.1", "--json")
FAST = "policy: {confirmation_seconds: 0.2, checkpoint_seconds: 0.5, save_timeout_seconds: 1, kill_after_seconds: 1"

READY_THEN = """
import os, sys, time
print("Generation 1 / 3", flush=True)
while not os.path.exists("go"): time.sleep(0.02)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def needs_cgroup() -> None:
    if os.geteuid() != 0 or not Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists():
        pytest.skip("needs root and a memory cgroup of version 1")


def code(text: str) -> tuple[str, ...]:
    """A program that does `text` when the file `go` appears."""
    return (sys.executable, "-u", "-c", READY_THEN + text)


def leaking(on_signal: str, generations: int = 60) -> tuple[str, ...]:
    return (sys.executable, str(LEAK), on_signal, str(generations), "12", "0.3", "--wait")


def watch_end(
    folder: Folder,
    program: Sequence[str],
    *arguments: str,
    limit_bytes: int | None = None,
    act: Callable[[Popen[bytes]], object] = lambda run: None,
) -> tuple[dict[str, Any], Memwatch, int]:
    """What memwatch tells of the end of `program`, memwatch itself after it, and its exit code."""
    with ExitStack() as held:
        run = held.enter_context(trainer(folder, program=program, limit_bytes=limit_bytes))
        watch = held.enter_context(memwatch(folder, "--pid", str(run.pid), *QUIET, *arguments))
        until(lambda: watch.named("attached"))
        time.sleep(0.3)  # some looks before the end, as in life
        (folder.path / "go").touch()
        act(run)
        result = watch.wait()
    assert len(watch.named("exited")) == 1, watch.said()
    return watch.named("exited")[0], watch, result


def configured(folder: Folder, more: str = "") -> tuple[str, str]:
    """A policy for trainers that end within seconds."""
    path = folder.path / "memwatch.yaml"
    path.write_text(FAST + more + "}\n")
    return ("--config", str(path))


# --- by itself ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cause", "exit_code", "evidence"),
    [
        ("", "completed", ExitCode.ENDED, "exit status 0"),
        ("sys.exit(3)", "failed", ExitCode.FAILED, "exit status 3"),
        ("os.abort()", "signalled", ExitCode.FAILED, "ended by SIGABRT"),
        (
            "import resource\nresource.setrlimit(resource.RLIMIT_DATA, (2**27, 2**27))\nx = bytearray(2**28)",
            "memory_error",
            ExitCode.FAILED,
            "MemoryError",
        ),
        (
            "print('RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB'); sys.exit(1)",
            "cuda_oom",
            ExitCode.FAILED,
            "CUDA out of memory. Tried to allocate 2.00 GiB",
        ),
        (
            "print('RuntimeError: DataLoader worker (pid 3) is killed by signal: Bus error. It is possible that '"
            "'dataloader\\'s workers are out of shared memory.'); sys.exit(1)",
            "tmpfs_full",
            ExitCode.FAILED,
            "shared memory full: RuntimeError: DataLoader worker",
        ),
        (
            "print('slurmstepd: error: Job 9046 exceeded memory limit (734003200 > 536870912), being killed')\n"
            "print('slurmstepd: error: Exceeded job memory limit', flush=True); os.kill(os.getpid(), 9)",
            "oom_scheduler",
            ExitCode.OOM_KILLED,
            "killed by Slurm at its limit of 536.9 MB",
        ),
        ("print('MemoryError: retrying with half the batch')", "completed", ExitCode.ENDED, "exit status 0"),
    ],
    ids=["completed", "failed", "aborted", "MemoryError", "CUDA", "shared memory", "Slurm", "survived"],
)
def test_it_ends_by_itself(folder: Folder, text: str, cause: str, exit_code: int, evidence: str) -> None:
    exited, watch, result = watch_end(folder, code(text), "--log", str(folder.log))
    assert (exited["cause"], result) == (cause, exit_code), watch.said()
    assert evidence in exited["evidence"][0]
    assert not watch.named("signalled")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_somebody_elses_signal(folder: Folder, number: signal.Signals) -> None:
    # a Python that SIGINT ends says so with a signal too; each is somebody's, and none memwatch's
    exited, watch, result = watch_end(folder, code("time.sleep(60)"), act=lambda run: run.send_signal(number))
    assert (exited["cause"], result) == ("signalled", ExitCode.FAILED), watch.said()
    assert exited["evidence"][0] == f"ended by {number.name}"
    assert not any("memwatch" in line for line in exited["evidence"])


# --- told after the end ---------------------------------------------------------------------------------------------


def scrape(watch: Memwatch) -> str:
    [note] = [one["text"] for one in watch.named("note") if "metrics and status" in one["text"]]
    with urllib.request.urlopen(note.split()[-1] + "metrics", timeout=10) as answer:
        return answer.read().decode()


def test_it_lingers_for_who_scrapes_until_a_signal_ends_that(folder: Folder) -> None:
    path = folder.path / "memwatch.yaml"
    path.write_text("daemon: {linger_seconds: 600}\nlisten: '127.0.0.1:0'\n")
    program = code("sys.exit(3)")
    with (
        trainer(folder, program=program) as run,
        memwatch(folder, "--pid", str(run.pid), "--json", "--config", str(path)) as watch,
    ):
        until(lambda: watch.named("attached") and "memwatch_target_up 1.0" in scrape(watch))
        (folder.path / "go").touch()
        until(lambda: watch.named("exited"))
        until(lambda: 'memwatch_target_exit_info{cause="failed",exit_code="3",signal=""} 1.0' in scrape(watch))
        assert watch.process.poll() is None
        watch.process.send_signal(signal.SIGINT)
        assert watch.wait(10) == ExitCode.FAILED, watch.said()


# --- by the kernel --------------------------------------------------------------------------------------------------

GREEDY = "kept = []\nwhile True: kept.append(bytearray(b'x' * 20_000_000))"
WORKER = f"""
import signal
signal.signal(signal.SIGINT, lambda *_: sys.exit(5))
pid = os.fork()
if not pid:
    open('/proc/self/oom_score_adj', 'w').write('1000')
    {GREEDY.replace(chr(10), chr(10) + "    ")}
os.waitpid(pid, 0)
print('a worker died, going on')
"""


@pytest.mark.cgroup
def test_the_kernel_kills_it_in_its_cgroup(folder: Folder) -> None:
    needs_cgroup()
    exited, watch, result = watch_end(folder, code(GREEDY), "--dry-run", limit_bytes=150 * MB)
    assert (exited["cause"], result) == ("oom_cgroup", ExitCode.OOM_KILLED), watch.said()
    assert exited["signal"] == "SIGKILL"


@pytest.mark.cgroup
@pytest.mark.parametrize(("end", "cause"), [("time.sleep(2)", "completed"), ("sys.exit(4)", "oom_cgroup")])
def test_a_killed_worker_is_its_end_where_it_fails(folder: Folder, end: str, cause: str) -> None:
    needs_cgroup()
    exited, watch, _ = watch_end(folder, code(WORKER + end), "--dry-run", limit_bytes=150 * MB)
    assert exited["cause"] == cause, watch.said()
    assert any("not the trainer" in line or "oom_kill counter" in line for line in exited["evidence"]), "but it is told"


@pytest.mark.cgroup
def test_somebodys_sigkill_in_a_full_cgroup_is_no_oom_kill(folder: Folder) -> None:
    needs_cgroup()
    fill = "kept = b'x' * 130_000_000; print('full', flush=True); time.sleep(60)"

    def kill(run: Popen[bytes]) -> None:
        until(lambda: b"full" in folder.log.read_bytes())
        time.sleep(0.3)
        run.kill()

    exited, watch, _ = watch_end(folder, code(fill), "--dry-run", limit_bytes=150 * MB, act=kill)
    assert exited["cause"] == "signalled", watch.said()
    assert "no trace of the OOM killer: the oom_kill counter did not rise" in exited["evidence"]


# --- by memwatch ----------------------------------------------------------------------------------------------------


def signals(watch: Memwatch) -> list[str]:
    return [one["signal"] for one in watch.named("signalled")]


def test_interrupted_it_saves(folder: Folder) -> None:
    exited, watch, result = watch_end(folder, leaking("saves"), "--limit", "150MB", *configured(folder))
    assert (exited["cause"], result) == ("interrupted_saved", ExitCode.SAVED), watch.said()
    assert "state.ckpt" in exited["evidence"][0]
    assert signals(watch) == ["SIGINT"]


def test_interrupted_it_leaves_with_status_0_and_without_a_checkpoint(folder: Folder) -> None:
    exited, watch, result = watch_end(folder, leaking("leaves"), "--limit", "150MB", *configured(folder))
    assert (exited["cause"], result) == ("interrupted_unsaved", ExitCode.UNSAVED), watch.said()
    assert "no checkpoint was seen after SIGINT" in exited["evidence"]
    assert exited["exit_code"] == 0


def test_it_shrugs_at_the_interrupt_and_sigterm_follows_past_the_deadline(folder: Folder) -> None:
    exited, watch, result = watch_end(folder, leaking("shrugs"), "--limit", "150MB", *configured(folder))
    assert (exited["cause"], result) == ("interrupted_unsaved", ExitCode.UNSAVED), watch.said()
    first, second = watch.named("signalled")
    assert (first["signal"], second["signal"]) == ("SIGINT", "SIGTERM")
    assert second["t"] - first["t"] > 1.0
    assert exited["signal"] == "SIGTERM"


def test_sigkill_only_where_it_is_allowed(folder: Folder) -> None:
    exited, watch, _ = watch_end(folder, leaking("stubborn"), "--limit", "150MB", *configured(folder, ", kill: true"))
    assert exited["cause"] == "interrupted_unsaved", watch.said()
    assert signals(watch) == ["SIGINT", "SIGTERM", "SIGKILL"]
    assert exited["signal"] == "SIGKILL"


def test_without_leave_a_stubborn_trainer_runs_on_and_is_complete_at_its_last_generation(folder: Folder) -> None:
    with trainer(folder, program=leaking("stubborn", 24)) as run:
        with memwatch(
            folder, "--pid", str(run.pid), *QUIET, "--limit", "150MB", *configured(folder, ", cooldown_seconds: 600")
        ) as watch:
            until(lambda: watch.named("attached"))
            (folder.path / "go").touch()
            assert watch.wait() == ExitCode.ENDED, watch.said()
        assert run.wait() == 0
    assert signals(watch) == ["SIGINT", "SIGTERM"]
    exited = watch.named("exited")[0]
    assert exited["cause"] == "completed"
    assert re.match(r"after the signal in generation \d+ it went on to its last generation, 24$", exited["evidence"][0])


# --- by the hook ----------------------------------------------------------------------------------------------------


def hooked(folder: Folder, script: str, actions: str) -> tuple[str, ...]:
    """A configuration with this hook, of sh."""
    arguments = configured(folder)
    with open(arguments[1], "a") as file:
        file.write(f"actions: {{hook: [sh, -c, {script!r}, sh, '{{pid}}', '{{signal}}'], {actions}}}\n")
    return (*arguments, "--limit", "150MB")


def by_hook(watch: Memwatch) -> list[tuple[str, bool]]:
    return [(one["signal"], one["instead"]) for one in watch.named("signalled")]


def test_the_hook_stops_it_and_memwatch_sends_nothing(folder: Folder) -> None:
    arguments = hooked(folder, "kill -INT $1", "hook_replaces_signal: true")
    exited, watch, result = watch_end(folder, leaking("saves"), *arguments)
    assert (exited["cause"], result) == ("interrupted_saved", ExitCode.SAVED), watch.said()
    assert by_hook(watch) == [("SIGINT", True)]
    assert exited["evidence"][0].startswith("checkpoint complete after the hook sh -c 'kill -INT $1' sh ")
    assert [one["status"] for one in watch.named("hook")] == [0]


@pytest.mark.parametrize(("script", "error"), [("echo no such job; exit 1", "status 1"), ("sleep 60", "was killed")])
def test_a_hook_that_fails_is_followed_by_the_signal(folder: Folder, script: str, error: str) -> None:
    arguments = hooked(folder, script, "hook_replaces_signal: true, hook_seconds: 0.5")
    exited, watch, result = watch_end(folder, leaking("saves"), *arguments)
    assert (exited["cause"], result) == ("interrupted_saved", ExitCode.SAVED), watch.said()
    assert by_hook(watch) == [("SIGINT", True), ("SIGINT", False)]
    [failed] = watch.named("hook_failed")
    assert error in failed["error"]


def test_a_hook_that_outlasts_the_trainer_has_its_time(folder: Folder) -> None:
    arguments = hooked(folder, "sleep 3; echo $2 > told", "hook_replaces_signal: false")
    exited, watch, result = watch_end(folder, leaking("saves"), *arguments)
    assert (exited["cause"], result) == ("interrupted_saved", ExitCode.SAVED), watch.said()
    assert by_hook(watch) == [("SIGINT", False)]
    [ran] = watch.named("hook")
    assert ran["t"] > exited["t"] and (folder.path / "told").read_text() == "SIGINT\n"


def test_a_dry_run_starts_no_hook(folder: Folder) -> None:
    arguments = hooked(folder, "echo $2 > told", "hook_replaces_signal: true")
    exited, watch, _ = watch_end(folder, leaking("saves", 24), *arguments, "--dry-run")
    assert exited["cause"] == "completed", watch.said()
    assert all(one["dry_run"] and "the hook would have been started" in one["text"] for one in watch.named("signalled"))
    assert watch.named("signalled") and not watch.named("hook") and not (folder.path / "told").exists()


def test_a_hook_that_wants_what_nobody_knows_is_refused_before_a_trainer_is_started(folder: Folder) -> None:
    path = folder.path / "memwatch.yaml"
    path.write_text("actions: {hook: [sh, -c, 'true', '{NO_SUCH_JOB}']}\n")
    with memwatch(folder, "run", "--config", str(path), "--", "touch", str(folder.path / "started")) as watch:
        assert watch.wait() == ExitCode.USAGE
    assert "the hook wants NO_SUCH_JOB" in watch.said() and "take it out of actions.hook" in watch.said()
    assert not (folder.path / "started").exists()
