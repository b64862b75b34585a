from __future__ import annotations

import io
import os
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import count, islice
from pathlib import Path

import pytest

from memwatch.core.events import CheckpointSeen
from memwatch.errors import SourceError
from memwatch.sources.checkpoint_watch import CPU_SHARE, FOLDER_SECONDS, MANY_FILES, CheckpointWatch
from support.processes import READY, WAIT, python, running


class Watched:
    """This very process is the trainer; time moves by hand, and looking costs nothing unless a test says so."""

    def __init__(self, folder: Path, *globs: str, cpu_clock: Callable[[], float] = lambda: 0.0) -> None:
        self.now = 0.0
        self.watch = CheckpointWatch(os.getpid(), globs, str(folder), cpu_clock=cpu_clock)
        self.step(0)

    def events(self, seconds: float = 1.0) -> list[CheckpointSeen]:
        self.now += seconds
        return self.watch.poll(self.now)

    def step(self, seconds: float = 1.0) -> list[tuple[str, str]]:
        return [(seen.state, seen.evidence) for seen in self.events(seconds)]

    def steps(self, count: int) -> list[str]:
        return [state for _ in range(count) for state, _ in self.step()]


def grow(file: io.BufferedWriter, size: int = 1000) -> None:
    file.write(b"\x01" * size)
    file.flush()


def test_an_open_growing_file_is_being_written_and_saved_once_closed_and_still(tmp_path):
    trainer = Watched(tmp_path)
    with (tmp_path / "model.pt").open("wb") as file:
        grow(file, 5_000_000)
        [(state, evidence)] = trainer.step()
        assert state == "writing"
        assert "model.pt" in evidence
        grow(file)
        assert trainer.step() == []
        assert trainer.steps(12) == ["writing"], "repeated while it lasts"
    assert trainer.step() == []
    assert trainer.step() == []
    [(state, evidence)] = trainer.step()
    assert state == "saved"
    for part in (str(tmp_path / "model.pt"), "5.0 MB", "still for 2.0 s"):
        assert part in evidence
    assert trainer.steps(12) == [], "told once"


def test_an_empty_file_is_not_saved(tmp_path):
    trainer = Watched(tmp_path)
    with (tmp_path / "model.pt").open("wb"):
        assert trainer.steps(1) == ["writing"]
    assert trainer.steps(10) == ["dropped"]


def test_read_only_and_foreign_files_are_nothing(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"\x01")
    trainer = Watched(tmp_path)
    with (tmp_path / "model.pt").open("rb"), (tmp_path / "main.log").open("wb") as log:
        grow(log)
        assert trainer.steps(12) == []


def test_a_replay_memmap_held_open_never_blocks(tmp_path):
    with (tmp_path / "replay-model.npy").open("w+b") as held:
        held.truncate(1_000_000)
        trainer = Watched(tmp_path)
        assert trainer.steps(40) == []
        with (tmp_path / "model.pt").open("wb") as file:
            grow(file)
            assert trainer.steps(1) == ["writing"]
        assert trainer.steps(5) == ["saved"]


def test_a_memmap_opened_later_stops_blocking(tmp_path):
    trainer = Watched(tmp_path)
    with (tmp_path / "replay-model.npy").open("w+b") as held:
        held.truncate(1_000_000)
        assert "writing" in trainer.steps(31)
        assert trainer.steps(40) == ["dropped"]
        grow(held)
        assert trainer.steps(10) == [], "once known to be held open, it is no checkpoint"


MAPS_REPLAY = """
import ctypes, os, sys
fd = os.open("model.bin", os.O_RDWR | os.O_CREAT)
os.truncate(fd, 8192)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
at = libc.mmap(None, 8192, 3, 1, fd, 0)
os.close(fd)
print("ready", flush=True)
for line in sys.stdin:
    ctypes.memset(at, 1, 10)
    os.utime("model.bin")
    print("done", flush=True)
"""


def test_a_mapped_replay_memory_without_a_descriptor_is_no_checkpoint(tmp_path):
    with running(python(MAPS_REPLAY), cwd=tmp_path) as child:
        watch = CheckpointWatch(child.pid, (), str(tmp_path))
        watch.poll(0.0)
        states = []
        for t in range(1, 40):
            if t in (1, 20):
                child.stdin.write("\n")
                child.stdin.flush()
                assert child.stdout.readline()
            states += [seen.state for seen in watch.poll(float(t))]
    assert states == ["writing", "dropped"]


def test_a_stream_without_end_stops_blocking(tmp_path):
    trainer = Watched(tmp_path)
    with (tmp_path / "transitions-model.h5").open("wb") as stream:
        states = []
        for _ in range(1000):
            grow(stream, 1)
            states += trainer.steps(1)
    assert states.count("writing") <= 91
    assert trainer.steps(20) == []


