"""What the machine does to a watch: its clock set back, nothing left to take, processes hidden, rude clients, load."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from memwatch.errors import ExitCode
from memwatch.sources.procfs import read_children
from support.commoner import as_user, commons, needs_two_users
from support.driven import WITH_DRIVER, Driven
from support.driven import missing as no_driver
from support.mainjob import Folder, Memwatch, free_port, memwatch, trainer, until
from support.trainers import memory_cgroup

pytestmark = pytest.mark.integration

LEAK = Path(__file__).parents[1] / "programs" / "leak.py"
QUIET = ("--listen", "none", "--interval", "0.1", "--json")
FAST = "policy: {confirmation_seconds: 0.2, checkpoint_seconds: 0.5, save_timeout_seconds: 4}\n"
LIMIT = ("--limit", "150MB")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "memwatch.yaml").write_text(FAST)
    return Folder(tmp_path)


def leaking(megabytes: float = 12, seconds: float = 0.3) -> tuple[str, ...]:
    return (sys.executable, str(LEAK), "saves", "60", str(megabytes), str(seconds))


def configured(folder: Folder) -> tuple[str, str]:
    return ("--config", str(folder.path / "memwatch.yaml"))


@contextmanager
def watched(folder: Folder, run_this: tuple[str, ...], *arguments: str) -> Iterator[tuple[int, Memwatch]]:
    """A trainer's PID, and memwatch at it that has looked."""
    with ExitStack() as held:
        run = held.enter_context(trainer(folder, program=run_this))
        watch = held.enter_context(memwatch(folder, "--pid", str(run.pid), *arguments, *configured(folder)))
        until(lambda: watch.named("forecast") or watch.process.poll() is not None)
        yield run.pid, watch


def look_times(folder: Folder) -> list[float]:
    """When memory was looked at, as the history has it."""
    with closing(sqlite3.connect(folder.history)) as connection:
        return [t for (t,) in connection.execute("SELECT DISTINCT t FROM samples ORDER BY seq")]


def longest_pause(folder: Folder) -> float:
    return max(later - t for t, later in pairwise(look_times(folder)))


def sources_told(watch: Memwatch) -> list[str]:
    return [one["source"] for one in watch.named("source_failed")]


# --- time -----------------------------------------------------------------------------------------------------------

LATER = """
UPDATE events SET t = t + 3600, json = CAST(json_set(CAST(json AS TEXT), '$.t', t + 3600) AS BLOB);
UPDATE samples SET t = t + 3600;
UPDATE notices SET t = t + 3600;
"""


def test_a_clock_that_was_set_back_between_two_watches_delays_no_interrupt(folder: Folder) -> None:
    """What the first watch kept is an hour ahead of what the second one's clock says."""
    with trainer(folder, program=leaking(megabytes=5, seconds=0.6)) as run:
        arguments = ("--pid", str(run.pid), *QUIET, *LIMIT, *configured(folder))
        with memwatch(folder, *arguments, name="first") as first:
            until(lambda: len(first.named("generation")) > 2)
            first.kill()
        with closing(sqlite3.connect(folder.history)) as connection:
            connection.executescript(LATER)
        with memwatch(folder, *arguments, name="second") as second:
            assert second.wait() == ExitCode.SAVED, second.said()
    [interrupt] = second.named("interrupt")
    assert interrupt["headroom"] > 0
    times = look_times(folder)
    assert times == sorted(times) and second.named("attached")[0]["text"].startswith("watching again")
    folder.history.unlink()  # its times were changed: it cannot be judged again


STOPPED_SECONDS = 15.0
# Uptime as in a container that was moved from another machine: it counts from elsewhere.
ELSEWHERE = ("unshare", "--time", "--boottime", "500000", "--monotonic", "300000")


