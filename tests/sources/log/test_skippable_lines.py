"""Lines that lead nowhere are passed over: what is found is the same as when each line is read."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memwatch.core.events import GenerationSeen
from memwatch.sources.log.log_tail import LogSegmenter
from memwatch.sources.log.marker_parser import MarkerFinder
from memwatch.sources.log.marker_presets import Preset
from memwatch.sources.log.primary_counter import INNER_LOOP_MOVES, LocatedEvent
from memwatch.sources.log.skippable_lines import SkippableLines, line_template, pattern_for_any_digits
from support.logs import TrainerLog, deep_learning, further, hostile, logs_of, plain, reinforcement, search, wrapped
from support.presets import packaged_presets
from support.stopwatch import CpuStopwatch

LOGS = [
    log
    for room in (deep_learning, reinforcement, search, plain, hostile, further, wrapped)
    for log in logs_of(vars(room))
]


def read(
    raw: bytes, skippable: SkippableLines, cuts: list[int], *presets: Preset
) -> tuple[list[LocatedEvent], MarkerFinder, int]:
    """All hits, what is known at the end, and how many lines were read."""
    finder = MarkerFinder(presets or packaged_presets(), skippable)
    segmenter = LogSegmenter(skippable_lines=skippable)
    hits: list[LocatedEvent] = []
    lines = 0
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        for piece in segmenter.split(raw[start:end]):
            lines += 1
            hits += finder.find_markers(piece.data, piece.byte, piece.line, 0.0)
    for piece in segmenter.flush():
        hits += finder.find_markers(piece.data, piece.byte, piece.line, 0.0)
    return hits, finder, lines


def found(raw: bytes, skippable: SkippableLines, cuts: list[int]) -> tuple[object, ...]:
    hits, finder, _ = read(raw, skippable, cuts)
    return hits, finder.unit, finder.total, finder.preset, finder.counter_changes


def forgetful() -> SkippableLines:
    """Remembers nothing: each line is read."""
    return SkippableLines(max_bytes=0)


# --- the same as line by line ---

_CLOCKS = [
    "Generation {i}/50\n", "2026-01-02 10:00:00,000 - INFO - Generation {i} of 50\n", "Epoch {i}: loss=0.{i}\n",
    "=== round {i} ===\n", "| iterations | {i} |\n-----\n", "epoch  loss  time\n{i}  0.5  0.1\n", "did part {i}\n",
    "\rEpoch {i}:  13%|#3  | 5/38 [00:00<00:00, 4.1it/s]", "Fold {i}/9\n", "[rank1]: epoch {i}\n[rank0]: epoch {i}\n",
]  # fmt: skip
_LINES = [
    "env step {n} reward=0.{n} worker {w}\n", "cache {w}/9 hit\n", "[E{w} B{n}] L=0.5\n", "MemoryError\n", "note {n}\n",
    "Buffer: {n} / 50\n", "Saving model a{w}.pt\n", "saved a.h{w}\n", "saved model to b.h5\n", "Evolving Population\n",
    "Validation: {n}%|\n", "Validation: 100%|\n", "best iteration is:\n", "[{w}]\tt's l2: 0.5\n", "\r\n", "\0\0x {n}\n",
    "\x1b[3{w}mbatch {n}/50\x1b[0m\n", "[rank{w}]: step {n}\n", "│ {n} │\n", "epochs: {n}\n", "-----\n", "gen  best\n",
    "{n}  0.5\n", "no two alike {h}\n", "\rbatch:  {w}%|#| {w}/9 [00:01]", "1{n} 0.1\n", "epoch {w} batch {n}\n",
]  # fmt: skip


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """A clock, and lines of several kinds between its markers, often enough to be passed over."""
    clock = draw(st.sampled_from(_CLOCKS))
    kinds = draw(st.lists(st.sampled_from(_LINES), min_size=1, max_size=4))
    often = draw(st.integers(1, 60))
    text, n = "", draw(st.integers(0, 995))
    for i in range(draw(st.integers(1, 8))):
        text += clock.format(i=i + draw(st.sampled_from([0, 0, 0, 0, -2])))
        for _ in range(often):
            n += 1
            text += (
                draw(st.sampled_from(kinds)).format(n=n, w=n % 7, h=f"{n * n:x}")
                if n % 9
                else kinds[0].format(n=n, w=3, h="")
            )
    return text.encode()


@settings(max_examples=100, deadline=None)
@given(logs(), st.data())
def test_what_is_passed_over_makes_no_difference(raw: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    expected = found(raw, forgetful(), [])
    assert found(raw, SkippableLines(), cuts) == expected
    assert found(raw, SkippableLines(clear_after_lines=50), cuts) == expected
    assert found(raw, SkippableLines(max_bytes=600), cuts) == expected


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from([b"\n", b"\r", b"\0", b"epoch 1\n", b"a 1\n", b"1/9"]), st.binary(max_size=9)))
)
@example([b"\0\r\n", b"\0", b"\r\r", b"a 1\n", b"\0a 2\n"])
def test_any_bytes_in_any_chunks_are_the_same(parts: list[bytes]) -> None:
    raw = b"".join(parts) * 3
    expected = found(raw, forgetful(), [])
    assert found(raw, SkippableLines(), []) == expected
    assert found(raw, SkippableLines(clear_after_lines=3), list(range(1, len(raw)))) == expected


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_logs_of_many_programs_read_again_and_again(log: TrainerLog) -> None:
    raw = (log.raw + b"\n") * 6
    expected = found(raw, forgetful(), [])
    assert found(raw, SkippableLines(), list(range(777, len(raw), 777))) == expected


# --- what is passed over ---


def between(lines: int, clock: str = "2026-01-02 10:00:00 - INFO - Generation {}/9\n") -> bytes:
    """Markers far apart, and lines that count, measure and repeat between them."""
    filler = "".join(
        f"10:{i % 60:02} env step {i} loss=0.{i * 7919 % 10_000:04} worker {i % 16}\n" for i in range(lines)
    )
    return "".join(clock.format(g) + filler for g in (1, 2, 3)).encode()


def test_most_lines_are_never_read() -> None:
    hits, _, lines = read(between(20_000, "run 7: Generation {}/9\n"), SkippableLines(), [])
    assert [hit.event.index for hit in hits if isinstance(hit.event, GenerationSeen)] == [1, 2, 3]
    assert (
        INNER_LOOP_MOVES < lines < 2_500
    )  # of 60,000: each of 16 workers counts its steps until it is known for an inner loop


def test_lines_that_name_the_clock_are_read_when_its_number_changes() -> None:
    raw = "".join(f"Train Epoch: {i // 3000} [{i % 3000:4}/3000]\tLoss: 0.{i * 31 % 1000:03}\n" for i in range(12_000))
    hits, finder, lines = read(raw.encode(), SkippableLines(), [])
    assert finder.unit == "epoch"
    assert sorted({hit.event.index for hit in hits if hit.event.unit == "epoch"}) == [0, 1, 2, 3]
    assert lines < 9_000  # the bracket's number is taken for the clock until the epoch moves


def test_a_log_in_utf_16_is_read_as_any_other() -> None:
    bar = "".join(
        f" {i // 3}%|#    | {i}/300 [00:{i % 60:02}<10:00,  1.11it/s]\r\n" for i in [*range(101), *range(100, 121)]
    )
    assert read(bar.encode("utf-16"), SkippableLines(), [])[0][-1].event == GenerationSeen(
        0.0, 120, 300, "step", "start"
    )


def test_a_clock_that_shows_up_late_is_found() -> None:
    noise = "".join(f"request {i * 7919 % 997} served in 0.{i % 10} s\n" for i in range(5_000))
    hits, _, lines = read((noise + "".join(f"Epoch {i}/9\n" + noise for i in (1, 2))).encode(), SkippableLines(), [])
    assert [hit.event.index for hit in hits] == [1, 2]
    assert lines < 400


def test_a_line_with_the_form_of_one_that_said_nothing_is_still_read_if_its_digits_matter() -> None:
    raw = b"Generation 1/9\n" + b"wrote a.h4\n" * 100 + b"wrote a.h5\nValidation: 120%|\nValidation: 100%|\n"
    kinds = [type(hit.event).__name__ for hit in read(raw, SkippableLines(), [])[0]]
    assert kinds == ["GenerationSeen", "CheckpointSeen", "PhaseSeen", "PhaseSeen"]


def test_a_rule_of_the_user_that_tells_digits_apart_is_asked_for_each_line() -> None:
    rules = [
        {"kind": "generation", "pattern": r"at (?P<index>[1-3])\b"},
        {"kind": "phase", "phase": "x", "pattern": "7$"},
    ]
    mine = Preset.from_mapping({"unit": "generation", "rules": rules}, "mine", user=True)
    raw = b"".join(b"at %d\n" % (i % 10) + b"value %d\n" % (i % 10) for i in range(40))
    assert read(raw, SkippableLines(), [], mine)[0] == read(raw, forgetful(), [], mine)[0]
    assert sum(hit.event == hit.event for hit in read(raw, SkippableLines(), [], mine)[0]) >= 12


def test_what_is_remembered_is_bounded() -> None:
    skippable = SkippableLines(max_bytes=50_000)
    read(b"".join(b"%x no two of these lines are alike\n" % (i * i) for i in range(5_000)), skippable, [])
    read(b"".join(b"epoch %d %x\n" % (i % 3, i * i) for i in range(5_000)), skippable, [])
    assert sum(map(len, [*skippable.irrelevant, *skippable.conditional])) <= 50_000


# --- forms ---


@pytest.mark.parametrize(
    ("pattern", "line", "other"),
    [
        (r"^a [0-9]{1,3}\b", "a 12", "a 98"),
        (r"a\d+", "a1", "a7"),
        (r"h5$", "x.h5", "x.h4"),
        (r"(?i)E1[0-9_]", "e1_", "e3_"),
    ],
)
def test_a_pattern_for_all_lines_of_a_form(pattern: str, line: str, other: str) -> None:
    own = re.compile(pattern)
    general = pattern_for_any_digits(own)
    assert own.search(line) and line_template(line.encode()) == line_template(other.encode())
    assert general is not None and general.search(other)
    assert (general is own) == bool(own.search(other))


@pytest.mark.parametrize(
    "pattern", [r"[1-9]", r"(\d)/\1", r"\x35", r"(?P<a>\d)(?P=a)", r"a(?!5)", r"[^5]", r"(a)(?(1)b|c)"]
)
def test_a_pattern_that_tells_digits_apart_is_known(pattern: str) -> None:
    assert pattern_for_any_digits(re.compile(pattern)) is None


def test_nearly_all_packaged_rules_treat_digits_alike() -> None:
    patterns = [rule.pattern for preset in packaged_presets() for rule in preset.rules]
    apart = [pattern.pattern for pattern in patterns if pattern_for_any_digits(pattern) is not pattern]
    assert len(apart) <= 5
    assert all(pattern_for_any_digits(pattern) for pattern in patterns)


# --- the cost ---


@pytest.mark.parametrize("raw", [b"\r" * 2**20, b"\0" * 2**20, b"x" * 2**20, b"a\r" * 2**19, bytes(range(256)) * 2**12])
def test_a_hostile_megabyte_takes_a_bounded_time(raw: bytes) -> None:
    stopwatch = CpuStopwatch()
    read(raw, SkippableLines(), [])
    assert stopwatch.seconds < 5.0  # at most 0.6 s


def test_a_line_that_leads_nowhere_costs_next_to_nothing() -> None:
    raw = between(20_000)
    skippable = SkippableLines()
    read(raw, skippable, [])
    stopwatch = CpuStopwatch()
    assert len(list(LogSegmenter(skippable_lines=skippable).split(raw))) < 10
    assert stopwatch.seconds / 60_000 < 5e-6  # about 0.2 us; reading one costs 70
