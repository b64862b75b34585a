"""Every command on real processes: run, doctor, demo, and the options of a watch."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from memwatch.errors import ExitCode
from support.mainjob import Folder, Memwatch, memwatch, trainer, until
from support.processes import READY, WAIT, python, running

pytestmark = pytest.mark.integration

QUIET = ("--listen", "none", "--interval", "0.1")
EPOCHS = "import time\nfor i in range(1, 4): print(f'Epoch {i}/3', flush=True); time.sleep(0.4)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def run(folder: Folder, *command: str, options: tuple[str, ...] = (), name: str = "memwatch") -> Memwatch:
    """`memwatch run`, begun."""
    return Memwatch(folder, "run", *QUIET, *options, "--", *command, name=name)


def code(text: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", text)


# --- run ------------------------------------------------------------------------------------------------------------


def test_run_passes_output_on_and_keeps_the_exit_code(folder: Folder) -> None:
    watch = run(folder, *code(EPOCHS + "import sys; print('oh', file=sys.stderr); sys.exit(7)"))
    assert watch.wait() == 7, watch.said()
    assert watch.out.read_text() == "Epoch 1/3\nEpoch 2/3\nEpoch 3/3\noh\n", "the trainer's output, nothing else"
    assert "ended: failed (exit status 7)" in watch.err.read_text()


def test_run_as_json_keeps_events_and_output_apart(folder: Folder) -> None:
    watch = run(folder, *code(EPOCHS), options=("--json",))
    assert watch.wait() == 0, watch.said()
    assert watch.err.read_text() == "Epoch 1/3\nEpoch 2/3\nEpoch 3/3\n"
    assert [(one["gen"], one["total"], one["unit"]) for one in watch.named("marker")] == [
        (1, 3, "epoch"),
        (2, 3, "epoch"),
        (3, 3, "epoch"),
    ]
    assert watch.events()[0]["event"] == "attached"
    assert watch.events()[-1]["event"] == "exited"
    assert watch.named("exited")[0]["cause"] == "completed"
    assert watch.named("exited")[0]["evidence"]
    fields = "t verdict growth_per_gen eta_s eta_lo_s eta_hi_s oom_gen limit limit_origin"
    assert all(set(fields.split()) <= one.keys() for one in watch.named("forecast"))


def test_run_passes_stdin_on(folder: Folder) -> None:
    command = [sys.executable, "-m", "memwatch", "run", *QUIET, "--", "cat"]
    piped = subprocess.run(
        command, input="from here\n", capture_output=True, text=True, env=folder.environ(), timeout=30, check=False
    )
    assert (piped.returncode, piped.stdout) == (0, "from here\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_run_passes_signals_on(folder: Folder, number: signal.Signals) -> None:
    handles = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(5))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    watch = run(folder, *code(handles))
    until(lambda: "ready" in watch.out.read_text())
    watch.process.send_signal(number)
    assert watch.wait() == 5, watch.said()


def test_run_reports_a_death_by_signal_as_a_shell_does(folder: Folder) -> None:
    watch = run(folder, *code("import os, time; time.sleep(0.5); os.kill(os.getpid(), 9)"), options=("--json",))
    assert watch.wait() == 137
    assert watch.named("exited")[0]["cause"] == "signalled"


@pytest.mark.parametrize(("command", "status"), [("true", 0), ("false", 1)])
def test_run_of_a_child_that_ends_at_once(folder: Folder, command: str, status: int) -> None:
    watch = run(folder, command, options=("--json",))
    assert watch.wait() == status
    assert watch.events()[-1]["exit_code"] == status, "its end is an event, however early"


def test_run_of_what_cannot_start(folder: Folder) -> None:
    watch = run(folder, "./nowhere")
    assert watch.wait() == ExitCode.CANNOT_ATTACH
    assert watch.err.read_text().startswith("memwatch: cannot start ./nowhere: No such file")


def test_killed_at_any_time_memwatch_leaves_the_trainer_alive_and_unharmed(folder: Folder) -> None:
    done = folder.path / "done"
    watch = run(folder, *code(EPOCHS + f"print('last words', flush=True); open({str(done)!r}, 'w').close()"))
    until(lambda: "Epoch 1" in watch.out.read_text())
    watch.kill()
    until(done.exists)
    [log] = (folder.path / "state" / "memwatch" / "runs").glob("*.log")
    assert log.read_text() == "Epoch 1/3\nEpoch 2/3\nEpoch 3/3\nlast words\n"


# --- watch ----------------------------------------------------------------------------------------------------------


def test_stopped_it_leaves_the_trainer_alone(folder: Folder) -> None:
    with running(python(READY + "input()")) as process:
        with memwatch(folder, "--pid", str(process.pid), *QUIET, "--json") as watch:
            until(lambda: watch.named("attached"))
            watch.process.send_signal(signal.SIGTERM)
            assert watch.wait() == ExitCode.STOPPED
        process.communicate("\n")
        assert process.returncode == 0


def test_the_default_port_taken_is_a_note_and_no_more(folder: Folder) -> None:
    with socket.socket() as holder, running(python(WAIT)) as process:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # another holds it: as well
            holder.bind(("127.0.0.1", 9877))
            holder.listen()
        with memwatch(folder, "--pid", str(process.pid), "--json") as watch:
            until(lambda: watch.named("forecast"))
            assert any("nothing is served" in one["text"] and "--listen" in one["text"] for one in watch.named("note"))


def test_a_pidfile_and_a_match_name_the_trainer(folder: Folder) -> None:
    word = f"trainer-{os.getpid()}"
    with running(python(WAIT, word)) as process:
        (folder.path / "pid").write_text(f"{process.pid}\n")
        for name, named in (("one", ("--pidfile", "pid")), ("two", ("--match", word))):
            with memwatch(folder, *named, *QUIET, "--json", name=name) as watch:
                until(lambda watch=watch: watch.named("attached"))
            assert watch.named("attached")[0]["pid"] == process.pid


def test_the_exit_code_outlives_a_reader_that_left(folder: Folder) -> None:
    with running([*code("print('up', flush=True); input(); raise SystemExit(3)")]) as process:
        watch = f"{sys.executable} -m memwatch --pid {process.pid} {' '.join(QUIET)} --history none"
        script = f"set -o pipefail; {watch} | head -1"
        piped = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, text=True, env=folder.environ())
        assert piped.stdout is not None
        assert "attached" in piped.stdout.readline()
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert piped.wait(30) == ExitCode.FAILED  # not reaped yet, so that its status can be read
        piped.stdout.close()


# --- doctor ---------------------------------------------------------------------------------------------------------


def examined(folder: Folder, *arguments: str, name: str = "memwatch") -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit code and the checks by their part."""
    watch = Memwatch(folder, "doctor", "--json", *arguments, name=name)
    status = watch.wait()
    return status, {one["part"]: one for one in json.loads(watch.out.read_text() or "[]")}


