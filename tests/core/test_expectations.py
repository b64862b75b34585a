"""What a user expects, as text, and when it is broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Attached, GenerationSeen, Notice
from memwatch.core.expectations import Expectations, parse_expectation
from memwatch.core.snapshot import GenerationRow
from support.examinations import examined
from support.watch import TARGET, Script, sampled

GB = 10**9


def row(
    index: float, delta: float = 0.0, end: float = 50.0, seconds: float = 60.0, partial: bool = False
) -> GenerationRow:
    start, last = round((end - delta) * GB), round(end * GB)
    return GenerationRow(index, 0, 0.0, seconds, start, last, last, (), partial)


def met(text: str, *rows: GenerationRow, resource: str = "host") -> bool | None:
    expected = Expectations([parse_expectation(text)])
    expected.update_generations(resource, rows)
    return expected.known[0].met


def counted(text: str, **counts: int) -> bool | None:
    expected = Expectations([parse_expectation(text)])
    expected.update_type_counts({name.replace("__", "."): count for name, count in counts.items()})
    return expected.known[0].met


@pytest.mark.parametrize(
    ("text", "delta", "is_met"),
    [
        ("growth < 5GB/generation", 4.9, True),
        ("growth < 5GB/generation", 5.0, False),
        ("growth <= 5 GB / epoch", 5.0, True),
        ("growth in 1..2GB", 1.5, True),
        ("growth in 1..2GB", 2.5, False),
        ("growth in 500MB..2GB", 0.4, False),
        ("growth > -1GB", -0.5, True),
        ("growth in -1..1GB", -1.5, False),
        ("growth == 0", 0.0, True),
    ],
)
def test_growth(text: str, delta: float, is_met: bool):
    assert met(text, row(3, delta)) is is_met


def test_a_generation_that_was_seen_in_part_tells_nothing_of_its_growth():
    assert met("growth < 5GB", row(3, 9, partial=True)) is None
    assert met("growth < 5GB", row(3, 9), resource="gpu0") is None


@pytest.mark.parametrize(
    ("text", "index", "end", "is_met"),
    [
        ("rss < 50GB at generation 15", 15, 49.9, True),
        ("rss < 50GB at generation 15", 15, 50.1, False),
        ("rss < 50GB at generation 15", 14, 99.0, None),
        ("memory <= 50GB", 1, 50.0, True),
        ("memory in 40..50GB at epoch 2", 2, 39.0, False),
    ],
)
def test_level(text: str, index: int, end: float, is_met: bool | None):
    assert met(text, row(index, 0, end)) is is_met


def test_the_level_of_a_gpu_is_its_own():
    assert met("gpu0 < 30GB", row(1, 0, 31), resource="gpu0") is False
    assert met("gpu0 < 30GB", row(1, 0, 31)) is None


@pytest.mark.parametrize(
    ("index", "delta", "is_met"),
    [(1, 1.5, True), (5, 2.5, False), (6, 0.7, True), (10, 1.1, False), (11, 0.4, True), (400, 0.5, False)],
)
def test_growth_by_ranges_of_generations(index: int, delta: float, is_met: bool):
    text = "generations 1-5: +1..2GB each; 6-10: +0.5..1GB; 11+: < 0.5GB"
    assert met(text, row(index, delta)) is is_met
    assert met("generations 2: < 1GB; 3-4: < 2GB", row(1, 9)) is None


def test_time():
    text = "generation time not rising"
    assert met(text, *(row(i) for i in range(5))) is None
    assert met(text, *(row(i, seconds=60 + 3 * (i % 2)) for i in range(9))) is True
    assert met(text, *(row(i, seconds=60 + 10 * i) for i in range(9))) is False


@pytest.mark.parametrize(
    ("text", "is_met"),
    [
        ("TradingEnvironment == 2", True),
        ("envs.TradingEnvironment == 2", True),
        ("Environment == 2", False),  # another class
        ("DDPGAgent in 16..17", True),
        ("DDPGAgent > 17", False),
        ("Missing == 0", True),
        ("growthModel == 0", True),
        ("memoryBank == 1", False),
        ("Missing >= 1", False),
    ],
)
def test_counts(text: str, is_met: bool):
    assert counted(text, envs__TradingEnvironment=2, __main____DDPGAgent=17) is is_met


@pytest.mark.parametrize(
    "text",
    [
        "",
        "growth",
        "growth < many",
        "growth 5GB",
        "rss < 5GB at noon",
        "Type = 2",
        "Type == two",
        "generations 1-5",
        "generations 1-5: up",
        "growth in 3..2GB",
        "2 == 2",
    ],
)
def test_what_is_not_understood_is_refused_with_what_to_write(text: str):
    with pytest.raises(ValueError, match=r"write one of|larger than"):
        parse_expectation(text)


@given(st.text(max_size=60))
def test_any_text_is_understood_or_refused(text: str):
    try:
        parse_expectation(text)
    except ValueError as error:
        assert str(error)


def test_it_is_told_when_it_begins_to_be_broken_and_counted():
    expected = Expectations([parse_expectation("growth < 1GB")])
    broken = [bool(expected.update_generations("host", [row(i, delta)])) for i, delta in enumerate((0.5, 2, 3, 0.5, 4))]
    assert broken == [False, True, False, False, True]
    (known,) = expected.known
    assert (known.met, known.breaches) == (False, 3)
    assert (known.first, known.latest) == ("generation 1: +2.0 GB", "generation 4: +4.0 GB")


def test_the_engine_tells_it():
    engine = Engine(
        Policy(), Script, expectations=[parse_expectation("growth < 1GB"), parse_expectation("Agent == 16")]
    )
    notices = []

    def feed(event):
        notices.extend(one for one in engine.feed(event) if isinstance(one, Notice) and one.event == "breach")

    feed(Attached(0.0, TARGET, "python"))
    for index in range(1, 4):
        feed(GenerationSeen(100.0 * index, index))
        feed(sampled(100.0 * index + 1, (10 + 2 * index) * GB))
        feed(sampled(100.0 * index + 99, (12 + 2 * index) * GB))
    feed(examined(3, counts={"__main__.Agent": 32}))
    assert [one.fields["expectation"] for one in notices] == ["growth < 1GB", "Agent == 16"]
    assert notices[1].text == "expected Agent == 16, but Agent: 32"
    assert [one.met for one in engine.snapshot().expectations] == [False, False]