@pytest.mark.parametrize("before", [(), pytest.param(ELSEWHERE, marks=needs_root)], ids=["here", "time namespace"])
def test_stopped_together_for_seconds_nothing_follows_from_the_gap(folder: Folder, before: tuple[str, ...]) -> None:
    """As a machine that is suspended: neither the trainer nor memwatch goes on, and time does."""
    if before and subprocess.run([*before, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no time namespaces")
    megabytes, seconds = 3.0, 0.3
    with trainer(folder, program=leaking(megabytes, seconds)) as run:
        arguments = ("--pid", str(run.pid), "--log", str(folder.log), *QUIET, *LIMIT, *configured(folder))
        with memwatch(folder, *arguments, before=before) as watch:
            until(lambda: len(watch.named("generation")) > 12)
            for pid in (watch.process.pid, run.pid):
                os.kill(pid, signal.SIGSTOP)
            known, stopped_t = len(watch.events()), time.time()
            time.sleep(STOPPED_SECONDS)
            for pid in (run.pid, watch.process.pid):
                os.kill(pid, signal.SIGCONT)
            until(lambda: watch.events()[-1]["t"] > stopped_t + STOPPED_SECONDS + 1.0)
            first = [one for one in watch.events()[known:] if one["t"] < stopped_t + STOPPED_SECONDS + 1.0]
            assert watch.wait() == ExitCode.SAVED, watch.said()
    assert len(first) < 25, (
        first
    )  # of a second with three generations, each with its marker and what is told at its end
    assert not sources_told(watch) and not [one for one in first if one["event"] in ("warn", "interrupt", "cleared")]
    [interrupt] = watch.named("interrupt")
    assert interrupt["headroom"] > 0 and interrupt["used"] > 0.7 * interrupt["limit"]
    lengths = [one["seconds"] for one in watch.named("generation")]
    assert (
        sum(length > STOPPED_SECONDS for length in lengths) <= 1 and sum(lengths) < 60 * seconds + STOPPED_SECONDS + 5
    )
    for one in watch.named("forecast"):
        if one["t"] > stopped_t and one["eta_s"] is not None:
            assert one["eta_s"] == pytest.approx(one["headroom"] * seconds / megabytes / 1e6, rel=0.5), one
    assert look_times(folder) == sorted(look_times(folder))


# --- no descriptor, no process, no thread ---------------------------------------------------------------------------


def without_a_free_descriptor(pid: int) -> tuple[int, int]:
    """From now on; the limits before. Again, it takes what was given back, or was open for a moment only."""
    taken = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    most = next(number for number in range(len(taken) + 1) if number not in taken)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(most, before[0]), before[1]))
    return before


@needs_root
def test_without_a_free_descriptor_it_goes_on_and_signals(folder: Folder) -> None:
    port = free_port()
    leak, listens = leaking(megabytes=6, seconds=0.6), ("--listen", f"127.0.0.1:{port}")
    with watched(folder, leak, *QUIET[2:], *LIMIT, *listens) as (_, watch):
        without_a_free_descriptor(watch.process.pid)
        for _ in range(100):  # so many new PIDs, and the whole tree is walked
            os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
        with suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=0.5)
        assert watch.wait() == ExitCode.SAVED, watch.said()
    [interrupt] = watch.named("interrupt")
    assert interrupt["headroom"] > 0
    told = sources_told(watch)
    assert len(told) == len(set(told)), watch.said()


@needs_root
def test_details_that_cannot_be_read_without_a_descriptor_are_told_once_and_cost_no_look(folder: Folder) -> None:
    sleeps = (sys.executable, "-uc", "import time\nprint('Generation 1 / 9')\ntime.sleep(120)")
    with watched(folder, sleeps, *QUIET, *LIMIT) as (_, watch):
        before = without_a_free_descriptor(watch.process.pid)
        until(lambda: without_a_free_descriptor(watch.process.pid) and "procfs" in sources_told(watch))
        time.sleep(3.0)  # it is tried again each second
        assert not watch.named("source_recovered"), watch.said()
        resource.prlimit(watch.process.pid, resource.RLIMIT_NOFILE, before)
        until(lambda: "procfs" in [one["source"] for one in watch.named("source_recovered")])
        watch.kill()
    failed = watch.named("source_failed")
    assert len(failed) == len({one["source"] for one in failed}), watch.said()
    assert ["Too many open files" in one["reason"] for one in failed if one["source"] == "procfs"] == [True]
    assert longest_pause(folder) < PAUSE_SECONDS_AT_LOAD


