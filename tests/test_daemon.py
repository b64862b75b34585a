"""The loop with everything around it faked: what fails stops nothing and is told once; what is decided is done once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from memwatch.core.engine import Engine
from memwatch.core.model import (
    Attached,
    Cause,
    CheckpointSeen,
    Event,
    Exited,
    GenerationSeen,
    Notice,
    Sample,
    Sampled,
    Signalled,
    Snapshot,
    SourceChanged,
    State,
    Unread,
)
from memwatch.core.policy import Policy
from memwatch.daemon import Daemon
from memwatch.errors import SourceError, TargetGoneError
from support.watch import GB, TARGET, Script, growing, sampled

ATTACHED = Attached(0.0, TARGET, "python main.py")


class HandClock:
    def __init__(self) -> None:
        self.t = 0.0

    def now(self) -> float:
        return self.t


class Samples:
    """Memory as a test sets it; `fail` names sources that cannot be read."""

    def __init__(self) -> None:
        self.used, self.unread, self.during = 50 * GB, tuple[Unread, ...](), lambda: None
        self.wreck = False

    def sample(self, now: float) -> Sample:
        self.during()
        if self.wreck:
            raise TargetGoneError("it has ended")
        return Sample(sampled(now, self.used).sample.usages, unread=self.unread)


class FakeTrainer:
    """Gone when a test says so."""

    def __init__(self) -> None:
        self.is_gone, self.seen, self.found = False, list[Event](), list[Event]()
        self.before: Snapshot | None = None

    def gone(self) -> bool:
        return self.is_gone

    def ending(self, t: float, before: Snapshot) -> Sequence[Event]:
        self.before = before
        return [*self.found, Exited(t, Cause.COMPLETED, ("exit status 0",), 0)]

    def observe(self, event: Event) -> None:
        self.seen.append(event)


class FakeSignaller:
    def __init__(self) -> None:
        self.sent, self.error = list[str](), None

    def send(self, signal_name: str) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append(signal_name)


class FakeSource:
    """Tells what is queued; raises `error` while there is one."""

    def __init__(self, name: str = "log") -> None:
        self.name, self.queue, self.error, self.polls = name, list[Event](), None, 0

    def poll(self, now: float) -> Sequence[Event]:
        self.polls += 1
        if self.error is not None:
            raise self.error
        told, self.queue = self.queue, []
        return told

    def close(self) -> None: ...


class FakeSink:
    def __init__(self, name: str = "sink") -> None:
        self.name, self.notices, self.closed, self.error = name, list[Notice](), list[Snapshot](), None

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        if self.error is not None:
            raise self.error
        self.notices += notices

    def close(self, snapshot: Snapshot) -> None:
        self.closed.append(snapshot)
        if self.error is not None:
            raise self.error

    def named(self, event: str) -> list[Notice]:
        return [one for one in self.notices if one.event == event]


class FakeJournal:
    def __init__(self) -> None:
        self.failure: str | None = None
        self.events: list[Event] = []

    def append(self, events: Sequence[Event], notices: Sequence[Notice]) -> None:
        self.events += events


class Bench:
    """A daemon of fakes, one second a tick."""

    def __init__(
        self,
        *,
        dry_run: bool = False,
        choose: Callable[[], str] = lambda: "SIGINT",
        source: FakeSource | None = None,
    ) -> None:
        self.clock, self.samples, self.trainer = HandClock(), Samples(), FakeTrainer()
        self.signaller, self.source, self.journal = FakeSignaller(), source or FakeSource(), FakeJournal()
        self.sink, self.other = FakeSink(), FakeSink("other")
        self.script = Script()
        self.slept: list[float] = []
        self.each: Callable[[], object] = lambda: None
        self.engine = Engine(Policy(checkpoint_seconds=10.0, save_timeout_seconds=20.0), lambda: self.script)
        self.daemon = Daemon(
            clock=self.clock,
            engine=self.engine,
            sampler=self.samples,
            trainer=self.trainer,
            signaller=self.signaller,
            choose_signal=choose,
            sources=[self.source],
            sinks=[self.sink, self.other],
            journal=self.journal,
            dry_run=dry_run,
        )

    def run(self, seconds: int, then: Callable[[], object] = lambda: None) -> Exited | None:
        """Watch until the trainer is gone, or for `seconds`."""

        def sleep(wait: float) -> None:
            self.slept.append(wait)
            self.clock.t += 1.0
            self.each()

        return self.daemon.run(ATTACHED, sleep, lambda: self.clock.t >= seconds)

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.t += 1.0
            self.daemon.tick()

    def leak(self) -> None:
        """The limit is met within seconds, as the forecaster says."""
        self.script.says, self.script.rate = growing(5.0), 10.0 * GB


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.engine.feed(ATTACHED)
    return bench


def kinds(events: Sequence[Event]) -> list[type]:
    return [type(event) for event in events]


def changes(bench: Bench) -> list[tuple[str, bool, str]]:
    return [(one.source, one.ok, one.reason) for one in bench.trainer.seen if isinstance(one, SourceChanged)]


# --- what fails -----------------------------------------------------------------------------------------------------


def test_a_failing_source_is_told_once_with_each_new_reason_and_when_it_works_again(bench: Bench) -> None:
    for reason in ("gone", "gone", "denied", "denied", None, None):
        bench.source.error = SourceError(reason) if reason else None
        bench.tick()
    assert changes(bench) == [("log", False, "gone"), ("log", False, "denied"), ("log", True, "")]
    assert kinds(bench.trainer.seen).count(Sampled) == 6, "memory was read all the while"


def test_an_unread_reading_is_a_failing_source_and_an_absent_one_is_none(bench: Bench) -> None:
    bench.samples.unread = (Unread("nvml", "no driver", absent=True), Unread("cgroup", "not mounted"))
    bench.tick(2)
    assert changes(bench) == [("cgroup", False, "not mounted")]
    bench.samples.unread = ()
    bench.tick(2)
    assert changes(bench)[1:] == [("cgroup", True, "")]


def test_a_process_without_memory_is_waited_for_and_told_when_it_does_not_end(bench: Bench) -> None:
    bench.tick()
    bench.samples.wreck = True
    bench.tick(2)
    assert changes(bench) == []
    assert bench.engine.snapshot().resources, "the last figures stay"
    bench.tick(2)
    assert changes(bench) == [("procfs", False, "it has ended")]


def test_a_failing_journal_stops_nothing_and_is_told_once(bench: Bench) -> None:
    bench.journal.failure = "disk full"
    bench.tick(3)
    bench.journal.failure = None
    bench.tick(2)
    assert changes(bench) == [("history", False, "disk full"), ("history", True, "")]
    assert [one.fields["source"] for one in bench.sink.named("source_failed")] == ["history"]


def test_a_failing_sink_stops_nothing_and_the_others_tell_of_it(bench: Bench) -> None:
    bench.sink.error = OSError(28, "No space left on device")
    bench.tick(4)
    assert [one.fields["source"] for one in bench.other.named("source_failed")] == ["sink"]
    bench.sink.error = None
    bench.tick(2)
    assert [one.fields["source"] for one in bench.other.named("source_recovered")] == ["sink"]


def test_a_sink_that_cannot_be_closed_leaves_the_others_closed() -> None:
    bench = Bench()
    bench.sink.error = BrokenPipeError("no reader")
    assert bench.run(2) is None
    assert len(bench.other.closed) == 1


def test_a_bug_is_not_hidden(bench: Bench) -> None:
    bench.source.error = ZeroDivisionError("a bug")  # type: ignore[assignment]
    with pytest.raises(ZeroDivisionError):
        bench.tick()


# --- what is decided ------------------------------------------------------------------------------------------------


def test_the_signal_is_sent_once_and_reported_back_to_engine_journal_and_trainer(bench: Bench) -> None:
    bench.leak()
    bench.tick(5)
    assert bench.signaller.sent == ["SIGINT"]
    assert bench.engine.snapshot().state is State.INTERRUPTING
    for seen in (bench.trainer.seen, bench.journal.events):
        assert [one.signal for one in seen if isinstance(one, Signalled)] == ["SIGINT"]
    assert [one.event for one in bench.sink.notices if one.event in ("interrupt", "signalled")] == [
        "interrupt",
        "signalled",
    ], "told in the order in which it happened"


def test_a_dry_run_sends_nothing_and_says_what_it_would() -> None:
    bench = Bench(dry_run=True)
    bench.engine.feed(ATTACHED)
    bench.leak()
    bench.tick(30)
    assert bench.signaller.sent == []
    assert [(one.signal, one.dry_run) for one in bench.trainer.seen if isinstance(one, Signalled)] == [("SIGINT", True)]
    assert bench.engine.snapshot().state is not State.INTERRUPTING


def test_a_signal_that_cannot_be_sent_is_tried_again_and_its_reason_told(bench: Bench) -> None:
    bench.leak()
    bench.signaller.error = SourceError("not permitted")
    bench.tick(8)
    bench.signaller.error = None
    bench.tick(8)
    errors = [one.error for one in bench.trainer.seen if isinstance(one, Signalled)]
    assert errors[0] == "not permitted" and errors[-1] == ""
    assert bench.signaller.sent == ["SIGINT"]


def test_a_trainer_that_ignores_every_signal_is_a_signal_that_cannot_be_sent() -> None:
    def none() -> str:
        raise SourceError("the trainer ignores SIGINT and SIGTERM")

    bench = Bench(choose=none)
    bench.engine.feed(ATTACHED)
    bench.leak()
    bench.tick(4)
    [first, *_] = [one for one in bench.trainer.seen if isinstance(one, Signalled)]
    assert (first.signal, first.error) == ("SIGINT", "the trainer ignores SIGINT and SIGTERM")
    assert bench.signaller.sent == []


def test_a_trainer_that_does_not_answer_gets_sigterm_past_the_deadline(bench: Bench) -> None:
    bench.leak()
    bench.tick(40)
    assert bench.signaller.sent == ["SIGINT", "SIGTERM"]
    assert bench.engine.snapshot().state is State.ESCALATED


def test_a_trainer_that_answers_gets_no_more(bench: Bench) -> None:
    bench.leak()
    bench.tick(5)
    bench.source.queue = [CheckpointSeen(bench.clock.t, "saved", "log: saved")]
    bench.tick(100)
    assert bench.signaller.sent == ["SIGINT"]


def test_the_trainer_ends_between_decision_and_signal() -> None:
    bench = Bench()
    bench.leak()
    bench.signaller.error = TargetGoneError("process 100 has ended")
    bench.each = lambda: setattr(bench.trainer, "is_gone", bench.clock.t >= 4)
    exited = bench.run(10)
    assert exited is not None and exited.cause is Cause.COMPLETED


# --- its life -------------------------------------------------------------------------------------------------------


def test_told_to_stop_it_closes_everything_and_says_that_the_trainer_runs_on() -> None:
    bench = Bench()
    assert bench.run(3) is None
    assert bench.sink.closed and bench.sink.closed[0].exited is None
    assert kinds(bench.journal.events) == [Attached, Sampled, Sampled, Sampled]


def test_at_the_end_the_rest_of_the_log_is_read_before_the_conclusion() -> None:
    bench = Bench()

    def end() -> None:
        if bench.clock.t == 2:
            bench.trainer.is_gone = True
            bench.source.queue = [GenerationSeen(2.0, 7)]
            bench.trainer.found = [CheckpointSeen(2.0, "saved", "file: a.pt")]

    bench.each = end
    exited = bench.run(10)
    assert exited is not None and exited.exit_code == 0
    assert kinds(bench.journal.events)[-3:] == [GenerationSeen, CheckpointSeen, Exited]
    assert bench.sink.closed[0].exited is exited
    assert bench.trainer.before is not None and bench.trainer.before.generation == 7


def test_what_is_read_while_the_trainer_ends_is_not_a_sample() -> None:
    bench = Bench()

    def end() -> None:
        if bench.clock.t >= 2:
            bench.trainer.is_gone, bench.samples.used = True, 0

    bench.samples.during = end
    bench.run(10)
    used = [one.sample.usages[0].used_bytes for one in bench.trainer.seen if isinstance(one, Sampled)]
    assert used == [50 * GB, 50 * GB]


class Endless(FakeSource):
    """A log that never stops talking."""

    def poll(self, now: float) -> Sequence[Event]:
        self.polls += 1
        return [GenerationSeen(now, float(self.polls))]


def test_a_log_that_never_stops_talking_does_not_hold_the_end() -> None:
    bench = Bench(source=Endless())
    bench.trainer.is_gone = True
    assert bench.run(10) is not None
    assert bench.source.polls < 100


def test_it_sleeps_for_the_interval_and_less_when_memory_runs_out_fast() -> None:
    bench = Bench()

    def rush() -> None:
        bench.script.rate = 50 * GB if bench.clock.t >= 2 else 0.0

    bench.each = rush
    bench.run(5)
    assert bench.slept[0] == 1.0
    assert bench.slept[-1] == pytest.approx(0.25), "50 GB left at 50 GB/s: four looks in the second that is left"
