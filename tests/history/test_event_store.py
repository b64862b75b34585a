from __future__ import annotations

import itertools
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from memwatch.core.events import Attached, Cause, Event, Exited, GenerationSeen, Notice, Sampled, Signalling
from memwatch.core.measurements import HOST, Limit, Sample, Target, Usage
from memwatch.errors import HistoryError
from memwatch.history import stored_runs
from memwatch.history.event_store import HistoryStore, OpenedRun
from memwatch.history.run_identity import start_ticks
from memwatch.history.schema_migrations import MIGRATIONS, migrate
from memwatch.history.writer_thread import WAIT_SECONDS
from support.slowdisk import slow_disk
from support.stopwatch import CpuStopwatch, Stopwatch

ROOT = Path(__file__).parents[2]
ENVIRON = {**os.environ, "PYTHONPATH": f"{ROOT / 'watchdog'}:{ROOT / 'tests'}"}
T0 = 1_700_000_000.123456789


def sampled(t: float, used: int = 10**9) -> Sampled:
    return Sampled(t, Sample((Usage(HOST, used, Limit(10**10, "cgroup /a", 10**10 - used)), Usage("gpu0", 5, None))))


def attached(pid: int = 4_000_000, boot: str = "boot", t: float = T0) -> Attached:
    return Attached(t, Target(boot, pid, 7), "python train.py")


def begun(path: Path, who: Attached | None = None, key: str = "k") -> tuple[HistoryStore, OpenedRun]:
    store = HistoryStore.open(path)
    who = who or attached()
    opening = store.open_run(key, who, who.t, "/w", "/w/a.log")
    store.append([who], [])
    return store, opening


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def run_python(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=ENVIRON, capture_output=True, text=True, check=True).stdout