def starve_helpers(pid: int) -> None:
    """Kill what memwatch has started, and leave it no descriptor for others."""
    for helper in read_children(pid):
        os.kill(helper, signal.SIGKILL)
    without_a_free_descriptor(pid)


def unexamined(watch: Memwatch) -> list[str]:
    return [one["failure"] for one in watch.named("not_examined") if "Too many open files" in one["failure"]]


@needs_root
def test_helpers_and_examinations_that_get_no_descriptor_are_told_once(tmp_path: Path) -> None:
    if (reason := no_driver()) is not None:
        pytest.skip(reason)
    folder = Driven(tmp_path)
    (tmp_path / "memwatch.yaml").write_text(FAST)
    folder.world.gpu(0)
    with ExitStack() as held:
        run = held.enter_context(trainer(folder, program=leaking(megabytes=4, seconds=0.6)))
        folder.world.process("0", run.pid, 20 << 30)
        arguments = ("--pid", str(run.pid), "--log", str(folder.log), *QUIET, "--limit", "900MB", *configured(folder))
        watch = held.enter_context(memwatch(folder, *arguments, before=WITH_DRIVER))
        until(lambda: [one for one in watch.named("forecast") if one["resource"] == "gpu0"])
        before = resource.prlimit(watch.process.pid, resource.RLIMIT_NOFILE)
        until(lambda: (sources_told(watch) and unexamined(watch)) or starve_helpers(watch.process.pid))
        time.sleep(3.0)  # another helper fails twice
        resource.prlimit(watch.process.pid, resource.RLIMIT_NOFILE, before)
        until(lambda: watch.named("source_recovered"))
        assert watch.process.poll() is None
        watch.kill()
    assert [one["source"] for one in watch.named("source_failed")] == ["nvml"], watch.said()
    assert len(unexamined(watch)) == len(set(unexamined(watch))), watch.said()
    assert longest_pause(folder) < PAUSE_SECONDS_AT_LOAD


@pytest.mark.cgroup
@needs_root
@pytest.mark.parametrize(
    "when", [pytest.param("at the start", marks=pytest.mark.thorough), "at the start for a while", "while it watches"]
)
def test_where_no_process_and_no_thread_can_be_started_it_goes_on_and_signals(folder: Folder, when: str) -> None:
    group = Path(f"/sys/fs/cgroup/pids/memwatch-{os.getpid()}")
    if not group.parent.is_dir():
        pytest.skip("needs a pids cgroup of version 1")
    group.mkdir()
    most = group / "pids.max"
    enter = ("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh")
    try:
        most.write_text("max" if when == "while it watches" else "1")
        with trainer(folder, program=leaking(seconds=0.6)) as run:
            arguments = ("--pid", str(run.pid), *QUIET[2:], *LIMIT, "--listen", f"127.0.0.1:{free_port()}")
            with memwatch(folder, *arguments, *configured(folder), before=enter) as watch:
                until(lambda: watch.named("forecast") or watch.process.poll() is not None)
                most.write_text("max" if when == "at the start for a while" else "1")
                if when == "at the start for a while":
                    until(lambda: {"web", "history"} <= {one["source"] for one in watch.named("source_recovered")})
                assert watch.wait() == ExitCode.SAVED, watch.said()
    finally:
        until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()
    told = sources_told(watch)
    assert len(told) == len(set(told)), watch.said()
    if when != "while it watches":
        assert {"web", "history"} <= set(told), watch.said()
    assert look_times(folder), "what waited was written"


