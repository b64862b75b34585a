"""The loop with everything around it faked: what fails stops nothing and is told once; what is decided is done once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from memwatch.app.interrupter import Interrupter
from memwatch.app.watch_loop import WatchLoop
from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import (
    ArmedChanged,
    Attached,
    Cause,
    CheckpointSeen,
    Event,
    Exited,
    GaveUp,
    GenerationSeen,
    Notice,
    Sampled,
    Signalled,
    Signalling,
    SourceChanged,
)
from memwatch.core.interfaces import Sink
from memwatch.core.measurements import Limit, Sample, UnavailableSource
from memwatch.core.snapshot import Snapshot, WatchState
from memwatch.errors import SourceError, TargetGoneError
from memwatch.outputs.trackers.tracker_proxy import TrackerProxy, TrackerWorkerSpec
from memwatch.outputs.trackers.tracker_records import TrackerRecords
from support.watch import GB, TARGET, Script, growing, sampled
from support.world import HandClock

ATTACHED = Attached(0.0, TARGET, "python main.py")


class Samples:
    """Memory as a test sets it; `fail` names sources that cannot be read."""

    def __init__(self) -> None:
        self.used, self.unread, self.during = 50 * GB, tuple[UnavailableSource, ...](), lambda: None
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
        self.powerless: str | None = None

    def has_exited(self) -> bool:
        return self.is_gone

    def collect_exit_events(self, t: float, before: Snapshot) -> Sequence[Event]:
        self.before = before
        return [*self.found, Exited(t, Cause.COMPLETED, ("exit status 0",), 0)]

    def observe_event(self, event: Event) -> None:
        self.seen.append(event)


class FakeSignaller:
    def __init__(self) -> None:
        self.sent, self.error, self.before = list[str](), None, lambda: None

    def send_signal(self, signal_name: str) -> None:
        self.before()
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
        self.turns, self.idle, self.wants, self.asks = 0, list[float](), True, False  # idle: nothing was told with it

    def on_loop_iteration(self) -> bool:
        self.turns += 1
        return self.wants

    def wants_snapshot(self) -> bool:
        asks, self.asks = self.asks, False
        return asks

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        if self.error is not None:
            raise self.error
        self.notices += notices
        self.idle += [] if notices else [snapshot.t]

    def on_watch_end(self, snapshot: Snapshot) -> None:
        self.closed.append(snapshot)
        if self.error is not None:
            raise self.error

    def named(self, event: str) -> list[Notice]:
        return [one for one in self.notices if one.event == event]


class FakeJournal:
    def __init__(self) -> None:
        self.failure: str | None = None
        self.loss: str | None = None
        self.events: list[Event] = []
        self.notices: list[Notice] = []
        self.waits: list[float] = []

    def append(self, events: Sequence[Event], notices: Sequence[Notice], wait_seconds: float = 0.0) -> None:
        self.events += events
        self.notices += notices
        self.waits.append(wait_seconds)


class FakeWaker:
    """Remembers what it was told to look out for."""

    def __init__(self) -> None:
        self.armed, self.rings, self.rung = list[Sequence[int]](), 0, False

    def set_thresholds(self, cgroup: object, limit: Limit, headrooms: Sequence[int]) -> None:
        self.armed.append(headrooms)

    def consume_wakeup(self) -> bool:
        self.rings += 1
        return self.rung


class Bench:
    """A daemon of fakes, one second a tick."""

    def __init__(
        self,
        *,
        dry_run: bool = False,
        choose: Callable[[], str] = lambda: "SIGINT",
        source: FakeSource | None = None,
        sinks: Sequence[Sink] = (),
        on_exit: Callable[[Snapshot], Sequence[Event]] = lambda _: (),
        interval: float = 1.0,
    ) -> None:
        self.clock, self.samples, self.trainer = HandClock(), Samples(), FakeTrainer()
        self.signaller, self.source, self.journal = FakeSignaller(), source or FakeSource(), FakeJournal()
        self.sink, self.other, self.waker = FakeSink(), FakeSink("other"), FakeWaker()
        self.script = Script()
        self.slept: list[float] = []
        self.nap = 1.0  # seconds that each sleep lasts
        self.wakes = True  # each sleep ends for a reason
        self.each: Callable[[], object] = lambda: None
        self.engine = Engine(Policy(checkpoint_seconds=10.0, save_timeout_seconds=20.0), lambda: self.script)
        self.daemon = WatchLoop(
            clock=self.clock,
            engine=self.engine,
            read_sample=self.samples.sample,
            trainer=self.trainer,
            interrupter=Interrupter(
                self.signaller, choose, unreachable=lambda: self.trainer.powerless, dry_run=dry_run
            ),
            sources=[self.source],
            sinks=[self.sink, self.other, *sinks],
            recorder=self.journal,
            waker=self.waker,
            on_exit=on_exit,
            interval=lambda: interval,
        )

    def run(self, seconds: int, then: Callable[[], object] = lambda: None) -> Exited | None:
        """Watch until the trainer is gone, or for `seconds`."""

        def sleep(wait: float) -> bool:
            self.slept.append(wait)
            self.clock.t += self.nap
            self.each()
            return self.wakes

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
    bench.samples.unread = (
        UnavailableSource("nvml", "no driver", absent=True),
        UnavailableSource("cgroup", "not mounted"),
    )
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


@pytest.mark.parametrize("code", ["import time; time.sleep(60)", "raise SystemExit(1)", "no Python"])
def test_a_tracker_that_hangs_or_crashes_delays_no_look_and_is_told(code: str) -> None:
    seconds = HandClock()
    relay = TrackerProxy(TrackerWorkerSpec("wandb", "run-1", ""), TrackerRecords(), code=code, monotonic=seconds.now)
    bench = Bench(sinks=[relay])
    bench.engine.feed(ATTACHED)
    took = []
    for index in range(200):
        seconds.t += 1.0
        bench.source.queue = [GenerationSeen(bench.clock.t, index)]
        begun = time.monotonic()
        bench.tick()
        took.append(time.monotonic() - begun)
        time.sleep(0.001)
    relay.kill()
    usual, *_, most = sorted(took)[180:]  # a turn that starts a process, of which there are nine, waits for its exec
    assert usual < 0.02 and most < 1.0, (usual, most)
    assert kinds(bench.trainer.seen).count(Sampled) == 200
    told = [one for one in changes(bench) if one[0] == "wandb"]
    assert told and not any(ok for _, ok, _ in told), told  # with another reason, where a busy machine starts it late


def test_a_failing_journal_stops_nothing_and_is_told_once(bench: Bench) -> None:
    bench.journal.failure = "disk full"
    bench.tick(3)
    bench.journal.loss = "records are lost"
    bench.tick(3)
    bench.journal.failure = bench.journal.loss = None
    bench.tick(2)
    assert changes(bench) == [
        ("history", False, "disk full"),
        ("backlog", False, "records are lost"),
        ("history", True, ""),
        ("backlog", True, ""),
    ]
    assert [one.fields["source"] for one in bench.sink.named("source_failed")] == ["history", "backlog"]


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
    assert bench.engine.snapshot().state is WatchState.INTERRUPTING
    for seen in (bench.trainer.seen, bench.journal.events):
        assert [one.signal for one in seen if isinstance(one, Signalled)] == ["SIGINT"]
    assert [one.event for one in bench.sink.notices if one.event in ("interrupt", "signalled")] == [
        "interrupt",
        "signalled",
    ], "told in the order in which it happened"


def test_what_is_about_to_be_sent_is_kept_before_it_is_with_all_that_led_to_it(bench: Bench) -> None:
    kept: list[tuple[list[Event], list[str]]] = []
    bench.signaller.before = lambda: kept.append(
        (bench.journal.events[:], [notice.event for notice in bench.journal.notices])
    )
    bench.leak()
    bench.tick(40)
    assert bench.signaller.sent == ["SIGINT", "SIGTERM"]
    for (events, told), name in zip(kept, bench.signaller.sent, strict=True):
        *_, sample, planned = events
        assert isinstance(sample, Sampled) and planned == Signalling(sample.t, name)
        assert told[-1] == ("interrupt" if name == "SIGINT" else "escalated")
    assert bench.journal.events == bench.trainer.seen, "each once, in their order"
    assert [one.event for one in bench.journal.notices] == [one.event for one in bench.sink.notices]


def test_a_dry_run_sends_nothing_and_says_what_it_would() -> None:
    bench = Bench(dry_run=True)
    bench.engine.feed(ATTACHED)
    bench.leak()
    bench.tick(30)
    assert bench.signaller.sent == []
    assert [(one.signal, one.dry_run) for one in bench.trainer.seen if isinstance(one, Signalled)] == [("SIGINT", True)]
    assert bench.engine.snapshot().state is not WatchState.INTERRUPTING


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
    assert bench.engine.snapshot().state is WatchState.ESCALATED


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
    assert kinds(bench.journal.events) == [Attached, ArmedChanged, Sampled, Sampled, Sampled]


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


def test_a_state_that_nobody_wants_is_shown_only_with_something_to_tell() -> None:
    bench = Bench()
    bench.sink.wants = bench.other.wants = False

    def each() -> None:
        bench.source.error = SourceError("gone") if bench.clock.t == 8.0 else None
        bench.other.wants = bench.clock.t == 6.0

    bench.each = each
    bench.run(12)
    assert bench.sink.turns == 13, "all are told that it turns"
    assert bench.sink.idle == [6.0], "one of two wants it"
    assert {"source_failed", "source_recovered"} <= {one.event for one in bench.sink.notices}


def test_who_asks_between_two_ticks_sees_the_state_and_causes_no_look() -> None:
    bench = Bench()
    bench.sink.wants = bench.other.wants = False
    bench.nap = 0.5

    def each() -> None:
        bench.sink.asks = bench.clock.t == 5.5

    bench.each = each
    bench.run(8)
    assert bench.sink.idle == [5.0], "the state after the latest event"
    times = [event.t for event in bench.journal.events if isinstance(event, Sampled)]
    assert 5.0 in times
    assert 4.5 in times
    assert 5.5 not in times


@pytest.mark.parametrize(("interval", "wait"), [(0.25, 0.75), (1.0, 0.0), (5.0, 0.0)])
def test_samples_wait_for_others_no_longer_than_a_kill_may_cost(interval: float, wait: float) -> None:
    bench = Bench(interval=interval)
    bench.run(4)
    assert set(bench.journal.waits[2:]) == {wait}


# --- between two ticks --------------------------------------------------------------------------------------------


def test_what_wakes_it_early_is_a_look_at_memory_alone() -> None:
    bench = Bench()
    bench.nap = 0.25
    bench.run(2)
    assert bench.source.polls == 2, "the log is read once a second"
    assert kinds(bench.journal.events).count(Sampled) == 8
    assert bench.slept[:5] == [1.0, 0.75, 0.5, 0.25, 1.0], "and the next tick is as due as it was"


def test_a_look_between_two_ticks_that_decides_acts_at_once_and_is_shown() -> None:
    bench = Bench()
    bench.nap = 0.25

    def burst() -> None:
        if bench.clock.t > 61:
            bench.samples.used = min(bench.samples.used + 5 * GB // 2, 100 * GB)

    bench.each = burst
    bench.run(67)
    assert bench.signaller.sent == ["SIGINT"]
    (t,) = [event.t for event in bench.journal.events if isinstance(event, Signalled)]
    assert t % 1.0 != 0.0, "not at a tick"
    assert "interrupt" in [notice.event for notice in bench.sink.notices]


def test_a_checkpoint_that_begins_between_two_ticks_is_not_cut_short() -> None:
    bench = Bench()
    bench.nap = 0.375

    def leak() -> None:
        if bench.clock.t == 62.625:
            bench.leak()
        if bench.clock.t == 63.75:  # the second look that says so, 0.75 s after a tick
            bench.source.queue = [CheckpointSeen(bench.clock.t, "writing", "log: saving")]

    bench.each = leak
    bench.run(70)
    assert bench.signaller.sent == []
    assert bench.sink.named("deferred")
    bench.source.queue = [CheckpointSeen(70.0, "saved", "log: saved")]
    bench.run(75)
    assert bench.signaller.sent == ["SIGINT"]


def test_the_waker_is_told_what_to_look_out_for_now_and_then_and_when_it_rang() -> None:
    bench = Bench()
    bench.run(22)
    assert (bench.waker.rings, len(bench.waker.armed)) == (22, 3), "every 10 s"
    assert bench.waker.armed[-1] == bench.engine.wake_thresholds()[2]
    bench.waker.rung = True
    bench.script.rate = 100 * GB
    bench.samples.used = 90 * GB
    bench.run(23)
    assert len(bench.waker.armed) == 4


def test_a_sleep_that_ended_by_itself_is_followed_by_no_question_why() -> None:
    bench = Bench()
    bench.wakes = False
    bench.each = lambda: setattr(bench.trainer, "is_gone", bench.clock.t >= 21)
    assert bench.run(23) is None, "its end would have ended the sleep"
    assert (bench.waker.rings, len(bench.waker.armed)) == (1, 3), "armed every 10 s all the same"
    bench.wakes = True
    assert bench.run(25) is not None


def test_whether_a_signal_would_arrive_is_told_at_first_and_at_each_change() -> None:
    bench = Bench()
    bench.run(3)
    bench.trainer.powerless = "no permission to signal it"
    bench.run(13)
    bench.trainer.powerless = None
    bench.run(23)
    told = [(event.armed, event.reason) for event in bench.journal.events if isinstance(event, ArmedChanged)]
    assert told == [(True, ""), (False, "no permission to signal it"), (True, "")]
    assert [n.event for n in bench.sink.notices if "armed" in n.event] == ["armed", "unarmed", "armed"]


def test_a_dry_run_is_not_armed() -> None:
    bench = Bench(dry_run=True)
    bench.run(2)
    assert bench.engine.snapshot().unarmed == "a dry run: nothing is sent"


# --- what follows the end --------------------------------------------------------------------------------------------


def test_what_an_end_leads_to_is_kept_and_told_last() -> None:
    ends: list[Snapshot] = []

    def on_exit(end: Snapshot) -> Sequence[Event]:
        ends.append(end)
        return [GaveUp(end.t, 1, "no use")]

    bench = Bench(on_exit=on_exit)
    bench.each = lambda: setattr(bench.trainer, "is_gone", True)
    assert bench.run(5) is not None
    [end] = ends
    assert end.exited is not None, "the end is known when it is asked"
    assert kinds(bench.journal.events)[-2:] == [Exited, GaveUp]
    assert [one.event for one in bench.sink.notices][-2:] == ["exited", "gave_up"]
    assert len(bench.sink.closed) == 1


def test_a_watch_that_was_stopped_leads_to_nothing() -> None:
    bench = Bench(on_exit=lambda end: [GaveUp(end.t, 1, "no use")])
    assert bench.run(3) is None
    assert not bench.sink.named("gave_up")