def eventually(true: Callable[[], bool], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "memwatch" / "history.db"


# --- what is kept -------------------------------------------------------------------------------------------------


def test_a_run_comes_back_as_it_was_fed(path: Path) -> None:
    store, opening = begun(path)
    fed: list[Event] = [attached()]
    for i in range(5):
        events: list[Event] = [GenerationSeen(T0 + i / 3, i, 25), sampled(T0 + i / 3 + 1e-7, 10**9 + i)]
        store.append(events, [Notice(T0 + i, "generation", "g", {"index": i})])
        fed += events
    assert store.failure is None
    assert list(stored_runs.events_to_replay(store.path, opening.run_id)) == fed
    store.close()
    again = HistoryStore.open(path)
    assert list(stored_runs.events_to_replay(again.path, opening.run_id)) == fed
    assert list(stored_runs.events_to_replay(again.path, "another")) == []
    again.close()
    assert rows(path, "SELECT event, text, json FROM notices LIMIT 1") == [("generation", "g", b'{"index":0}')]
    assert rows(path, "SELECT cwd, log, command FROM runs") == [("/w", "/w/a.log", "python train.py")]


def test_it_is_on_disk_when_append_returns(path: Path) -> None:
    store, _ = begun(path)
    store.append([sampled(T0 + 1)], [])
    assert rows(path, "SELECT count(*) FROM samples") == [(2,)]
    store.close()


def test_samples_that_came_alone_wait_for_others_as_long_as_they_may(path: Path) -> None:
    store, opening = begun(path)

    def kept() -> int:
        return rows(path, "SELECT count(*) FROM samples")[0][0] // 2

    for tick in range(9):
        store.append([sampled(T0 + tick)], [], 9.0)
    assert kept() == 0
    store.append([sampled(T0 + 9)], [], 9.0)
    assert eventually(lambda: kept() == 10)
    store.append([sampled(T0 + 10)], [], 9.0)
    store.append([sampled(T0 + 11)], [], 0.5)
    assert eventually(lambda: kept() == 12), "they may no longer"
    store.append([sampled(T0 + 12)], [], 9.0)
    store.append([GenerationSeen(T0 + 12.1, 1, 25)], [], 9.0)
    assert kept() == 13, "not longer than for what is told"
    *_, last, told = stored_runs.events_to_replay(store.path, opening.run_id)
    assert (last.t, type(told)) == (T0 + 12, GenerationSeen), "in the order in which they came"
    store.append([sampled(T0 + 13)], [], 9.0)
    store.close()
    assert kept() == 14


def test_each_sample_is_kept_and_a_grid_has_one_a_second_and_each_that_came_with_something(path: Path) -> None:
    store, opening = begun(path)
    for i in range(100):  # 20 Hz
        told = [GenerationSeen(T0 + 2.55, 1)] if i == 51 else []
        store.append([*told, sampled(T0 + i / 20, i)], [])
    assert eventually(lambda: rows(path, "SELECT count(*) FROM samples") == [(2 * 100,)])
    used = [
        e.sample.usages[0].used_bytes
        for e in stored_runs.events_to_replay(store.path, opening.run_id)
        if isinstance(e, Sampled)
    ]
    assert used == [*range(100)]
    used = [i for (i,) in rows(path, "SELECT used FROM samples WHERE grid > 0 AND slot = 0 ORDER BY seq")]
    assert used.pop(3) == 51
    assert used[0] == 0
    assert {later - earlier for earlier, later in itertools.pairwise(used)} <= {19, 20}
    assert len(used) == 6
    store.close()


def test_looks_at_which_nothing_could_be_read_are_kept_too(path: Path) -> None:
    store, opening = begun(path)
    looks = [Sampled(T0 + 1, Sample(())), Sampled(T0 + 2, Sample((Usage("host", 1, None),), accounting="pages"))]
    store.append(looks, [])
    assert list(stored_runs.events_to_replay(store.path, opening.run_id))[1:] == looks
    store.close()


def test_ticks_of_a_second_are_all_kept_though_they_jitter(path: Path) -> None:
    store, opening = begun(path)
    for i in range(20):
        store.append([sampled(T0 + i + random.Random(i).uniform(-0.02, 0.02))], [])
    assert eventually(lambda: rows(path, "SELECT count(*) FROM samples") == [(40,)])
    assert sum(isinstance(e, Sampled) for e in stored_runs.events_to_replay(store.path, opening.run_id)) == 20
    store.close()


@pytest.mark.parametrize(("seconds", "grid"), [(4_000, 1), (20_000, 10), (100_000, 60), (400_000, 600)])
def test_a_replay_of_a_long_run_is_thinned_but_for_its_latest_part(path: Path, seconds: int, grid: int) -> None:
    store, opening = begun(path)
    number = rows(path, "SELECT id FROM runs")[0][0]
    store.close()
    with sqlite3.connect(path) as connection:
        connection.executemany(
            "INSERT INTO samples VALUES (?, ?, 0, 0, ?, ?, 'host', 1, NULL, NULL, NULL, NULL)",
            ((number, i + 2, float(i), next(g for g in (600, 60, 10, 1) if i % g == 0)) for i in range(seconds)),
        )
    connection.close()
    store = HistoryStore.open(path)
    stopwatch = CpuStopwatch()
    times = [e.t for e in stored_runs.events_to_replay(store.path, opening.run_id) if isinstance(e, Sampled)]
    assert stopwatch.seconds < 0.2
    store.close()
    assert times[:3] == [0.0, grid, 2.0 * grid]
    assert times[-600:] == [float(i) for i in range(seconds - 600, seconds)]
    assert times == sorted(set(times))
    assert len(times) < 6500


def test_what_cannot_be_written_does_not_hold_up_the_rest(path: Path) -> None:
    store, opening = begun(path)
    odd = Sampled(T0 + 1, Sample((Usage("gpu\udcff", 2**64, Limit(2**64, "cgroup /\udcff", 1)),)))
    late = [GenerationSeen(float("nan"), 1.0), GenerationSeen(T0 + 2, 2.0)]
    store.append([odd, *late], [Notice(T0, "warn", "\udcff", {"x": object(), "eta_s": float("inf")})])
    assert store.failure is None
    assert late[1] in list(stored_runs.events_to_replay(store.path, opening.run_id))
    store.close()


# --- which run it is ----------------------------------------------------------------------------------------------


def test_memwatch_restarted_goes_on_with_the_run(path: Path) -> None:
    store, first = begun(path)
    assert (first.attempt, first.resumed, first.new_attempt) == (0, False, False)
    store.append([sampled(T0 + 1)], [])
    store.close()
    again, second = begun(path)
    assert second == OpenedRun(first.run_id, 0, resumed=True, new_attempt=False)
    again.append([sampled(T0 + 2)], [])
    kinds = [type(event).__name__ for event in stored_runs.events_to_replay(again.path, first.run_id)]
    assert kinds == ["Attached", "Sampled", "Attached", "Sampled"]
    again.close()


@pytest.mark.parametrize("cause", [None, *Cause])
def test_a_successor_goes_on_with_the_run_unless_it_had_completed(path: Path, cause: Cause | None) -> None:
    store, first = begun(path)
    if cause is not None:
        store.append([Exited(T0 + 1, cause)], [])
    store.close()
    store, second = begun(path, attached(4_000_001))
    if cause is Cause.COMPLETED:
        assert second.run_id != first.run_id
        assert (second.attempt, second.resumed, second.new_attempt) == (0, False, False)
    else:
        assert second == OpenedRun(first.run_id, 1, resumed=True, new_attempt=True)
    store.close()


def test_the_same_process_is_the_same_run_whatever_log_it_is_watched_with(path: Path) -> None:
    store, first = begun(path, key="started by memwatch run")
    store.close()
    again, second = begun(path, key="attached, with a log")
    again.close()
    assert second == OpenedRun(first.run_id, 0, resumed=True, new_attempt=False)


def test_another_key_is_another_run(path: Path) -> None:
    store, first = begun(path)
    store.close()
    store, second = begun(path, attached(4_000_001), key="other")
    assert second.run_id != first.run_id
    store.close()


def test_a_trainer_that_still_runs_is_a_sibling_and_no_predecessor(path: Path) -> None:
    ticks = start_ticks(os.getppid())
    assert ticks is not None
    living = Attached(T0, Target("boot", os.getppid(), ticks), "python train.py")
    store, first = begun(path, living)
    store.close()
    store, second = begun(path, attached())
    assert second.run_id != first.run_id
    store.close()


def test_a_process_of_the_boot_before_is_gone_though_its_numbers_are_another_ones_now(path: Path) -> None:
    ticks = start_ticks(os.getppid())
    assert ticks is not None
    store, first = begun(path, Attached(T0, Target("the boot before", os.getppid(), ticks), "python train.py"))
    store.close()
    store, second = begun(path, attached())
    assert (second.run_id, second.new_attempt) == (first.run_id, True)
    store.close()


def test_a_run_that_another_memwatch_watches_now_is_left_to_it(path: Path) -> None:
    command = [sys.executable, "-m", "support.history_writer", str(path), "k", "4000000", "1000", "0.01"]
    with subprocess.Popen(command, env=ENVIRON, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = other.stdout.readline().strip()
        with sqlite3.connect(path) as connection:  # the process that we are about to watch, too
            connection.execute("UPDATE attempts SET start_ticks = 7")
        connection.close()
        store, ours = begun(path)
        other.kill()
    assert ours.run_id != theirs
    store.close()


# --- a kill, and two at once --------------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(4))
def test_a_kill_loses_nothing_that_append_returned_for(path: Path, seed: int) -> None:
    command = [sys.executable, "-m", "support.history_writer", str(path), "k", "4000000", "100000", "0.001"]
    with subprocess.Popen(command, env=ENVIRON, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        run_id = writer.stdout.readline().strip()
        writer.stdout.readline()
        time.sleep(random.Random(seed).uniform(0.05, 0.6))
        writer.kill()
        reported = [line.split() for line in writer.stdout.read().splitlines()]
    last = int([line for line in reported if len(line) == 2][-1][0])
    store = HistoryStore.open(path)
    assert store.corruption_notice == ""
    events = list(stored_runs.events_to_replay(store.path, run_id))
    generations = [event.index for event in events if isinstance(event, GenerationSeen)]
    assert generations[: last + 1] == list(range(last + 1))
    assert sum(isinstance(event, Sampled) for event in events) == len(generations)
    assert store.open_run("k", Attached(T0, Target("boot", 4_000_000, 1), "train"), T0).run_id == run_id
    store.close()


@pytest.mark.integration
def test_two_at_once_both_keep_everything(path: Path) -> None:
    commands = [
        [sys.executable, "-m", "support.history_writer", str(path), f"k{i}", f"{4_000_000 + i}", "200", "0.002"]
        for i in range(2)
    ]
    writers = [subprocess.Popen(command, env=ENVIRON, stdout=subprocess.PIPE, text=True) for command in commands]
    outputs = [writer.communicate(timeout=30)[0].splitlines() for writer in writers]
    store = HistoryStore.open(path)
    for output in outputs:
        events = list(stored_runs.events_to_replay(store.path, output[0]))
        assert [e.index for e in events if isinstance(e, GenerationSeen)] == list(range(200))
    store.close()


# --- a disk that does not work ------------------------------------------------------------------------------------


def test_a_locked_file_holds_nobody_up_and_is_caught_up_with(path: Path) -> None:
    store, opening = begun(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    longest = 0.0
    for i in range(30):
        start = Stopwatch()
        store.append([sampled(T0 + i)], [])
        longest = max(longest, start.undisturbed_seconds)
    assert longest < 0.1
    assert eventually(lambda: store.failure == "database is locked")
    other.execute("ROLLBACK")
    other.close()
    assert eventually(lambda: store.failure is None)
    assert sum(isinstance(event, Sampled) for event in stored_runs.events_to_replay(store.path, opening.run_id)) == 30
    store.close()


def test_that_a_signal_is_to_be_sent_is_waited_for_though_the_disk_lags_behind(path: Path) -> None:
    HistoryStore.open(path).close()
    slow = slow_disk(path)
    store = HistoryStore(path, slow, "", Path("/proc"), most_bytes=None, now=time.monotonic)
    opening = store.open_run("k", attached(), T0)
    slow.commit_seconds = 1.0
    for i in range(3):
        store.append([sampled(T0 + i)], [], wait_seconds=0.5)  # written in the background

    def seconds(event: Event) -> float:
        start = time.monotonic()
        store.append([event], [])
        return time.monotonic() - start

    assert min(seconds(GenerationSeen(T0 + 3, i)) for i in range(5)) < WAIT_SECONDS
    planned = Signalling(T0 + 4, "SIGINT")
    assert WAIT_SECONDS <= seconds(planned) < 1.0
    slow.commit_seconds = 0.0
    store.close()
    assert planned in stored_runs.events_to_replay(store.path, opening.run_id)


def test_a_signal_waits_for_no_locked_file(path: Path) -> None:
    store, opening = begun(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    start = Stopwatch()
    store.append([Signalling(T0, "SIGINT")], [])
    assert start.undisturbed_seconds < 10 * WAIT_SECONDS
    other.execute("ROLLBACK")
    other.close()
    store.close()
    assert Signalling(T0, "SIGINT") in stored_runs.events_to_replay(store.path, opening.run_id)


def test_a_run_begun_while_the_file_is_locked_is_entered_later(path: Path) -> None:
    store = HistoryStore.open(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    opening = store.open_run("k", attached(), T0)
    assert store.failure
    assert not opening.resumed
    store.append([attached()], [])
    other.execute("ROLLBACK")
    other.close()
    store.append([sampled(T0 + 1)], [])
    store.close()
    store = HistoryStore.open(path)
    assert len(list(stored_runs.events_to_replay(store.path, opening.run_id))) == 2
    assert store.open_run("k", attached(), T0).run_id == opening.run_id
    store.close()


def test_what_waits_is_bounded_and_the_loss_is_told(path: Path) -> None:
    store, opening = begun(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for i in range(100):
        store.append([GenerationSeen(T0, i * 100 + j) for j in range(100)], [])
    assert eventually(lambda: store.failure == "database is locked" and "waited are lost" in (store.loss or ""))
    other.execute("ROLLBACK")
    other.close()
    store.close()
    store = HistoryStore.open(path)
    kept = [
        event.index
        for event in stored_runs.events_to_replay(store.path, opening.run_id)
        if isinstance(event, GenerationSeen)
    ]
    assert kept == list(range(8000, 10_000))
    store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs root and the right to mount a tmpfs")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.cgroup
def test_a_full_disk(small_disk: Path) -> None:
    path = small_disk / "history.db"
    store, opening = begun(path)
    longest = 0.0
    (small_disk / "ballast").write_bytes(bytes(150_000))
    count = 0
    while store.failure is None and count < 1000:
        start = Stopwatch()
        store.append([GenerationSeen(T0 + count, count)], [Notice(T0, "generation", "x" * 500)])
        longest = max(longest, start.undisturbed_seconds)
        count += 1
    assert store.failure == "database or disk is full"
    assert longest < 0.15
    for _ in range(20):
        store.append([GenerationSeen(T0 + count, count)], [])
        count += 1
    (small_disk / "ballast").unlink()
    assert eventually(lambda: store.failure is None)
    found = [
        event.index
        for event in stored_runs.events_to_replay(store.path, opening.run_id)
        if isinstance(event, GenerationSeen)
    ]
    assert found == list(range(count))
    store.close()


@pytest.mark.cgroup
def test_a_full_or_read_only_disk_at_the_start(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    with pytest.raises(HistoryError, match=r"full|No space"):
        HistoryStore.open(small_disk / "history.db")
    ballast.unlink()
    (small_disk / "history.db").unlink(missing_ok=True)
    begun(small_disk / "history.db")[0].close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for name in ("history.db", "other.db"):
        with pytest.raises(HistoryError, match=f"{name}: Read-only file system") as caught:
            HistoryStore.open(small_disk / name)
        assert "--history" in caught.value.hint


def test_a_file_removed_in_use_is_told(path: Path) -> None:
    store, _ = begun(path)
    path.unlink()
    store.append([sampled(T0 + 1)], [])
    assert "removed or replaced" in (store.failure or "")
    store.close()


# --- the file itself ----------------------------------------------------------------------------------------------


def test_only_the_owner_can_read_it(path: Path) -> None:
    before = os.umask(0)
    try:
        store, _ = begun(path)
        modes = {entry.name: entry.stat().st_mode & 0o777 for entry in path.parent.iterdir()}
        assert modes == {"history.db": 0o600, "history.db-wal": 0o600, "history.db-shm": 0o600}
        assert path.parent.stat().st_mode & 0o777 == 0o700
        store.close()
    finally:
        os.umask(before)


def test_a_file_that_others_could_read_is_closed_to_them(path: Path) -> None:
    begun(path)[0].close()
    path.chmod(0o644)
    begun(path)[0].close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_is_left_beside_it_after_a_close(path: Path) -> None:
    begun(path)[0].close()
    assert [entry.name for entry in path.parent.iterdir()] == ["history.db"]


def test_a_symlink_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(HistoryError, match="symbolic link"):
        HistoryStore.open(tmp_path / "link.db")
    assert not (tmp_path / "elsewhere.db").exists()


@pytest.mark.parametrize("made", ["mkdir", "fifo"])
def test_what_is_no_file_is_refused(tmp_path: Path, made: str) -> None:
    odd = tmp_path / "h.db"
    odd.mkdir() if made == "mkdir" else os.mkfifo(odd)
    with pytest.raises(HistoryError, match="not a regular file"):
        HistoryStore.open(odd)


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match="history"):
        HistoryStore.open(tmp_path / "file" / "h.db")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody without permission")
@pytest.mark.parametrize("name", ["theirs.db", "new.db", "new/new.db"])
def test_no_permission(name: str) -> None:
    code = (
        "import os, sys; from pathlib import Path; from memwatch.errors import HistoryError\n"
        "from memwatch.history.event_store import HistoryStore\n"
        "os.setuid(65534)\n"
        "try: HistoryStore.open(Path(sys.argv[1]))\n"
        "except HistoryError as error: print(error, error.hint)"
    )
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        begun(folder / "theirs.db")[0].close()
        said = run_python(code, str(folder / name))
    assert "Permission denied" in said
    assert "--history" in said


def test_a_newer_file_is_refused_and_left_as_it_is(path: Path) -> None:
    begun(path)[0].close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(HistoryError, match="newer memwatch") as caught:
        HistoryStore.open(path)
    assert str(path) in str(caught.value)
    assert "update memwatch" in caught.value.hint
    assert path.read_bytes() == before


def test_a_file_of_an_older_memwatch_is_read_as_it_is_and_brought_up_to_date_by_a_watch(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, MIGRATIONS[:1])
        connection.execute("INSERT INTO runs VALUES (NULL, 'r', 'k', 1.0, 'c', '/', '', 'h')")
        connection.execute("INSERT INTO attempts VALUES (1, 0, 'boot', 1, 2, 1.0, 3, 4, NULL, NULL)")
        connection.execute("INSERT INTO samples VALUES (1, 1, 0, 0, 5.0, 1, 'host', 7, NULL, NULL, NULL)")
    [run] = stored_runs.stored_runs(path)
    assert list(stored_runs.events_to_replay(path, "r")) == [Sampled(5.0, Sample((Usage("host", 7, None),)))]
    assert stored_runs.watches(path, run) == []
    assert rows(path, "PRAGMA user_version") == [(1,)], "reading changes nothing"
    HistoryStore.open(path).close()
    assert rows(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    assert len(list(stored_runs.events_to_replay(path, "r"))) == 1


def test_earlier_runs_are_the_latest_of_the_program_and_say_how_they_ended(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection)
        for i in range(1, 10):
            command = "python3 /a/train.py --lr 1" if i % 4 else "python eval.py"
            values = (i, f"r{i}", float(i), command)
            connection.execute("INSERT INTO runs VALUES (?, ?, 'k', ?, ?, '/', '', 'h')", values)
            connection.execute("INSERT INTO attempts VALUES (?, 0, 'boot', 1, 2, 1.0, 3, 4, 9.0, 'failed')", (i,))
            ends = (i, 9.0, "oom_cgroup") if i != 7 else (i, None, None)
            connection.execute("INSERT INTO attempts VALUES (?, 1, 'boot', 2, 2, 1.0, 3, 4, ?, ?)", ends)
    found = stored_runs.earlier_runs(path, "r9", "python train.py")
    assert stored_runs.earlier_runs(path.with_name("none.db"), "r9", "python train.py") == []
    assert [(one.run_id, one.cause) for one in found] == [
        ("r7", ""),
        *((f"r{i}", "oom_cgroup") for i in (6, 5, 3, 2)),
    ], "the cause is that of the latest process"


def test_another_programs_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(HistoryError, match="another program"):
        HistoryStore.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["text", "header", "cut"])
def test_a_damaged_file_is_set_aside(path: Path, damage: str) -> None:
    store, opening = begun(path)
    store.append([sampled(T0 + i, i) for i in range(200)], [])
    store.close()
    whole = path.read_bytes()
    damaged = {"text": b"not a database\n" * 100, "header": b"\xff" * 100 + whole[100:], "cut": whole[:-8192]}[damage]
    for number in (1, 2):
        path.write_bytes(damaged)
        store, second = begun(path)
        assert f"history.db.corrupt-{number}" in store.corruption_notice
        assert path.with_name(f"history.db.corrupt-{number}").read_bytes() == damaged
        assert second.run_id != opening.run_id
        assert store.failure is None
        store.close()


def test_damage_inside_is_found_after_a_crash(path: Path) -> None:
    command = [sys.executable, "-m", "support.history_writer", str(path), "k", "4000000", "3000", "0"]
    with subprocess.Popen(command, env=ENVIRON, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(2500):  # enough that most of it has moved from the WAL to the file
            writer.stdout.readline()
        writer.kill()
    content = bytearray(path.read_bytes())
    assert len(content) > 40_000
    content[16_384:24_576] = random.Random(1).randbytes(8192)
    path.write_bytes(content)
    path.with_name("history.db-wal").write_bytes(b"x")
    store = HistoryStore.open(path)
    assert "was damaged" in store.corruption_notice
    store.close()


def test_a_damaged_past_is_a_named_error(path: Path) -> None:
    store, opening = begun(path)
    for i in range(3000):
        store.append([GenerationSeen(T0, i)], [])
    store.close()
    content = bytearray(path.read_bytes())
    content[16_384 : len(content) - 4096] = random.Random(1).randbytes(len(content) - 4096 - 16_384)
    path.write_bytes(content)
    store = HistoryStore.open(path)
    with pytest.raises(HistoryError, match="cannot be read") as caught:
        list(stored_runs.events_to_replay(store.path, opening.run_id))
    assert caught.value.hint
    store.close()


def test_a_check_of_a_large_file_ends_in_time(path: Path) -> None:
    begun(path)[0].close()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE big (a)")
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) "
            "INSERT INTO big SELECT i FROM n"
        )
    connection.close()
    path.with_name("history.db-wal").write_bytes(b"x")
    start = Stopwatch()
    HistoryStore.open(path).close()
    assert start.undisturbed_seconds < 0.4


# --- what it costs ------------------------------------------------------------------------------------------------


def test_a_tick_costs_less_than_a_millisecond(path: Path) -> None:
    store, _ = begun(path)
    stopwatch = CpuStopwatch()
    for i in range(300):
        store.append([GenerationSeen(T0 + i, i), sampled(T0 + i)], [Notice(T0 + i, "generation", "g", {"index": i})])
    assert stopwatch.seconds / 300 < 0.001
    store.close()


def test_a_start_is_quick(path: Path) -> None:
    start = Stopwatch()
    begun(path)[0].close()
    assert start.undisturbed_seconds < 0.2


def test_a_closed_store_takes_nothing_and_complains_of_nothing(path: Path) -> None:
    store, _ = begun(path)
    store.close()
    store.append([sampled(T0)], [])
    store.close()
    HistoryStore.open(path).close()
