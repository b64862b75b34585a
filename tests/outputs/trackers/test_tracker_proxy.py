"""A proxy and the process it feeds, which is slow, hangs or crashes: no call waits, no record is written twice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from memwatch.core.events import Notice
from memwatch.core.snapshot import Snapshot
from memwatch.errors import SourceError
from memwatch.outputs.trackers import tracker_proxy
from memwatch.outputs.trackers.tracker_proxy import TrackerProxy, TrackerWorkerSpec, finish_all
from memwatch.system.python_workers import FIRST_PAUSE_SECONDS
from support.snapshots import make_snapshot
from support.stopwatch import Stopwatch

SECONDS = 20.0  # within which a process does what it is to do
PROMPT_SECONDS = 0.05  # of a call, on a machine on which others work: it takes a hundredth of that
SNAPSHOT = make_snapshot()
TAKES = """
import os, sys
def answer(taken=b"true", complaint=b""): os.write(0, b'{"accepted":%s,"complaint":"%s"}' % (taken, complaint))
order = os.read(0, 1 << 18)
kept = open(KEPT, "ab", 0)
"""
LOOP = """
answer()
while message := os.read(0, 1 << 18):
    kept.write(message + b"\\n")
    answer()
kept.write(b"closed\\n")
"""


DIES_ONCE = """
if not os.path.exists(FOLDER + "/died"):
    answer()
    os.read(0, 1 << 18)
    open(FOLDER + "/died", "w")
    os._exit(3)
"""
NOT_YET = """
if not os.path.exists(FOLDER + "/mended"):
    answer(b"false", b"no network")
    os.read(0, 1 << 18)
    os._exit(0)
"""
SAYS_ITS_STANDING = """
import os, signal
from memwatch.outputs.trackers import tracker_worker
from memwatch.errors import SourceError
def say(order):
    oom = open("/proc/self/oom_score_adj").read().strip()
    raise SourceError(f"{os.nice(0)}, {oom}, {signal.alarm(0)}, {os.readlink('/proc/self/fd/0')}")
