"""The main job on real trainers: attach, forecast, interrupt, save, resume; and never in the way of a healthy run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memwatch.errors import ExitCode
from support.mainjob import MB, Folder, memwatch, trainer, until

pytestmark = pytest.mark.integration

LIMIT = 330 * MB
FAST = ("--seconds", "2.1")
QUIET = ("--listen", "none", "--interval", "0.1", "--checkpoint-time", "0.5")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def needs_cgroup() -> None:
    if os.geteuid() != 0 or not Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists():
        pytest.skip("needs root and a memory cgroup of version 1")


@pytest.mark.cgroup
def test_alone_the_kernel_kills_it_and_memwatch_says_so(folder: Folder) -> None:
    needs_cgroup()
    with trainer(folder, "--leak", "buffer", *FAST, "--checkpoint-every", "0", limit_bytes=LIMIT) as run:
        with memwatch(folder, "--pid", str(run.pid), "--log", str(folder.log), *QUIET, "--json", "--dry-run") as watch:
            assert watch.wait() == ExitCode.OOM_KILLED, watch.said()
        assert run.wait() == -signal.SIGKILL
    exited = watch.named("exited")[-1]
    assert exited["cause"] == "oom_cgroup"
    assert any("OOM killer killed" in line or "oom_kill" in line for line in exited["evidence"])
    assert [one["dry_run"] for one in watch.named("signalled")] == [True], "one dry run, no signal"
    assert not folder.saved()


@pytest.mark.cgroup
def test_watched_it_is_interrupted_saved_and_resumes_to_its_end(folder: Folder) -> None:
    needs_cgroup()
    leaking = ("--leak", "buffer", *FAST, "--checkpoint-every", "0")
    with trainer(folder, *leaking, limit_bytes=LIMIT) as run:
        with memwatch(folder, "--pid", str(run.pid), "--log", str(folder.log), *QUIET, "--json") as watch:
            assert watch.wait() == ExitCode.SAVED, watch.said()
        assert run.wait() == 130
    assert len(watch.named("interrupt")) == 1
    assert watch.named("saved")
    interrupt = watch.named("interrupt")[0]
    assert interrupt["limit"] == LIMIT // 4096 * 4096
    assert interrupt["limit_origin"].startswith("cgroup ")
    assert interrupt["verdict"] in ("leak", "growing")
    [checkpoint] = folder.saved()
    done = int(checkpoint.stem.split("-")[1])
    assert 4 <= done <= 9
    with trainer(folder, "--resume", "--seconds", "2.1", "--generations", "12", limit_bytes=LIMIT) as run:
        with memwatch(
            folder, "--pid", str(run.pid), "--log", str(folder.log), *QUIET, "--json", name="second"
        ) as watch:
            assert watch.wait() == ExitCode.ENDED, watch.said()
        assert run.wait() == 0
    attached = watch.named("attached")[0]
    assert attached["attempt"] == 1, "the resumed trainer continues the run"
    assert not watch.named("interrupt")


@pytest.mark.cgroup
def test_a_healthy_run_is_never_touched(folder: Folder) -> None:
    needs_cgroup()
    with trainer(folder, "--leak", "none", "--seconds", "2.1", "--generations", "17", limit_bytes=450 * MB) as run:
        with memwatch(folder, "--pid", str(run.pid), "--log", str(folder.log), *QUIET, "--json") as watch:
            assert watch.wait() == ExitCode.ENDED, watch.said()
        assert run.wait() == 0
    assert not watch.named("interrupt")
    assert watch.named("exited")[-1]["cause"] == "completed"
    told = [one["verdict"] for one in watch.named("forecast") if one["resource"] == "host"]  # others use /dev/shm
    assert told[-1] in ("plateau", "stable")
    ended = [one["gen"] for one in watch.named("generation") if one["resource"] == "host"]
    assert ended[-3:] == [14, 15, 16], "the last has no marker at its end"


@pytest.mark.parametrize(
    ("leak", "limit"),
    [
        ("environments", "160MB"),
        pytest.param("losses", "280MB", marks=pytest.mark.thorough),
        ("population", "260MB"),
        pytest.param("figures", "260MB", marks=pytest.mark.thorough),
        pytest.param("history", "280MB", marks=pytest.mark.thorough),
    ],
)
def test_each_leak_of_the_example_is_interrupted_below_a_limit_of_ones_own(
    folder: Folder, leak: str, limit: str
) -> None:
    options = ("--checkpoint-every", "0", "--generations", "60", "--capacity", "200")
    with trainer(folder, "--leak", leak, *FAST, *options) as run:
        with memwatch(folder, "--pid", str(run.pid), *QUIET, "--json", "--limit", limit) as watch:
            assert watch.wait() == ExitCode.SAVED, watch.said()
        assert run.wait() == 130
    interrupt = watch.named("interrupt")[0]
    assert interrupt["limit_origin"] == "--limit"
    assert interrupt["headroom"] > 0


def test_started_in_the_background_of_a_script_it_ignores_sigint_and_that_is_said(folder: Folder) -> None:
    handles_sigterm = (
        "import signal, sys, time\n"
        "def save(*_):\n"
        "    open('state.ckpt', 'wb').write(b'x' * 4096); print('Checkpoint saved: state.ckpt'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "kept = []\n"
        "for g in range(100):\n"
        "    print(f'Generation {g + 1} / 100', flush=True)\n"
        "    kept.append(bytearray(b'x' * 12_000_000))\n"
        "    time.sleep(0.5)\n"
    )
    script = folder.path / "start.sh"
    script.write_text(f'{sys.executable} -u -c "$1" > {folder.log} 2>&1 &\necho $! > trainer.pid\nwait\n')
    with subprocess.Popen(["/bin/sh", script, handles_sigterm], cwd=folder.path, env=folder.environ()) as shell:
        pidfile = folder.path / "trainer.pid"
        until(lambda: pidfile.exists() and pidfile.read_text().strip())
        until(lambda: folder.log.exists() and b"Generation 1" in folder.log.read_bytes())
        with memwatch(folder, "--pidfile", str(pidfile), *QUIET, "--json", "--limit", "150MB") as watch:
            code = watch.wait()
        shell.wait(10)
    assert code == ExitCode.SAVED, watch.said()
    assert any("ignores SIGINT" in note["text"] and "SIGTERM" in note["text"] for note in watch.named("note"))
    assert [one["signal"] for one in watch.named("signalled")] == ["SIGTERM"]


def test_run_passes_output_exit_code_and_signals_through(folder: Folder) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('out'); print('err', file=sys.stderr); sys.stdout.flush()\n"
        "time.sleep(60)\n"
    )
    with memwatch(folder, "run", *QUIET, "--", sys.executable, "-c", code) as watch:
        until(lambda: watch.out.read_text().splitlines() == ["out", "err"])
        watch.process.send_signal(signal.SIGTERM)
        assert watch.wait(10) == 7, watch.said()
    with memwatch(folder, "run", *QUIET, "--", sys.executable, "-c", "import os; os.abort()", name="abort") as watch:
        assert watch.wait(10) == 128 + signal.SIGABRT
    with memwatch(folder, "run", *QUIET, "--", "/does/not/exist", name="none") as watch:
        assert watch.wait(10) == ExitCode.CANNOT_ATTACH
        assert "cannot start /does/not/exist" in watch.err.read_text()


@pytest.mark.cgroup
def test_run_interrupts_its_own_child(folder: Folder) -> None:
    command = [sys.executable, str(Path(__file__).parents[2] / "examples/evolve.py"), "--leak", "buffer", *FAST]
    with memwatch(folder, "run", *QUIET, "--limit", "300MB", "--", *command) as watch:
        assert watch.wait() == 130, watch.said()
    assert "Checkpoint saved" in watch.out.read_text()
    assert "interrupted by memwatch, checkpoint saved" in watch.err.read_text()


def test_killed_and_started_again_memwatch_goes_on_with_its_ledger(folder: Folder) -> None:
    with trainer(folder, "--leak", "buffer", *FAST, "--checkpoint-every", "0") as run:
        arguments = ("--pid", str(run.pid), *QUIET, "--json", "--limit", "400MB")
        with memwatch(folder, *arguments) as watch:
            until(lambda: len(watch.named("generation")) >= 4)
            before = [one["gen"] for one in watch.named("generation")]
            watch.kill()
        with memwatch(folder, *arguments, name="again") as again:
            until(lambda: (again.named("generation") and again.named("forecast")) or again.process.poll() is not None)
            assert again.named("generation") and again.named("forecast"), again.said()
            assert again.named("generation")[0]["gen"] == before[-1] + 1
            assert again.named("forecast")[0]["growth_per_gen"] == pytest.approx(34 * MB, rel=0.3)
            assert again.wait() == ExitCode.SAVED, again.said()
        assert run.wait() == 130


def test_a_history_that_cannot_be_written_stops_nothing(folder: Folder) -> None:
    with trainer(folder, "--leak", "buffer", *FAST, "--checkpoint-every", "0") as run:
        nowhere = "/proc/memwatch/history.db"
        with memwatch(
            folder, "--pid", str(run.pid), *QUIET, "--json", "--limit", "300MB", "--history", nowhere
        ) as watch:
            assert watch.wait() == ExitCode.SAVED, watch.said()
    assert any("no history is kept" in note["text"] for note in watch.named("note"))


def test_told_to_stop_it_leaves_the_trainer_alone(folder: Folder) -> None:
    with trainer(folder, "--seconds", "0.3") as run:
        with memwatch(folder, "--pid", str(run.pid), *QUIET) as watch:
            until(lambda: "watching" in watch.out.read_text())
            watch.process.send_signal(signal.SIGTERM)
            assert watch.wait(3) == ExitCode.STOPPED, watch.said()
        assert run.poll() is None