def test_doctor_of_the_machine(folder: Folder) -> None:
    status, checks = examined(folder, "--listen", "127.0.0.1:0")
    assert status == 0
    assert {"limit", "gpu", "kernel log", "history", "listen"} <= checks.keys()
    assert "binds" in checks["limit"]["text"]
    assert not folder.history.exists(), "looked at, not made"
    if not Path("/dev/nvidiactl").exists():
        assert (checks["gpu"]["level"], checks["gpu"]["text"]) == ("note", "no NVIDIA driver here")


def test_doctor_says_why_a_history_cannot_be_looked_at(folder: Folder) -> None:
    status, checks = examined(folder, "--listen", "none", "--history", f"/{'x' * 300}")  # as a folder closed to it
    assert status == 0 and checks["history"]["level"] == "note"
    assert "cannot be used: File name too long" in checks["history"]["text"]


def test_doctor_of_a_trainer(folder: Folder) -> None:
    with trainer(folder, "--seconds", "0.3") as process:
        until(lambda: "Generation 3" in folder.log.read_text())
        status, checks = examined(folder, "--pid", str(process.pid), "--listen", "none", "--limit", "1GB")
    assert status == 0, checks
    assert checks["signal"]["text"].startswith("it catches SIGINT; handles SIGINT in ")
    assert checks["limit"]["text"].startswith("--limit 1.0 GB binds, ")
    assert f"{folder.log}: " in checks["log"]["text"]
    assert "of 25 (preset: evolutionary)" in checks["log"]["text"]
    assert checks["memory"]["text"].endswith("in 1 process")
    assert checks["listen"]["level"] == "note"
    minor = "{}.{}".format(*sys.version_info[:2])
    assert checks["heap"]["text"] == f"CPython {minor}, readable: findings name the objects that grow"


def test_doctor_says_at_once_what_will_not_work(folder: Folder) -> None:
    ignores = "import signal\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\n"
    with running(python(ignores + WAIT)) as process:
        status, checks = examined(folder, "--pid", str(process.pid), "--log", "nowhere.log", "--limit", "1MB")
    assert status == ExitCode.CANNOT_ATTACH
    assert checks["signal"]["level"] == "FAIL"
    assert "cannot interrupt it" in checks["signal"]["text"]
    assert "does not exist" in checks["log"]["text"]
    assert "is exceeded by" in checks["limit"]["text"]
    with subprocess.Popen(["sleep", "60"]) as process:
        _, checks = examined(folder, "--pid", str(process.pid), name="no_python")
        process.kill()
    assert checks["heap"]["level"] == "note" and "not which objects do" in checks["heap"]["text"]
    assert Memwatch(folder, "doctor", "--pid", "1").wait() == ExitCode.CANNOT_ATTACH


# --- demo -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_leaves_nothing_behind(folder: Folder, number: signal.Signals) -> None:
    pytest.importorskip("numpy", reason="the example trainer needs numpy")
    (folder.path / "tmp").mkdir()
    environ = {**folder.environ(), "TMPDIR": str(folder.path / "tmp")}
    command = [sys.executable, "-m", "memwatch", "demo", "--json", *QUIET]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)
    assert demo.stdout is not None
    attached = json.loads(demo.stdout.readline())
    time.sleep(1.0)
    demo.send_signal(number)
    _, said = demo.communicate(timeout=30)
    assert demo.returncode == ExitCode.STOPPED, said
    assert not Path(f"/proc/{attached['pid']}").exists()
    assert not list((folder.path / "tmp").iterdir())
    assert not list(Path("/sys/fs/cgroup").glob(f"**/memwatch-demo-{demo.pid}"))


def test_the_demo_from_beginning_to_end(folder: Folder) -> None:
    pytest.importorskip("numpy", reason="the example trainer needs numpy")
    with memwatch(folder, "demo", "--json", "--listen", "none") as demo:
        assert demo.wait(110) == 0, demo.said()
    assert [one["cause"] for one in demo.named("exited")] == ["interrupted_saved", "completed"]
    assert len(demo.named("interrupt")) == 1
    assert demo.named("interrupt")[0]["headroom"] > 0
    assert demo.err.read_text().endswith("It ran to its last generation, 20 of 20.\n")
