"""When the trainer is examined: at generations, ever more rarely; within a budget of CPU and memory; one at a time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from memwatch.core.decision.policy import Policy
from memwatch.core.engine.diagnostician import RECORDINGS_KEPT
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Action, Attached, Diagnosed, Event, ExaminationAsked, GenerationSeen, Notice, PhaseSeen
from memwatch.core.examination import (
    NOT_ASKED,
    AllocationProfile,
    AttributeSize,
    Diagnose,
    Examination,
    StackFrame,
    StackGrowth,
)
from memwatch.core.leaks.examination_cpu_budget import WINDOW_SECONDS
from memwatch.core.leaks.examination_schedule import BESIDE_SHARE, KILL_SECONDS, DiagnosisPolicy
from memwatch.core.measurements import Target
from memwatch.core.snapshot import Verdict
from support.examinations import examined
from support.watch import CALM, GB, TARGET, Script, growing, sampled

MB = 10**6
UNREADABLE = Examination(census_reason="no right to read it", names_reason="no right to read it")


class Watched:
    """An engine that receives samples; examinations end at once unless they are to hang."""

    def __init__(self, policy: DiagnosisPolicy | None = None, cpu: float = 0.1, hangs: bool = False) -> None:
        self.script = Script()
        self.script.says = replace(CALM, verdict=Verdict.GROWING)
        self.engine = Engine(Policy(act=False), lambda: self.script, diagnosis=policy or DiagnosisPolicy())
        self.cpu, self.hangs, self.t, self.used, self.limit = cpu, hangs, 0.0, 10.0 * GB, 100.0 * GB
        self.asked: list[Diagnose] = []
        self.recordings: list[Diagnose] = []
        self.profile: AllocationProfile | None = None
        self.notices: list[Notice] = []
        self.answer = examined(1).found
        self.feed(Attached(0.0, TARGET, "python main.py"))

    def feed(self, event: Event) -> list[Action]:
        actions = self.engine.feed(event)
        self.notices += [one for one in actions if isinstance(one, Notice)]
        for one in actions:
            if isinstance(one, Diagnose) and one.record_seconds:
                self.recordings.append(one)
                found = Examination(profile=self.profile, cpu_seconds=min(self.cpu, one.cpu_seconds))
                self.feed(Diagnosed(self.t, one, found))
            elif isinstance(one, Diagnose):
                self.asked.append(one)
                if not self.hangs:
                    cpu = min(self.cpu, one.cpu_seconds)  # It is throttled.
                    found = replace(self.answer, names=self.answer.census, cpu_seconds=cpu, names_cpu_seconds=cpu)
                    only_names = replace(found, census=None, census_reason=NOT_ASKED)
                    self.feed(Diagnosed(self.t, one, found if self.reads_whole(one) else only_names))
        return actions

    def reads_whole(self, asked: Diagnose) -> bool:
        most, objects = asked.whole_objects, self.answer.tracked_objects
        return most is None or (objects is not None and objects <= most)

    def look(self, seconds: float = 1.0) -> None:
        self.t += seconds
        self.feed(sampled(self.t, self.used, self.limit))

    def generations(self, count: int, first: int = 1, seconds: float = 100.0, phases: tuple[str, ...] = ()) -> None:
        for index in range(first, first + count):
            self.feed(GenerationSeen(self.t, index, 10**6))
            for phase in phases or ("",):
                if phase:
                    self.feed(PhaseSeen(self.t, phase))
                self.look(seconds / max(1, len(phases)))

    @property
    def at(self) -> list[float | None]:
        return [one.generation for one in self.asked if one.reason == "generation"]


def test_each_of_the_first_generations_then_ever_more_rarely():
    watched = Watched(cpu=0.0)
    watched.generations(200)
    assert watched.at[:12] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert 35 <= len(watched.at) <= 60 and max(b - a for a, b in pairwise(watched.at)) <= 20


def test_after_a_bar_of_loading_each_of_the_first_generations_counts_as_one():
    watched = Watched(cpu=0.0)
    for index in range(60):
        watched.feed(GenerationSeen(watched.t, 13 * index, 669, unit="step"))
        watched.look()
    loading = len(watched.asked)
    watched.feed(GenerationSeen(watched.t, 1, 25, recount=True))
    assert watched.engine.snapshot().diagnosis is None, "what was found while it loaded is of no generation"
    watched.look(100.0)
    watched.generations(9, first=2)
    assert [one.generation for one in watched.asked[loading:] if one.reason == "generation"] == list(range(1, 11))


def test_while_memory_stands_still_ever_more_rarely_until_it_grows():
    watched = Watched(cpu=0.0)
    watched.script.says = CALM
    watched.generations(100)
    assert len(watched.at) <= 10 and all(b >= 2 * a - 2 for a, b in pairwise(watched.at[4:]))
    watched.script.says = replace(CALM, verdict=Verdict.GROWING)
    watched.generations(40, first=101)
    assert sum(generation > 100 for generation in watched.at) >= 3, "what grows is looked for again"


def test_every_so_many_where_that_is_set():
    watched = Watched(DiagnosisPolicy(every_generations=5), cpu=0.0)
    watched.generations(16)
    assert watched.at == [1, 6, 11, 16]


def test_never_when_it_is_off():
    watched = Watched(DiagnosisPolicy(enabled=False))
    watched.generations(5, phases=("evaluate", "train"))
    assert watched.asked == []


def test_the_phases_of_the_first_generations_are_told_apart():
    watched = Watched(cpu=0.0)
    watched.generations(6, phases=("evaluate", "train"))
    assert [(one.reason, one.phase) for one in watched.asked[:4]] == [
        ("generation", "evaluate"),
        ("phase", "train"),
        ("generation", "evaluate"),
        ("phase", "train"),
    ]
    assert {one.generation for one in watched.asked if one.reason == "phase"} == {1, 2, 3, 4}


def test_without_generations_time_tells_when():
    watched = Watched(cpu=0.0)
    for _ in range(3600):
        watched.look()
    times = [one.t for one in watched.asked]
    assert {one.reason for one in watched.asked} == {"time"}
    assert times[:3] == [1.0, 21.0, 41.0] and 15 <= len(times) <= 60


@pytest.mark.parametrize("seconds", [1.0, 7.0, 45.0, 300.0])
@pytest.mark.parametrize("cpu", [0.1, 0.4, 1.4])
def test_in_no_minute_more_is_spent_than_the_share_of_a_core(cpu: float, seconds: float):
    watched = Watched(DiagnosisPolicy(cpu_share=0.05), cpu=cpu)
    for index in range(1, 40):
        watched.feed(GenerationSeen(watched.t, index, 10**6))
        for _ in range(int(seconds)):
            watched.used += 2 * MB
            watched.look()
    began = [(one.t, min(cpu, one.cpu_seconds)) for one in (*watched.asked, *watched.recordings)]
    assert began
    most = max(sum(cpu for t, cpu in began if first <= t < first + WINDOW_SECONDS) for first, _ in began)
    assert most <= 0.05 * WINDOW_SECONDS + 1e-9


def test_one_that_takes_more_than_a_minute_may_is_throttled_where_it_can_end_in_time() -> None:
    for eta, whole in ((4000.0, True), (60.0, False)):
        watched = Watched(cpu=0.3)
        watched.answer = replace(watched.answer, tracked_objects=7_500_000)  # 30 s of CPU, as many as before
        for index in range(1, 7):
            watched.script.says = growing(eta)
            watched.used += 500 * MB
            watched.generations(1, first=index)
        assert any(one.whole_objects is None for one in watched.asked) is whole
        refused = [one.text for one in watched.notices if one.event == "not_examined"]
        if not whole:  # told once
            assert len(refused) == 1 and refused[0].startswith(
                "no whole heap scan: it needs 30 s of CPU; at 5% of a core"
            )
            continue
        (first, *_) = [one for one in watched.asked if one.whole_objects is None]
        assert (
            first.cpu_seconds + sum(cpu for _, cpu in first.cpu_later)
            == pytest.approx((1.0 - BESIDE_SHARE) * 2.25, abs=0.002)
            and first.kill_seconds > 600
            and refused == []
        )


def test_beside_a_whole_heap_that_takes_minutes_names_are_looked_at_within_the_budget() -> None:
    watched, lasts = Watched(cpu=0.15), 300
    watched.answer = replace(watched.answer, tracked_objects=1_500_000)  # 6 s of CPU
    looked = replace(watched.answer, names=watched.answer.census, census=None, census_reason=NOT_ASKED)
    looked = replace(looked, cpu_seconds=0.15, names_cpu_seconds=0.15)
    whole: Diagnose | None = None
    while whole is None or watched.t < whole.t + lasts:
        if watched.t % 10 == 0:
            watched.feed(GenerationSeen(watched.t, watched.t // 10 + 1, 10**6))
        watched.used += 5 * MB
        watched.hangs, before = watched.t > 60.0, len(watched.asked)
        watched.look()
        for asked in watched.asked[before:] if watched.hangs else ():
            if whole is None and asked.whole_objects != 0:
                whole = asked
            else:
                watched.feed(Diagnosed(watched.t, asked, looked))
    beside = [one for one in watched.asked if one.t > whole.t]
    assert {one.whole_objects for one in beside} == {0}
    gaps = [later - before for before, later in pairwise([whole.t, *(one.t for one in beside), whole.t + lasts])]
    assert max(gaps) <= 0.75 * WINDOW_SECONDS
    of_whole = whole.cpu_seconds + sum(cpu for _, cpu in whole.cpu_later)
    for first in beside:
        looks = [one for one in beside if first.t <= one.t < first.t + WINDOW_SECONDS]
        assert of_whole + 0.15 * len(looks) <= 2.25 + 1e-9


def test_a_heap_that_has_grown_since_its_objects_were_counted_is_not_read_as_a_cheap_one():
    """As that of a program which was still importing."""
    watched = Watched()
    watched.answer = replace(watched.answer, tracked_objects=50_000)
    watched.generations(2)
    assert watched.asked[1].whole_objects is not None and 50_000 <= watched.asked[1].whole_objects < 400_000


def test_an_examination_that_fails_is_made_again_soon_and_then_ever_more_rarely() -> None:
    watched = Watched()
    watched.answer = Examination(census_reason="no CPython", names_reason="no CPython")
    for _ in range(20):
        watched.look()
    times = [one.t for one in watched.asked]
    assert times[:4] == [1.0, 3.0, 7.0, 15.0]


def test_where_names_explain_the_growth_the_whole_heap_is_not_read() -> None:
    for explained in (True, False):
        watched = Watched()
        watched.answer = replace(watched.answer, tracked_objects=400_000)  # 1.9 s of CPU
        for index in range(1, 7):
            held = {"__main__.Trainer.kept": index * 50 * MB if explained else MB}
            watched.answer = replace(examined(index, containers=held).found, tracked_objects=400_000)
            watched.used += 60 * MB
            watched.generations(1, first=index)
        assert any(watched.reads_whole(one) for one in watched.asked) is not explained
        (found,) = [one for one in watched.notices if one.event == "finding"]
        assert found.fields["cause"] == ("unbounded_container" if explained else "native_leak")


def test_arrays_that_fill_are_told_with_their_end_and_are_no_leak() -> None:
    watched = Watched()
    path = "stable_baselines3.common.buffers.ReplayBuffer.observations"
    watched.answer = replace(examined(1, filled={path: (100 * MB, 640 * MB)}).found, tracked_objects=10**6)
    watched.generations(1, seconds=5.0)
    watched.answer = replace(examined(1, filled={path: (498 * MB, 640 * MB)}).found, tracked_objects=10**6)
    watched.used += 398 * MB
    watched.look(5.0)
    (found,) = [one for one in watched.notices if one.event == "finding"]
    assert found.fields["cause"] == "allocated_buffer_fills" and found.text.startswith("BUFFER FILLS")
    assert "640.0 MB allocated, 498.0 MB filled; another 142.0 MB to come, then it ends" in found.text
    assert [one.reason for one in watched.asked] == ["generation", "fill"]


def test_the_diagnosis_shows_the_level_that_memory_grows_with() -> None:
    watched = Watched()
    path = "replay.ReplayBuffer.buffer"
    for index in range(1, 5):
        watched.answer = examined(index, containers={path: index * 50 * MB}, items={path: (index * 100, 5000)}).found
        watched.used += 50 * MB
        watched.generations(1, first=index)
    known = watched.engine.snapshot().diagnosis
    assert known is not None and [(one.value, one.capacity) for one in known.drivers] == [(400, 5000)]


def test_one_at_a_time_and_one_that_hangs_is_not_waited_for_for_ever():
    watched = Watched(hangs=True)
    watched.generations(2, seconds=50.0, phases=("evaluate", "train"))
    assert len(watched.asked) == 1
    watched.look(2 * KILL_SECONDS)
    assert [one.reason for one in watched.asked] == ["generation", "generation"]  # the second had waited


def test_a_generation_that_ends_during_an_examination_is_examined_after_it():
    watched = Watched(hangs=True)
    watched.generations(2, seconds=10.0)
    assert len(watched.asked) == 1
    watched.feed(Diagnosed(watched.t, watched.asked[0], Examination(names=watched.answer.census)))
    watched.look()
    assert [one.generation for one in watched.asked] == [1, 2]


def test_one_at_a_phase_is_not_begun_where_it_would_be_in_the_way_of_the_next_generation():
    watched = Watched(hangs=True)
    for generation in (1, 2, 3):
        watched.feed(GenerationSeen(watched.t, generation, 10))
        for second in range(100):
            if second in (30, 60, 90)[: 1 + generation]:
                watched.feed(PhaseSeen(watched.t, f"phase {second}"))
            watched.look()
            if watched.asked and watched.t == watched.asked[-1].t + 25.0:
                found = replace(watched.answer, names=watched.answer.census, cpu_seconds=0.1)
                watched.feed(Diagnosed(watched.t, watched.asked[-1], found))
    phases = [(one.generation, one.phase) for one in watched.asked if one.reason == "phase"]
    assert phases == [(1, "phase 60"), (2, "phase 30"), (2, "phase 60"), (3, "phase 30"), (3, "phase 60")]
    assert watched.at == [1, 2, 3] and [one.t % 100 for one in watched.asked if one.reason == "generation"] == [1, 1, 1]


def test_a_warning_asks_for_one():
    watched = Watched()
    watched.generations(1)
    watched.script.says = growing(60.0)
    for _ in range(100):
        watched.look()
    assert [one.reason for one in watched.asked] == [
        "generation",
        "warn",
    ]


def test_a_new_process_begins_anew_and_memwatch_started_again_goes_on():
    watched = Watched(cpu=0.0)
    watched.generations(3)
    known = watched.engine.snapshot().diagnosis
    assert known is not None and known.examinations == 3
    watched.feed(Attached(watched.t, TARGET, "python main.py"))
    assert watched.engine.snapshot().diagnosis == known
    watched.feed(Attached(watched.t, Target("boot", 101, 9), "python main.py"))
    assert watched.engine.snapshot().diagnosis is None


def test_a_new_process_has_a_budget_of_its_own():
    watched = Watched(cpu=2.9)
    watched.generations(9, seconds=1.0)
    count = len(watched.asked)
    assert count < 9
    watched.feed(Attached(watched.t, Target("boot", 101, 9), "python main.py"))
    watched.generations(1, first=4)
    assert len(watched.asked) == count + 1


def grow(watched: Watched, generations: int) -> None:
    for index in range(1, generations + 1):
        watched.answer = examined(
            index,
            containers={"__main__.Trainer.kept": index * 50 * MB},
            counts={"__main__.Loss": 16 * index},
            ways={("__main__.Loss", "__main__.Trainer.kept[i]"): 16 * index},
        ).found
        watched.used += 60 * MB
        watched.generations(1, first=index)


def test_a_finding_is_told_once_and_shown_as_long_as_it_holds():
    watched = Watched()
    grow(watched, 6)
    reported = [one for one in watched.notices if one.event == "finding"]
    assert len(reported) == 1 and reported[0].text.startswith(
        "LEAK FOUND: +50.0 MB/generation since generation 1; Loss 16 -> 48, held by"
    )
    (shown,) = watched.engine.snapshot().diagnosis.findings
    assert shown.count_after == 96 and shown.confidence > reported[0].fields["confidence"]
    assert watched.asked[-1].types == ("__main__.Loss",) and watched.asked[-1].paths == ("__main__.Trainer.kept",)
    watched.script.says = growing(10_000.0)
    watched.look(1000.0)
    assert watched.engine.snapshot().sentence.endswith("; holder: Trainer.kept")
    watched.script.says = CALM
    watched.generations(2, first=7)
    assert watched.engine.snapshot().diagnosis.findings == ()


def test_the_same_events_lead_to_the_same_conclusion_in_another_engine():
    watched, events = Watched(), []
    feed = watched.feed
    watched.feed = lambda event: (events.append(event), feed(event))[1]  # type: ignore[method-assign]
    grow(watched, 4)
    other = Engine(Policy(act=False), Script, diagnosis=DiagnosisPolicy())
    other.feed(Attached(0.0, TARGET, "python main.py"))
    for event in events:
        other.feed(event)
    assert other.snapshot().diagnosis == watched.engine.snapshot().diagnosis


def test_where_the_log_has_no_phases_it_is_examined_in_the_middle_of_the_first_generations() -> None:
    watched = Watched()
    for index in range(1, 8):
        watched.feed(GenerationSeen(watched.t, index, 100))
        for _ in range(100):
            watched.look()
    middles = [(one.generation, one.t) for one in watched.asked if one.reason == "middle"]
    assert [index for index, _ in middles] == [2, 3, 4] and all(t % 100 == 50 for _, t in middles)
    watched = Watched()
    watched.generations(8, phases=("evaluate", "train"))
    assert "middle" not in {one.reason for one in watched.asked}


# --- recordings ---


def rising(watched: Watched, generations: int, by: float = 2 * MB, seconds: float = 30.0) -> None:
    """So many generations, in which memory rises from one second to the next."""
    for index in range(1, 1 + generations):
        watched.feed(GenerationSeen(watched.t, index, 10**6))
        for _ in range(int(seconds)):
            watched.used += by
            watched.look()


def test_memory_that_rises_is_followed_for_a_generation() -> None:
    watched = Watched()
    watched.used += 50 * MB
    watched.look()
    assert watched.recordings == []  # before the first generation, a program loads what it needs
    rising(watched, 10)
    first, _, third, *_ = watched.recordings
    assert (first.reason, first.generation) == ("rise", 2) and first.cpu_seconds == pytest.approx(0.75)
    assert third.record_seconds == pytest.approx(33.0)
    spans = [b.t - a.t for a, b in pairwise(watched.recordings)]
    assert all(a.record_seconds <= span for a, span in zip(watched.recordings, spans, strict=False))
    assert spans == sorted(spans)


def test_memory_that_stays_is_not_followed() -> None:
    watched = Watched()
    rising(watched, 10, by=0.5 * MB)
    assert watched.recordings == []


def test_without_generations_it_is_followed_after_a_minute() -> None:
    watched = Watched()
    for _ in range(90):
        watched.used += 2 * MB
        watched.look()
    assert [one.generation for one in watched.recordings] == [None]
    assert 60 <= watched.recordings[0].t <= 80


def test_the_latest_recordings_are_told_together_beside_what_examinations_found() -> None:
    watched = Watched()
    step, other = StackFrame("step", "/app/a.py", 3), StackFrame("load", "/app/a.py", 9)
    watched.profile = AllocationProfile(20.0, 2.0, 12, (StackGrowth((other,), 8), StackGrowth((), 4)))
    rising(watched, 3, seconds=15)
    known = watched.engine.snapshot().diagnosis
    assert known is not None and known.latest.names == watched.answer.census
    assert [(one.frame, one.bytes) for one in known.lines] == [(other, 8)] and known.credits[1].frames == ()
    watched.profile = AllocationProfile(20.0, 2.0, 10, (StackGrowth((step,), 10),))
    rising(watched, 40)
    known = watched.engine.snapshot().diagnosis
    assert known is not None
    assert [(one.frame, one.bytes, one.share) for one in known.lines] == [(step, RECORDINGS_KEPT * 10, 1.0)]
    watched.feed(Diagnosed(watched.t, watched.recordings[-1], Examination(profile_reason="no CPython")))
    assert watched.engine.snapshot().diagnosis == known


# --- notices ---


def test_each_examination_is_told_and_is_a_row_of_the_table() -> None:
    watched = Watched()
    watched.feed(GenerationSeen(watched.t, 1, 10))
    watched.look()
    watched.answer = examined(2).found
    watched.feed(GenerationSeen(watched.t, 2, 10))
    watched.feed(PhaseSeen(watched.t, "train"))
    watched.look()
    first, second = [one for one in watched.notices if one.event == "examined"]
    assert (first.fields["reason"], first.fields["gen"], second.fields["gen"]) == ("generation", 1, 2)
    assert second.text.startswith("examined in generation 2, train: ") and " objects take " in second.text
    known = watched.engine.snapshot().diagnosis
    assert known is not None
    assert [(one.generation, one.phase) for one in known.moments] == [(1, None), (2, "train")]
    assert known.moments[1].python_bytes == second.fields["python_bytes"]
    watched.answer = UNREADABLE
    watched.feed(GenerationSeen(watched.t, 3, 10))
    watched.look()
    assert watched.notices[-1].text == "not examined: no right to read it"


def test_what_hinders_one_examination_after_the_other_is_told_once_and_who_asks_is_answered() -> None:
    watched = Watched()

    def reported() -> list[str]:
        return [one.text for one in watched.notices if one.event == "not_examined"]

    watched.answer = UNREADABLE
    for index in range(1, 5):
        watched.feed(GenerationSeen(watched.t, index, 10))
        watched.look()
    assert len(watched.asked) > 2 and reported() == ["not examined: no right to read it"]
    watched.feed(ExaminationAsked(watched.t))
    watched.look()
    assert len(reported()) == 2
    for answer in (examined(2).found, UNREADABLE):
        watched.answer = answer
        watched.feed(ExaminationAsked(watched.t))
        watched.look()
    watched.feed(GenerationSeen(watched.t, 5, 10))
    watched.look()
    assert len(reported()) == 3


def test_who_asks_gets_an_examination_as_soon_as_the_budget_permits() -> None:
    watched = Watched(cpu=2.9)
    watched.generations(1)
    count = len(watched.asked)
    watched.feed(ExaminationAsked(watched.t))
    watched.look()
    watched.feed(ExaminationAsked(watched.t))
    watched.look()
    assert [one.reason for one in watched.asked[count:]] == ["request"]
    for _ in range(int(WINDOW_SECONDS)):
        watched.look()
    assert [one.reason for one in watched.asked[count:]] == ["request", "request"]


# --- containers in the heap that fill up, and the forecast ---


def filling(capacity: int | None, count: int = 6) -> Engine:
    """Generations of 100 s, each of which adds 1,000 transitions of 10 MB to a buffer that the log does not mention."""
    engine = Engine(Policy(act=False), diagnosis=DiagnosisPolicy())
    engine.feed(Attached(0.0, TARGET, "python main.py"))
    path, items = "__main__.Trainer.replay_buffer", 0
    for index in range(1, count + 1):
        begin = 100.0 * index
        engine.feed(GenerationSeen(begin, index, 40))
        for second in range(100):
            t, items = begin + second, 1000 * (index - 1) + 10 * second
            for one in engine.feed(sampled(t, 2 * GB + 10 * MB * items, 200 * GB)):
                if isinstance(one, Diagnose) and not one.record_seconds:
                    seen = examined(index, t=t, containers={path: 10 * MB * items}, items={path: (items, capacity)})
                    engine.feed(replace(seen, asked=one, found=replace(seen.found, names=seen.found.census)))
    return engine


def test_a_buffer_in_the_heap_that_fills_to_what_fits_is_no_leak_and_ends_there() -> None:
    (bounded,) = filling(15_000).snapshot().resources
    (endless,) = filling(None).snapshot().resources
    assert endless.verdict is Verdict.LEAK and endless.forecast is not None and endless.forecast.finishes is False
    assert bounded.verdict is Verdict.GROWING and bounded.forecast is not None and bounded.forecast.finishes is True


def test_a_buffer_in_the_heap_that_cannot_fit_meets_the_limit_before_it_is_full() -> None:
    (view,) = filling(50_000).snapshot().resources
    assert view.forecast is not None and view.forecast.finishes is False
    assert view.forecast.generation == pytest.approx(20.8, abs=1.5)


def test_tracked_attributes_are_told_growing_or_not_under_one_name() -> None:
    path, engine = (
        "__main__.Trainer.kept",
        Engine(Policy(act=False), diagnosis=DiagnosisPolicy(track=("Trainer.kept", "Trainer.rules", "Trainer.gone"))),
    )
    engine.feed(Attached(0.0, TARGET, "python main.py"))
    for index in range(1, 5):
        engine.feed(GenerationSeen(100.0 * index, index, 10))
        asked = next(one for one in engine.feed(sampled(100.0 * index, index * GB)) if isinstance(one, Diagnose))
        assert asked.paths[:3] == ("Trainer.kept", "Trainer.rules", "Trainer.gone")
        seen = examined(index, containers={path: 6 * MB * index})
        assert seen.found.census is not None
        tracked = (
            AttributeSize("Trainer.kept", 1, 6 * MB * index, full=path),
            AttributeSize("Trainer.rules", 1, 1000, full="__main__.Trainer.rules"),
            AttributeSize("Trainer.gone", 0, None, reason="nothing at .gone"),
        )
        census = replace(seen.found.census, tracked=tracked)
        engine.feed(replace(seen, asked=asked, found=replace(seen.found, census=census)))
    known = engine.snapshot().diagnosis
    assert known is not None
    assert [(one.name, one.after, one.per_unit, one.steps) for one in known.tracked] == [
        (path, 24 * MB, 6 * MB, 3),
        ("__main__.Trainer.rules", 1000, 0.0, 0),
    ]
    assert [one.name for one in known.containers] == [path]
    assert path in [one.growth.name for one in known.findings], "above the threshold, though 0.6 % of the growth"