def test_attached_in_the_middle_of_a_write(tmp_path):
    with (tmp_path / "model.pt").open("wb") as file:
        grow(file)
        trainer = Watched(tmp_path)
        grow(file)
        assert trainer.steps(1) == ["writing"]
    assert trainer.steps(5) == ["saved"]


def test_rename_into_place_is_followed(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"old\x01")
    trainer = Watched(tmp_path)
    with (tmp_path / "model.pt.tmp").open("wb") as file:
        grow(file)
        assert trainer.steps(1) == ["writing"]
    assert trainer.steps(4) == [], "not complete before it has its name"
    (tmp_path / "model.pt.tmp").replace(tmp_path / "model.pt")
    seen = [event for _ in range(8) for event in trainer.step()]
    assert [state for state, _ in seen] == ["saved"]
    assert str(tmp_path / "model.pt,") in seen[0][1]


@pytest.mark.parametrize(
    "folder", [".", "deep/in/some/folder"], ids=["searched folder", "folder learned from the write"]
)
def test_closed_and_renamed_between_two_looks(tmp_path, folder):
    place = tmp_path / folder
    place.mkdir(parents=True, exist_ok=True)
    (place / "model.pt").write_bytes(b"old\x01")
    trainer = Watched(tmp_path)
    with (place / "model.pt.tmp").open("wb") as file:
        grow(file)
        assert trainer.steps(1) == ["writing"]
    (place / "model.pt.tmp").replace(place / "model.pt")
    seen = [event for _ in range(8) for event in trainer.step()]
    assert [state for state, _ in seen] == ["saved"]
    assert f"{place / 'model.pt'}," in seen[0][1]
    assert trainer.steps(12) == []


def test_closed_and_renamed_between_two_looks_though_most_was_written_before_the_watch(tmp_path):
    """Its bytes since then are too few to tell that the trainer wrote it: that it was seen open does."""
    with (tmp_path / "model.pt.tmp").open("wb") as file:
        grow(file, 900_000)
        trainer = Watched(tmp_path)
        grow(file, 100_000)
        assert trainer.steps(12) == ["writing", "writing"]
    (tmp_path / "model.pt.tmp").replace(tmp_path / "model.pt")
    assert trainer.steps(8) == ["saved"]


def test_a_temporary_file_that_is_removed_is_nothing(tmp_path):
    trainer = Watched(tmp_path)
    with (tmp_path / "model.pt.tmp").open("wb") as file:
        grow(file)
        assert trainer.steps(1) == ["writing"]
    (tmp_path / "model.pt.tmp").unlink()
    assert trainer.steps(12) == ["dropped"]


def test_old_files_beside_the_first_checkpoint_are_not_new(tmp_path):
    trainer = Watched(tmp_path)
    elsewhere = tmp_path / "out"
    elsewhere.mkdir()
    (elsewhere / "old.pt").write_bytes(b"\x01")
    assert trainer.steps(6) == []
    with (elsewhere / "model.pt").open("wb") as file:
        grow(file)
        assert trainer.steps(1) == ["writing"]
    told = [evidence for _ in range(12) for state, evidence in trainer.step() if state == "saved"]
    assert len(told) == 1 and "model.pt" in told[0] and "more" not in told[0]


def test_a_temporary_file_where_everybody_writes_brings_no_saves_of_others(tmp_path):
    own, shared = tmp_path / "own", tmp_path / "tmp"
    for folder in (own, shared, shared / "others"):
        folder.mkdir()
    shared.chmod(0o1777)
    trainer = Watched(own)
    with (shared / "tmp8x1").open("wb") as file:  # as fsspec writes what it moves to its place when it is complete
        file.write(b"PK\x03\x04")
        grow(file)
        assert trainer.steps(1) == ["writing"]
    (shared / "others" / "model.pt").write_bytes(b"\x01" * 1000)
    (shared / "checkpoint.pt").write_bytes(b"\x01" * 1000)
    (shared / "tmp8x1").rename(own / "model.ckpt")
    told = [evidence for _ in range(12) for state, evidence in trainer.step() if state == "saved"]
    assert len(told) <= 1 and all("model.ckpt" in one and "more" not in one for one in told)


def test_beside_a_save_elsewhere_only_its_own_folder_is_read(tmp_path):
    own, elsewhere = tmp_path / "own", tmp_path / "runs" / "a"
    for folder in (own, elsewhere / "old" / "deep"):
        folder.mkdir(parents=True)
    trainer = Watched(own)
    with (elsewhere / "model.pt").open("wb") as file:
        grow(file)
        assert trainer.steps(1) == ["writing"]
    assert trainer.steps(6) == ["saved"]
    (elsewhere / "old" / "deep" / "model.pt").write_bytes(b"\x01" * 1000)
    (tmp_path / "runs" / "model.pt").write_bytes(b"\x01" * 1000)
    assert trainer.steps(12) == []