tracker_worker._open = say
tracker_worker.serve()
"""


class HandTime:
    """Seconds as a test sets them."""

    def __init__(self) -> None:
        self.t = 100.0

    def __call__(self) -> float:
        return self.t


class EachNotice:
    """A digest: the name of each notice."""

    due = False

    def is_due(self) -> bool:
        return self.due

    def records(self, snapshot: Snapshot, notices: Sequence[Notice]) -> Iterator[Mapping[str, object]]:
        yield from ({"event": notice.event} for notice in notices)


class Fed:
    """A proxy whose process does what `code` says, and keeps what it is handed."""

    def __init__(self, path: Path, code: str, together: int = 100) -> None:
        self.time, self.kept, self.selector = HandTime(), path / "kept", EachNotice()
        begin = f"KEPT = {str(self.kept)!r}\nFOLDER = {str(path)!r}\n"
        self.proxy = TrackerProxy(
            TrackerWorkerSpec("wandb", "run-1", "python main.py"),
            self.selector,
            together=together,
            code=begin + TAKES + code,
            monotonic=self.time,
        )

    def say(self, *events: str) -> str:
        """Publish notices; how that fails."""
        try:
            self.proxy.publish(SNAPSHOT, [Notice(1.0, event, event) for event in events])
        except SourceError as error:
            return str(error)
        return ""

    def until(self, is_so: Callable[[], object]) -> None:
        """Turn until it is."""
        end = time.monotonic() + SECONDS
        while not is_so():
            assert time.monotonic() < end, self.proxy.failure
            self.proxy.on_loop_iteration()
            time.sleep(0.005)

    def until_idle(self) -> None:
        """All is handed on."""
        self.until(lambda: self.proxy.idle)

    def until_it_fails(self) -> float:
        """Once more, after the pause that there is; the pause that follows."""
        due_t = self.proxy._worker.next_start_t
        self.time.t = max(self.time.t, due_t)
        self.until(lambda: self.proxy._worker.next_start_t != due_t)
        return self.proxy._worker.next_start_t - self.time.t

    def taken(self) -> list[str]:
        """What the process was handed."""
        lines = self.kept.read_text().splitlines() if self.kept.exists() else []
        return [line.removeprefix('{"event":"').removesuffix('"}') for line in lines]

    def pid(self) -> int:
        (pid,) = self.proxy._worker.pids
        return pid


def held() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def fed(path: Path, code: str = LOOP, together: int = 100) -> Iterator[Fed]:
    one = Fed(path, code, together)
    try:
        yield one
    finally:
        one.proxy.kill()


def test_what_is_told_is_handed_on_in_order(tmp_path: Path) -> None:
    with fed(tmp_path) as one:
        assert one.say("a", "b") == ""
        one.until_idle()
        assert one.say("c") == ""
        one.until_idle()
        assert one.taken() == ["a", "b", "c"]


def test_many_records_go_in_several_messages_and_a_huge_one_not_at_all(tmp_path: Path) -> None:
    with fed(tmp_path) as one:
        one.until_idle()
        one.say(*(f"{i:05d}" + "x" * 500 for i in range(900)))
        assert len(one.proxy._in_flight) == 100
        one.until_idle()
        assert [line[:5] for line in one.taken()] == [f"{i:05d}" for i in range(900)]
        one.say("y" * (tracker_proxy.MESSAGE_BYTES + 1), "z")
        one.until_idle()
        assert one.taken()[-1] == "z" and one.proxy.dropped == 1
    with fed(tmp_path, together=1) as one:
        one.until_idle()
        one.say("a", "b")
        assert len(one.proxy._in_flight) == 1


def test_a_turn_asks_for_the_state_when_something_is_due_or_health_has_changed(tmp_path: Path) -> None:
    with fed(tmp_path, code="answer(b'true', b'half of it')\n" + LOOP.replace("answer()\n", "", 1)) as one:
        assert one.proxy.on_loop_iteration() is False
        one.until_idle()
        assert one.proxy.on_loop_iteration() is True, "it has something to complain of"
        assert one.say() == "half of it"
        assert one.proxy.on_loop_iteration() is False, "that is known"
        one.selector.due = True
        assert one.proxy.on_loop_iteration() is True
        assert one.proxy.wants_snapshot() is False


# --- what fails -----------------------------------------------------------------------------------------------------


def test_one_that_ends_is_replaced_after_a_pause_and_handed_the_same_again(tmp_path: Path) -> None:
    with fed(tmp_path, code=DIES_ONCE + LOOP) as one:
        one.until_idle()
        one.say("a", "b")
        one.until_it_fails()
        assert one.say("c") == "its process ended with status 3"
        one.proxy.on_loop_iteration()
        assert not one.proxy._worker.is_running, "not before the pause is over"
        one.time.t += FIRST_PAUSE_SECONDS
        one.until_idle()
        assert one.taken() == ["a", "b", "c"]
        assert one.say() == "", "it works again"


def test_one_that_is_killed_while_it_has_nothing_to_do_is_told_and_replaced(tmp_path: Path) -> None:
    with fed(tmp_path) as one:
        one.until_idle()
        os.kill(one.pid(), signal.SIGKILL)
        one.until_it_fails()
        assert one.say() == "its process ended by signal 9"
        one.time.t += 1.0
        one.until_idle()
        assert one.say("a") == ""


@pytest.mark.parametrize("nonsense", [b"hello", b"\xff", b"[" * 50_000, b"{}", b'{"accepted": 1}'])
def test_one_that_answers_nonsense_is_replaced_and_handed_the_same_again(tmp_path: Path, nonsense: bytes) -> None:
    with fed(tmp_path, code=DIES_ONCE.replace("os._exit(3)", f"os.write(0, {nonsense!r})") + LOOP) as one:
        one.say("a")
        one.until_it_fails()
        assert one.say().startswith("its process answers what is no answer")
        one.time.t += FIRST_PAUSE_SECONDS
        one.until_idle()
        assert one.taken() == ["a"] and one.say() == ""


def test_pauses_grow_and_end_with_the_first_success(tmp_path: Path) -> None:
    with fed(tmp_path, code=NOT_YET + LOOP) as one:
        one.say("a")
        pauses = [one.until_it_fails() for _ in range(12)]
        assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
        assert one.say() == "no network"
        (tmp_path / "mended").touch()
        one.time.t += 600.0
        one.until_idle()
        assert one.taken() == ["a"] and one.say() == ""
        os.kill(one.pid(), signal.SIGKILL)
        assert one.until_it_fails() == 1.0


def test_records_that_crash_it_each_time_are_dropped_and_counted(tmp_path: Path) -> None:
    crashes = LOOP.replace("    kept", "    if b'bad' in message: os._exit(1)\n    kept")
    with fed(tmp_path, code=crashes, together=1) as one:
        one.say("bad", "good")
        for _ in range(tracker_proxy.MOST_CRASHES):
            one.until_it_fails()
        assert one.say() == "its process ended with status 1; 1 records were dropped"
        one.time.t += 60.0
        one.until_idle()
        assert one.taken() == ["good"]


def test_one_that_hangs_is_told_once_holds_up_nothing_and_is_replaced(tmp_path: Path) -> None:
    with fed(tmp_path) as one:
        one.until_idle()
        hanging = one.pid()
        os.kill(hanging, signal.SIGSTOP)
        longest = 0.0
        for i in range(2 * tracker_proxy.MAX_QUEUED_RECORDS):
            begun = Stopwatch()
            one.proxy.on_loop_iteration()
            said = one.say(f"{i}")
            longest = max(longest, begun.undisturbed_seconds)
            assert said == ""
        assert longest < PROMPT_SECONDS
        one.time.t += tracker_proxy.SLOW_SECONDS + 1
        assert one.proxy.on_loop_iteration() is True
        assert one.say() == one.say() == "its process has not answered for 60 s"
        assert (
            len(one.proxy._waiting) == tracker_proxy.MAX_QUEUED_RECORDS
            and one.proxy.dropped == tracker_proxy.MAX_QUEUED_RECORDS - 1
        )
        one.time.t += tracker_proxy.HUNG_SECONDS
        one.proxy.on_loop_iteration()
        assert "did not answer for 600 s and was ended; 999 records were dropped" in one.say()
        one.time.t += 1.0
        one.until_idle()
        assert one.pid() != hanging
        assert one.taken() == ["0", *map(str, range(1000, 2000))], "the newest are kept"


def test_a_package_that_is_not_there_is_a_reason_not_a_crash(tmp_path: Path) -> None:
    made = TrackerProxy(TrackerWorkerSpec("tensorboard", "run-1", "", {"dir": str(tmp_path)}), EachNotice())
    tracker_proxy.wait_until_idle(made, SECONDS)
    made.kill()
    assert made.failure == "ModuleNotFoundError: No module named 'tensorboard'"


# --- the end --------------------------------------------------------------------------------------------------------


def test_at_the_end_what_waits_is_handed_on_and_the_process_ends_by_itself(tmp_path: Path) -> None:
    with fed(tmp_path, code="import time; time.sleep(0.3)\n" + LOOP) as one:
        one.say("a")
        one.say("b", "c")
        one.proxy.on_watch_end(SNAPSHOT)
        pid = one.pid()
        finish_all([one.proxy], lambda: SECONDS)
        assert one.taken() == ["a", "b", "c", "closed"]
        assert not Path(f"/proc/{pid}").exists()


def test_those_that_hang_have_their_time_together_and_are_killed(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with fed(tmp_path, code="import time; time.sleep(60)") as one, fed(tmp_path / "x", code=LOOP) as other:
        pids = []
        for each in (one, other):
            each.say("a")
            each.proxy.on_watch_end(SNAPSHOT)
            pids.append(each.pid())
        begun = Stopwatch()
        finish_all([one.proxy, other.proxy], lambda: 0.5)
        assert begun.seconds > 0.4 and begun.undisturbed_seconds < 1.5
        assert other.taken() == ["a", "closed"]
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_who_becomes_impatient_waits_no_longer(tmp_path: Path) -> None:
    with fed(tmp_path, code="import time; time.sleep(60)") as one:
        one.say("a")
        one.proxy.on_watch_end(SNAPSHOT)
        begun = Stopwatch()
        finish_all([one.proxy], lambda: SECONDS if begun.seconds < 0.3 else 0.1)
        assert begun.seconds > 0.2 and begun.undisturbed_seconds < 1.5


def test_one_that_ends_at_the_end_is_not_begun_anew_for_nothing(tmp_path: Path) -> None:
    with fed(tmp_path) as one:
        one.until_idle()
        os.kill(one.pid(), signal.SIGKILL)
        one.proxy.on_watch_end(SNAPSHOT)
        begun = Stopwatch()
        finish_all([one.proxy], lambda: SECONDS)
        assert begun.undisturbed_seconds < 2.0 and not one.proxy._worker.is_running


def test_nothing_is_held_before_the_first_turn_and_after_the_end(tmp_path: Path) -> None:
    before = held()
    with fed(tmp_path) as one:
        assert not one.proxy._worker.is_running
        one.until_idle()
    assert held() == before


def test_an_unforeseen_order_is_refused_by_the_process_that_gets_it(tmp_path: Path) -> None:
    made = TrackerProxy(TrackerWorkerSpec("wandb", "run-1", "", {"no_such": 1}), EachNotice())
    tracker_proxy.wait_until_idle(made, SECONDS)
    made.kill()
    assert made.failure


def test_its_process_gives_way_and_does_not_hang_for_ever() -> None:
    made = TrackerProxy(TrackerWorkerSpec("notify", "", "", {"urls": []}), EachNotice(), code=SAYS_ITS_STANDING)
    tracker_proxy.wait_until_idle(made, SECONDS)
    made.kill()
    assert made.failure == "8, 1000, 600, /dev/null", "nice, first to be killed, seconds until it is, stdin"