ALONE = 54_320  # a user who has no other process


@needs_two_users
def test_a_trainer_that_memwatch_starts_runs_and_is_watched_though_no_thread_can_be_had() -> None:
    """Two processes are this user's limit: memwatch, and the trainer."""
    with commons(ALONE) as here:
        words = ("run", "--listen", "none", "--interval", "0.1", "--json", *LIMIT, "--", here.python, "-u")
        leak = (str(here.programs / "leak.py"), "saves", "60", "12", "0.3")
        command = as_user(ALONE, "prlimit", "--nproc=2", here.python, "-m", "memwatch", *words, *leak)
        done = subprocess.run(
            command, env=here.environ(), cwd=here.path, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 130, done.stdout + done.stderr  # its own, after the interrupt
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["cause"] for one in told if one["event"] == "exited"] == ["interrupted_saved"]
    assert next(one for one in told if one["event"] == "interrupt")["headroom"] > 0
    failed = [one["source"] for one in told if one["event"] == "source_failed"]
    assert "history" in failed and len(failed) == len(set(failed)), failed
    assert "no thread can be started: the trainer's output is shown at its end" in done.stderr
    assert "Generation 1 / 60" in done.stderr and "Checkpoint saved" in done.stderr  # with --json it goes there


# --- processes that are hidden --------------------------------------------------------------------------------------

A, B = 54_321, 54_322
HIDES = ("hidepid=1", "hidepid=2", "hidepid=ptraceable")  # the latter two: others' processes are not even listed
# What a user without powers is in a PID namespace of its own: $1 mounts /proc, $2 trains, $3 watches.
HIDDEN = """
set -e
mount --make-rprivate /
umount /proc
mount -t proc -o $1 proc /proc
as() { u=$1; shift; exec setpriv --reuid=$u --regid=$u --clear-groups --bounding-set=-all --inh-caps=-all "$@"; }
(as $2 env $4 -u $5 saves 60 12 0.3 > main.log 2>&1) & pid=$!
until grep -q Generation main.log; do sleep 0.05; done
watcher=$3 python=$4; shift 5
as $watcher env $python -m memwatch --pid $pid --log main.log "$@"
"""


@needs_two_users
@pytest.mark.parametrize("hides", HIDES)
def test_ones_own_trainer_is_watched_and_interrupted_though_others_are_hidden(hides: str) -> None:
    done = _behind(hides, trains=A)
    assert done.returncode == ExitCode.SAVED, done.stdout + done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    named = {one["event"]: one for one in told}
    assert "source_failed" not in named and "unarmed" not in named, done.stdout
    assert named["interrupt"]["headroom"] > 0 and named["generation"]["gen"] > 2
    assert named["exited"]["cause"] == "interrupted_saved" and "examined" in named


@needs_two_users
@pytest.mark.parametrize("hides", HIDES)
def test_another_users_hidden_trainer_is_refused_with_what_to_do(hides: str) -> None:
    done = _behind(hides, trains=B)
    assert done.returncode == ExitCode.CANNOT_ATTACH, done.stdout + done.stderr
    assert "Run memwatch as the trainer's user" in done.stderr, done.stderr


@needs_two_users
def test_a_proc_with_nothing_but_processes_is_refused_with_what_to_do() -> None:
    done = _behind("subset=pid", trains=A)
    assert done.returncode == ExitCode.CANNOT_ATTACH, done.stdout + done.stderr
    assert "without subset=pid" in done.stderr, done.stderr