def test_what_is_moved_here_from_before_the_watch_is_no_save(tmp_path):
    own, before = tmp_path / "own", tmp_path / "before"
    for folder in (own, before):
        folder.mkdir()
    (before / "model.pt").write_bytes(b"\x01" * 1000)
    os.utime(before / "model.pt", (1e9, 1e9))
    trainer = Watched(own)
    assert trainer.steps(6) == []
    before.rename(own / "before")
    assert trainer.steps(12) == []


def test_a_whole_set_is_saved_together(tmp_path):
    trainer = Watched(tmp_path)
    with (tmp_path / "model.pt").open("wb") as file:
        grow(file)
        trainer.step()
    trainer.step()
    with (tmp_path / "optimizer.pt").open("wb") as file:
        grow(file, 9000)
        assert trainer.steps(5) == [], "between two files of a checkpoint it is still being written"
    [(state, evidence)] = [event for _ in range(5) for event in trainer.step()]
    assert state == "saved"
    assert "optimizer.pt" in evidence
    assert "1 more" in evidence


def test_a_checkpoint_too_fast_for_the_descriptors_is_seen_in_its_folder(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/a.npz").write_bytes(b"old\x01")
    trainer = Watched(tmp_path)
    (tmp_path / "checkpoints/b.npz").write_bytes(b"new\x01")
    (tmp_path / "notes.txt").write_bytes(b"new\x01")
    seen = [event for _ in range(12) for event in trainer.step()]
    assert [state for state, _ in seen] == ["writing", "saved"]
    assert "b.npz" in seen[1][1]


def test_of_files_that_are_gone_nothing_is_kept(tmp_path):
    trainer = Watched(tmp_path, "*.pt")
    names = (tmp_path / f"model-{number}.pt" for number in count())

    def kept_after(files: int) -> int:
        for path in islice(names, files):
            path.write_bytes(b"\x01")
            assert [state for _ in range(2) for state, _ in trainer.step(FOLDER_SECONDS)][-1:] == ["saved"]
            path.unlink()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = kept_after(5 * MANY_FILES)
        assert kept_after(10 * MANY_FILES) - before < 16_000
    finally:
        tracemalloc.stop()


def test_a_file_that_is_there_is_not_forgotten_among_many_that_are_gone(tmp_path):
    trainer = Watched(tmp_path, "*.pt")
    (tmp_path / "kept.pt").write_bytes(b"\x01")
    assert [state for _ in range(2) for state, _ in trainer.step(FOLDER_SECONDS)] == ["writing", "saved"]
    told = []
    for number in range(3 * MANY_FILES):
        path = tmp_path / f"model-{number}.pt"
        path.write_bytes(b"\x01")
        told += [evidence for _ in range(2) for _, evidence in trainer.step(FOLDER_SECONDS)]
        path.unlink()
    assert len(told) >= 3 * MANY_FILES and not [evidence for evidence in told if "kept.pt" in evidence]


def test_configured_globs_take_any_name_and_nothing_else(tmp_path):
    trainer = Watched(tmp_path, "out/state-*")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/state-7").write_bytes(b"\x01")
    (tmp_path / "other.pt").write_bytes(b"\x01")
    seen = [event for _ in range(12) for event in trainer.step()]
    assert [state for state, _ in seen] == ["writing", "saved"]
    assert "state-7" in seen[1][1]


def test_a_growing_file_under_a_glob_is_not_saved_before_it_is_still(tmp_path):
    trainer = Watched(tmp_path, "*.pt")
    trainer.watch.urgent = True
    path = tmp_path / "model.pt"
    states = []
    for size in range(1, 8):
        path.write_bytes(b"\x01" * size)  # by somebody else: no descriptor of the trainer's is ever seen
        states += trainer.steps(1)
    assert set(states) == {"writing"}
    assert trainer.steps(5) == ["saved"]


def zip_bytes() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data", os.urandom(3000))
    return buffer.getvalue()


def test_a_cut_file_is_never_saved(tmp_path):
    trainer = Watched(tmp_path)
    with (tmp_path / "model.pt").open("wb") as file:
        file.write(zip_bytes()[:677])
        file.flush()
        trainer.step()
    assert trainer.steps(10) == ["dropped"]
    assert trainer.watch.checkpoints_at_exit(trainer.now, killed=False) == []


def test_the_emergency_checkpoint_of_a_trainer_that_ends_at_once(tmp_path):
    trainer = Watched(tmp_path)
    trainer.watch.discard_before_signal(trainer.now, time.time_ns())
    (tmp_path / "emergency.npz").write_bytes(zip_bytes())
    [seen] = trainer.watch.checkpoints_at_exit(trainer.now + 0.1, killed=False)
    assert seen.state == "saved"
    assert "emergency.npz" in seen.evidence
    assert trainer.watch.checkpoints_at_exit(trainer.now + 0.2, killed=False) == []


def test_a_checkpoint_of_before_the_signal_is_no_evidence_after_it(tmp_path):
    trainer = Watched(tmp_path)
    (tmp_path / "generation_12.npz").write_bytes(zip_bytes())
    trainer.watch.discard_before_signal(trainer.now + 0.5, time.time_ns())
    [told] = [seen for _ in range(12) for seen in trainer.events()]
    assert told.state == "saved" and told.before_signal and told.path.endswith("generation_12.npz")
    assert trainer.watch.checkpoints_at_exit(trainer.now, killed=False) == []


def test_a_checkpoint_that_is_complete_when_memwatch_looks_after_the_signal_counts(tmp_path):
    trainer = Watched(tmp_path)
    sent_ns = time.time_ns() - 50_000_000
    (tmp_path / "generation_13.npz").write_bytes(zip_bytes())
    trainer.watch.discard_before_signal(trainer.now + 0.05, sent_ns)
    assert trainer.steps(12) == ["writing", "saved"]


def test_what_was_written_after_a_signal_while_memwatch_was_away_counts_and_what_before_does_not(tmp_path):
    old, new = tmp_path / "old-model.pkl", tmp_path / "new-model.pkl"
    for path in (old, new):
        path.write_bytes(b"\x01" * 3000)
    asked_t = time.time()
    os.utime(old, (asked_t - 5, asked_t - 5))
    trainer = Watched(tmp_path)
    trainer.watch.resume_after_signal(trainer.now, asked_t)
    [seen] = trainer.watch.checkpoints_at_exit(trainer.now + 0.3, killed=False)
    assert "new-model.pkl" in seen.evidence and "more" not in seen.evidence


def test_a_file_that_is_written_since_a_signal_while_memwatch_was_away_counts_when_it_is_complete(tmp_path):
    asked_t = time.time()
    with (tmp_path / "model.pkl").open("wb") as file:
        grow(file)
        trainer = Watched(tmp_path)
        trainer.watch.resume_after_signal(trainer.now, asked_t)
        assert trainer.steps(1) == ["writing"]
    assert "saved" in trainer.steps(4)


def test_a_write_that_spans_the_signal_counts(tmp_path):
    trainer = Watched(tmp_path)
    with (tmp_path / "model.pkl").open("wb") as file:
        grow(file)
        trainer.step()
        trainer.watch.discard_before_signal(trainer.now, time.time_ns())
        grow(file)
        trainer.step()
    assert trainer.steps(4) == ["saved"]


@pytest.mark.parametrize(("killed", "count"), [(True, 0), (False, 1)])
def test_a_file_open_at_the_end_counts_only_if_the_trainer_was_not_killed(tmp_path, killed, count):
    trainer = Watched(tmp_path)
    with (tmp_path / "model.pkl").open("wb") as file:
        grow(file)
        trainer.step()
    assert len(trainer.watch.checkpoints_at_exit(trainer.now, killed=killed)) == count


@pytest.mark.parametrize(("killed", "count"), [(True, 0), (False, 1)])
def test_a_file_that_no_look_has_seen_counts_only_if_the_trainer_was_not_killed(tmp_path, killed, count):
    trainer = Watched(tmp_path)
    trainer.step()
    (tmp_path / "model.pkl").write_bytes(b"\x01" * 3000)
    assert len(trainer.watch.checkpoints_at_exit(trainer.now, killed=killed)) == count


def test_a_zip_with_its_end_counts_though_no_look_has_seen_it_before_the_kill(tmp_path):
    trainer = Watched(tmp_path)
    trainer.step()
    (tmp_path / "model.pt").write_bytes(zip_bytes())
    assert len(trainer.watch.checkpoints_at_exit(trainer.now, killed=True)) == 1


def test_a_file_that_got_its_final_name_before_the_kill_counts(tmp_path):
    trainer = Watched(tmp_path)
    with (tmp_path / "model.pkl.tmp").open("wb") as file:
        grow(file)
        trainer.step()
    (tmp_path / "model.pkl.tmp").rename(tmp_path / "model.pkl")
    assert len(trainer.watch.checkpoints_at_exit(trainer.now, killed=True)) == 1


def test_a_file_that_was_closed_by_the_trainers_end_was_open_at_its_end(tmp_path):
    code = READY + "input(); file = open('model.pkl', 'wb'); file.write(b'\\x01' * 3000); file.flush(); "
    with running(python(code + WAIT), cwd=tmp_path) as child:
        watch = CheckpointWatch(child.pid, (), str(tmp_path), cpu_clock=lambda: 0.0)
        watch.poll(0.0)
        print(file=child.stdin, flush=True)
        assert child.stdout.readline()
        assert [seen.state for seen in watch.poll(10.0)] == ["writing"]
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie
        assert [seen.state for t in range(11, 19) for seen in watch.poll(float(t))] == []
        assert watch.checkpoints_at_exit(19.0, killed=True) == []


def test_a_trainer_that_is_gone_has_no_open_files(tmp_path):
    with running(python(WAIT), cwd=tmp_path) as child:
        watch = CheckpointWatch(child.pid, (), str(tmp_path))
        assert watch.poll(0.0) == []
    assert watch.poll(5.0) == []


def test_not_permitted_is_told_once_and_folders_go_on(tmp_path):
    class Denied(CheckpointWatch):
        def _open_files(self):
            raise SourceError("not permitted", "hint")

    watch = Denied(os.getpid(), ("*.pt",), str(tmp_path))
    with pytest.raises(SourceError) as raised:
        watch.poll(0.0)
    assert raised.value.hint
    (tmp_path / "a.pt").write_bytes(b"\x01")
    assert [seen.state for t in range(1, 12) for seen in watch.poll(float(t))] == ["writing", "saved"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_users_descriptors_give_a_hint(tmp_path):
    with running(python(WAIT)) as child:
        watcher = os.fork()
        if watcher == 0:
            code = 9
            try:
                os.setuid(65534)
                try:
                    CheckpointWatch(child.pid).poll(0.0)
                except SourceError as error:
                    code = 0 if "globs" in error.hint else 8
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(watcher, 0)[1]) == 0


needs_counts = pytest.mark.skipif(Path("/proc/self/fd").stat().st_size == 0, reason="this kernel counts no open files")


@needs_counts
def test_a_trainer_that_writes_nothing_is_rarely_looked_at(tmp_path):
    asked = []
    trainer = Watched(tmp_path, cpu_clock=lambda: asked.append(None) or 0.0)
    trainer.step(10)
    asked.clear()
    trainer.steps(60)
    assert len(asked) == 2 * (6 + 12), "twice a look, files every 10 s, folders every 5"


@needs_counts
@pytest.mark.parametrize(("size", "within"), [(100, 11), (20_000, 1)])
def test_a_file_opened_as_another_is_closed_is_seen_by_what_is_written(tmp_path, size, within):
    with ExitStack() as stack:
        data = stack.enter_context((tmp_path / "data").open("wb"))
        trainer = Watched(tmp_path)
        trainer.steps(7)
        data.close()
        grow(stack.enter_context((tmp_path / "model.pt").open("wb", buffering=0)), size)
        assert trainer.steps(within) == ["writing"]


@needs_counts
def test_a_log_written_line_by_line_adds_up(tmp_path):
    asked = []
    with (tmp_path / "main.log").open("wb") as log:
        trainer = Watched(tmp_path, cpu_clock=lambda: asked.append(None) or 0.0)
        trainer.step(10)
        asked.clear()
        for _ in range(15):
            grow(log, 6_000)
            trainer.step()
    assert 2 * (5 + 3) <= len(asked) <= 2 * (7 + 3), "not every second; folders every 5 s"


def test_ten_thousand_descriptors_cost_no_more_than_the_share(tmp_path):
    """By a real count of CPU time over 300 s of the daemon's clock, at 1 Hz."""
    with ExitStack() as stack:
        source = stack.enter_context((tmp_path / "data").open("wb"))
        held = []
        stack.callback(lambda: [os.close(fd) for fd in held])
        try:
            held += [os.dup(source.fileno()) for _ in range(10_000)]
        except OSError:
            pytest.skip("the limit of open files is too low")
        spent = time.thread_time()
        trainer = Watched(tmp_path, cpu_clock=time.thread_time)
        first = time.thread_time() - spent
        trainer.steps(300)
        spent = time.thread_time() - spent
    assert spent <= 300 * CPU_SHARE * 2 + first, f"{spent:.3f} s"


def test_urgent_looks_at_each_poll(tmp_path):
    trainer = Watched(tmp_path)
    trainer.watch.urgent = True
    with (tmp_path / "model.pt").open("wb") as file:
        grow(file)
        assert trainer.step(0.25)[0][0] == "writing"


def test_a_dear_look_is_taken_rarely(tmp_path):
    ticks = iter(range(10_000))
    trainer = Watched(tmp_path, cpu_clock=lambda: next(ticks) * 0.04)  # 40 ms a look
    with (tmp_path / "model.pt").open("wb") as file:
        grow(file)
        assert trainer.steps(75) == []
        assert trainer.steps(10) == ["writing"]


def test_urgency_comes_through_at_once_after_a_dear_look(tmp_path):
    ticks = iter(range(10_000))
    trainer = Watched(tmp_path, cpu_clock=lambda: next(ticks) * 0.04)
    with (tmp_path / "model.pt").open("wb") as file:
        grow(file)
        assert trainer.steps(3) == []
        trainer.watch.urgent = True
        assert trainer.steps(1) == ["writing"]


def test_with_globs_another_file_holds_but_is_not_saved(tmp_path):
    trainer = Watched(tmp_path, "best-*.pt")
    with (tmp_path / "figures-model.pkl").open("wb") as file:
        grow(file)
        assert trainer.steps(1) == ["writing"]
    assert trainer.steps(12) == ["dropped"]


def test_with_globs_a_temporary_file_renamed_to_something_else_is_not(tmp_path):
    trainer = Watched(tmp_path, "best-*.pt")
    with (tmp_path / "model.pt.tmp").open("wb") as file:
        grow(file)
        assert trainer.steps(1) == ["writing"]
    (tmp_path / "model.pt.tmp").rename(tmp_path / "last-model.pt")
    assert trainer.steps(12) == ["dropped"]


def test_with_globs_a_temporary_file_renamed_to_fit_is_saved(tmp_path):
    trainer = Watched(tmp_path, "best-*.pt")
    with (tmp_path / "model.pt.tmp").open("wb") as file:
        grow(file)
        assert trainer.steps(1) == ["writing"]
    (tmp_path / "model.pt.tmp").rename(tmp_path / "best-3.pt")
    assert trainer.steps(12) == ["saved"]


# --- how trainers save: real files of a real child --------------------------------------------------------------------

SAVER = """
import os, pickle, shutil, sys, zipfile
blob = lambda size=200_000: os.urandom(8) + bytes(i % 251 for i in range(size))
def put(path, data, mode="wb"):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, mode) as file:
        file.write(data)
def zipped(path, size=200_000):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data.pkl", blob(size))
def save(n):
{body}
print('ready', flush=True)
for line in sys.stdin:
    save(int(line))
    print("done", flush=True)
"""

# name: (code that saves as number n, the name that is reported, whether the first save is told)
PATTERNS: dict[str, tuple[str, str, bool]] = {
    "lightning": ("zipped(f'lightning_logs/version_0/checkpoints/epoch={n}-step={n*10}.ckpt')", "epoch=", True),
    "lightning, the one before removed": (
        "zipped(f'logs/v/checkpoints/epoch={n}.ckpt'); n > 1 and os.remove(f'logs/v/checkpoints/epoch={n-1}.ckpt')",
        "epoch=",
        True,
    ),
    "transformers": (
        "d = f'out/checkpoint-{n}00'; put(d + '/model.safetensors', b'\\x08' + bytes(7) + b'{\"a\":{}}' + blob()); "
        "zipped(d + '/optimizer.pt', 400_000); zipped(d + '/rng_state.pth'); "
        "put(d + '/trainer_state.json', b'{}' * 900)",
        "optimizer.pt",
        True,
    ),
    "a folder that is renamed": (
        "d = f'out/tmp-checkpoint-{n}'; put(d + '/weights', blob()); put(d + '/more', blob(90_000)); "
        "os.rename(d, f'out/checkpoint-{n}')",
        "out/checkpoint-",
        True,
    ),
    "shards": (
        "[put(f'out/step-{n}/model-0000{i}-of-00003.bin', blob()) for i in (1, 2, 3)]",
        "-of-00003",
        True,
    ),
    "nanogpt, in place": ("zipped('out-name/ckpt.pt')", "out-name/ckpt.pt", True),
    "stable-baselines3": ("zipped(f'logs/rl_model_{n}000_steps.zip')", "_steps.zip", True),
    "gensim": (
        "put(f'w2v-{n}.model', pickle.dumps(blob())); put(f'w2v-{n}.wv', pickle.dumps(blob(9000)))",
        ".model",
        True,
    ),
    "xgboost": ("put(f'saved/boost_{n}.ubj', b'{L\\0\\0' + blob(20_000 * n))", ".ubj", True),
    "xgboost, text": ("put(f'boost_{n}.json', b'{\"learner\":' + b'1.5,' * 9000 * n)", "boost_", False),
    "lightgbm": ("put(f'model.txt.snapshot_iter_{n}', b'tree\\nversion=v4\\n' * 500 * n)", "snapshot_iter_", True),
    "keras": ("put('a.weights.h5', b'\\x89HDF\\r\\n' + blob())", "a.weights.h5", True),
    "numpy in the folder itself": ("zipped('state.npz', 3000)", "state.npz", True),
    "pickle in the folder itself": ("put('pop', pickle.dumps(blob(3000)))", "pop", True),
    "anything, again and again": ("put(f'deep/er/still/{n}.dat', blob(3000))", ".dat", False),
    "large, in a folder that it has made": ("put('run/w', blob(400_000))", "run/w", True),
    "renamed into place": ("put('run/a.tmp', blob(3000)); os.rename('run/a.tmp', 'run/a')", "run/a", False),
    "a set of three, the oldest removed": (
        "put(f'w/{n}.bin', blob(5000)); n > 3 and os.remove(f'w/{n-3}.bin')",
        ".bin",
        False,
    ),
}


def saver(tmp_path: Path, body: str, saves: int = 4) -> list[list[CheckpointSeen]]:
    """What is reported after each of the saves of a child."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/train.bin").write_bytes(bytes(5000))
    events = []
    with running(python(SAVER.replace("{body}", f"    {body}")), cwd=tmp_path) as child:
        watch = CheckpointWatch(child.pid, (), str(tmp_path), cpu_clock=lambda: 0.0)
        watch.poll(0.0)
        for number in range(1, saves + 1):
            print(number, file=child.stdin, flush=True)
            assert child.stdout.readline()
            events.append([seen for t in range(20) for seen in watch.poll(20.0 * number + t)])
        watch.close()
    return events


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_save_of_a_trainer_is_told_once_with_its_seconds(tmp_path, pattern):
    body, name, at_first = PATTERNS[pattern]
    events = saver(tmp_path, body)
    saved = [[seen for seen in each if seen.state == "saved"] for each in events]
    assert [len(each) for each in saved] == [int(at_first), 1, 1, 1]
    assert all(name in seen.path and seen.seconds is not None and seen.seconds < 5 for each in saved for seen in each)
    assert all(each[-1].state == "saved" for each in events if each), "never being written for ever"


NO_CHECKPOINTS = {
    "a table": "put('metrics.csv', b'1,2,3\\n' * 4000, 'ab')",
    "a table that is written anew": "put('history.json', b'[1, 2]' * 100 * n)",
    "a summary of the model": "put('model_summary.txt', b'layer  (10, 20)\\n' * 20)",
    "a status": "put('status.bin', blob(100))",
    "pictures": "put(f'plots/epoch_{n}.png', b'\\x89PNG' + blob())",
    "events": "put('runs/a/events.out.tfevents.1', bytes([24, 0, 0]) + blob(900), 'ab')",
    "a cache": "put('__pycache__/model.pyc', blob()); put('.cache/model.bin', blob())",
    "a rotated log": "n > 1 and os.rename('train.log', f'train.log.{n}'); "
    "put('train.log', b'line of a log\\n' * 20); "
    "put('train.log', b'line of a log\\n' * 9000, 'ab')",
    "a database": "put('study.db', b'SQLite format 3\\0' + blob())",
}


@pytest.mark.parametrize("pattern", NO_CHECKPOINTS)
def test_what_a_trainer_writes_besides_is_no_checkpoint(tmp_path, pattern):
    assert [each for each in saver(tmp_path, NO_CHECKPOINTS[pattern]) if each] == []


def test_a_trainer_that_saves_more_often_than_files_settle_has_saved_each_time(tmp_path):
    """Its checkpoint is never still: each is complete when the next begins."""
    trainer = Watched(tmp_path)
    trainer.watch.urgent = True
    states = []
    for _ in range(1, 30):
        (tmp_path / "ckpt.pt.tmp").write_bytes(zip_bytes())
        (tmp_path / "ckpt.pt.tmp").replace(tmp_path / "ckpt.pt")
        states += [state for state, _ in trainer.step(0.4)]
    assert states.count("saved") >= 25


def test_what_is_on_disk_is_known_at_the_end(tmp_path):
    trainer = Watched(tmp_path)
    path = tmp_path / "model.pt"
    path.write_bytes(zip_bytes())
    assert trainer.steps(12) == ["writing", "saved"]
    assert trainer.watch.is_on_disk(str(path))
    path.write_bytes(zip_bytes()[:100])
    assert not trainer.watch.is_on_disk(str(path)), "the next save was cut off"
    path.unlink()
    assert not trainer.watch.is_on_disk(str(path))


def test_a_folder_that_only_the_log_names_is_looked_at(tmp_path_factory):
    own, elsewhere = tmp_path_factory.mktemp("own"), tmp_path_factory.mktemp("elsewhere")
    trainer = Watched(own)
    trainer.watch.add_logged(f"log: saved to '{elsewhere}/ckpt-1.pt'.")
    (elsewhere / "ckpt-2.pt").write_bytes(zip_bytes())
    assert trainer.steps(12) == ["writing", "saved"]


def test_a_path_with_a_space_leads_to_no_folder_of_other_runs(tmp_path):
    own = tmp_path / "run 1"
    own.mkdir()
    trainer = Watched(own)
    trainer.watch.add_logged(f"log: saved to {own}/ckpt-1.pt")
    (tmp_path / "run 2").mkdir()
    (tmp_path / "run 2" / "ckpt-2.pt").write_bytes(zip_bytes())
    assert trainer.steps(12) == []


def test_the_log_and_the_history_are_no_checkpoints(tmp_path):
    watch = CheckpointWatch(os.getpid(), (), str(tmp_path), excluded=[str(tmp_path / "model.log")])
    watch.poll(0.0)
    (tmp_path / "model.log").write_bytes(bytes(5000))
    assert [seen for t in range(1, 20) for seen in watch.poll(float(t))] == []


WRITES = """import sys
for line in sys.stdin:
    open('model_best.npz', 'wb').write(bytes(50_000))
    print('done', flush=True)
"""


@pytest.mark.parametrize(("who", "expected"), [("another", []), ("the trainer", ["saved"]), ("a child", ["saved"])])
def test_a_file_that_another_program_writes_here_is_no_checkpoint(tmp_path, who, expected):
    code = f"print('ready', flush=True)\n{WRITES}"
    with running(python(code), cwd=tmp_path) as writer, running(python(WAIT), cwd=tmp_path) as other:
        watched = writer if who == "the trainer" else other
        members = (writer.pid,) if who == "a child" else ()
        watch = CheckpointWatch(watched.pid, (), str(tmp_path), member_pids=lambda: members)
        watch.poll(0.0)
        states = []
        for save in range(4):
            writer.stdin.write("\n")
            writer.stdin.flush()
            assert writer.stdout.readline() == "done\n"
            states += [one.state for k in range(1, 12) for one in watch.poll(20.0 * save + k)]
        watch.close()
    assert list(dict.fromkeys(state for state in states if state == "saved")) == expected
    assert expected or not states, "it is not waited for, either"


def test_what_a_model_gave_is_no_checkpoint_though_it_is_written_again_and_again(tmp_path):
    trainer = Watched(tmp_path)
    for name in ("val_predictions.npy", "samples_1.npz", "best_outputs.npy"):
        for k in range(4):
            (tmp_path / name).write_bytes(b"\x93NUMPY" + bytes(40_000 + k))
            states = trainer.steps(12)
            assert ("saved" in states) == name.startswith("best"), name


def test_a_file_that_is_written_again_each_second_is_many_short_saves(tmp_path):
    trainer, took = Watched(tmp_path), []
    for _ in range(8):
        (tmp_path / "model.npy").write_bytes(bytes(40_000))
        took += [event.seconds for event in trainer.events(3.0) if event.state == "saved"]
        time.sleep(1.05)
    assert len(took) >= 5 and sorted(took)[2] < 1.0, took


SAVES_BESIDE = """
import os, sys, time
print("ready", flush=True)
for i in range(3):
    sys.stdin.readline()
    os.makedirs(sys.argv[-1], exist_ok=True)
    with open(f"{sys.argv[-1]}/model_{i}.pt", "wb") as file:
        file.write(b"PK\\3\\4" + bytes(400_000) + b"PK\\5\\6" + bytes(18))
    print("saved", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("arguments", "made_by"),
    [
        pytest.param(["../checkpoints/run-1"], "requirements.txt", id="in the project around its folder"),
        pytest.param(["--output-dir", "../saves"], None, id="where its command line says"),
    ],
)
def test_saves_beside_the_trainers_own_folder_are_found(
    tmp_path: Path, arguments: list[str], made_by: str | None
) -> None:
    own = tmp_path / "project" / "trainer"
    own.mkdir(parents=True)
    if made_by is not None:
        (own.parent / made_by).touch()
    command = python(SAVES_BESIDE, *arguments)
    with running(command, cwd=own) as child:
        assert child.stdin is not None and child.stdout is not None
        watch = CheckpointWatch(child.pid, (), str(own), argv=command, cpu_clock=lambda: 0.0)
        with closing(watch):
            assert watch.poll(0.0) == []
            said = list[CheckpointSeen]()
            for now in (10, 20, 30):
                child.stdin.write("\n")
                child.stdin.flush()
                assert child.stdout.readline() == "saved\n"
                said += [seen for second in range(9) for seen in watch.poll(float(now + second))]
    saved = [Path(seen.path).name for seen in said if seen.state == "saved"]
    assert saved == [f"model_{i}.pt" for i in range(3)], said
    assert str(own) not in said[0].path