def _behind(options: str, trains: int) -> subprocess.CompletedProcess[str]:
    """A's memwatch at a trainer, where /proc is mounted so."""
    with commons(A) as here:
        here.path.chmod(0o777)
        (here.path / "memwatch.yaml").write_text(FAST)
        script = here.path / "hidden.sh"
        script.write_text(HIDDEN)
        command = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child", "sh", script, options]
        users = (str(trains), str(A), here.python, str(here.programs / "leak.py"))
        return subprocess.run(
            [*command, *users, *QUIET, "--limit", "500MB", "--config", "memwatch.yaml"],
            env=here.environ(), cwd=here.path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


# --- rude clients, and no CPU ---------------------------------------------------------------------------------------

SCRAPES_A_SECOND, RUDE_SECONDS, HANGING = 100, 8.0, 50
PAUSE_SECONDS, PAUSE_SECONDS_AT_LOAD = 0.35, 1.0  # at most, between looks that are 0.1 s apart


@pytest.mark.paced
def test_a_hundred_scrapes_a_second_beside_fifty_clients_that_hang_delay_no_look(folder: Folder) -> None:
    port, answers = free_port(), list[float]()
    over = threading.Event()

    def scrape(first: float) -> None:
        due = first
        while not over.is_set():
            time.sleep(max(0.0, due - time.monotonic()))
            due += 8 / SCRAPES_A_SECOND
            began = time.monotonic()
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                assert b"memwatch_" in answer.read()
                answers.append(time.monotonic() - began)

    sleeps = (sys.executable, "-uc", "import time\nprint('Generation 1 / 9')\ntime.sleep(60)")
    with watched(folder, sleeps, *QUIET[2:], *LIMIT, "--listen", f"127.0.0.1:{port}") as (_, watch):
        with ExitStack() as held:
            for _ in range(HANGING):
                client = held.enter_context(closing(socket.create_connection(("127.0.0.1", port))))
                with suppress(OSError):  # it is one too many
                    client.send(b"GET /metrics HTTP/1.1\r\n")
            start = time.monotonic()
            threads = [threading.Thread(target=scrape, args=(start + n / SCRAPES_A_SECOND,)) for n in range(8)]
            for thread in threads:
                thread.start()
            time.sleep(RUDE_SECONDS)
            over.set()
            for thread in threads:
                thread.join()
        watch.process.send_signal(signal.SIGTERM)
        watch.wait(10)
    assert len(answers) > 0.8 * SCRAPES_A_SECOND * RUDE_SECONDS, f"{len(answers)} answers"
    assert longest_pause(folder) < PAUSE_SECONDS
    assert not sources_told(watch)
    print(f"{len(answers)} answers, longest pause {longest_pause(folder):.2f} s")


@pytest.mark.cgroup
@pytest.mark.paced
@needs_root
@pytest.mark.parametrize(
    "powers",
    [
        pytest.param((), id="root", marks=pytest.mark.thorough),
        pytest.param(("setpriv", "--bounding-set=-all", "--inh-caps=-all"), id="user"),
    ],
)
def test_at_load_20_with_its_cgroup_almost_full_it_looks_and_signals_in_time(
    folder: Folder, powers: tuple[str, ...]
) -> None:
    with ExitStack() as held:
        group = held.enter_context(memory_cgroup("memwatch-full", 412_000_000))
        for _ in range(20):
            spins = held.enter_context(subprocess.Popen([sys.executable, "-Sc", "while True: pass"]))
            held.callback(spins.kill)
        run = held.enter_context(trainer(folder, program=(*leaking(megabytes=2, seconds=1), *["30"] * 12)))
        (group / "cgroup.procs").write_text(str(run.pid))
        arguments = ("--pid", str(run.pid), "--log", str(folder.log), *QUIET, *configured(folder))
        watch = held.enter_context(memwatch(folder, *arguments, before=powers))
        assert watch.wait() == ExitCode.SAVED, watch.said()
    [interrupt] = watch.named("interrupt")
    assert interrupt["headroom"] > 0 and interrupt["used"] > 0.95 * interrupt["limit"]
    assert longest_pause(folder) < PAUSE_SECONDS_AT_LOAD
    print(f"longest pause {longest_pause(folder):.2f} s, headroom {interrupt['headroom'] / 1e6:.0f} MB")
