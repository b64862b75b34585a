"""Growth by the code that raised it: what is made and dropped again leaves nothing, and nothing is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.examination import Credit, Frame
from memwatch.core.leaks.allocation_profile import Levels, by_line, merged

MAIN, STEP = Frame("main", "/app/main.py", 80), Frame("Trainer.step", "/app/main.py", 20)
NUMPY = Frame("stack", "/usr/lib/python3/dist-packages/numpy/shapes.py", 400, installed=True)


@given(st.lists(st.tuples(st.integers(-1000, 1000), st.sampled_from("abc"))))
def test_the_credits_are_what_memory_has_grown_by_since_it_was_lowest(moves: list[tuple[int, str]]) -> None:
    levels: Levels[str] = Levels()
    level = lowest = 0
    for by, who in moves:
        levels.move(by, who)
        level += by
        lowest = min(lowest, level)
    assert sum(levels.credits().values()) == level - lowest
    assert all(size > 0 for size in levels.credits().values())


def test_what_is_made_and_dropped_again_leaves_nothing() -> None:
    levels: Levels[str] = Levels()
    for _ in range(1000):
        levels.move(1, "keeps")
        levels.move(500, "churns")
        levels.move(-500, "whoever")
    assert levels.credits() == {"keeps": 1000}


def test_a_rise_in_a_library_is_that_of_the_line_that_called_it() -> None:
    credits = [Credit((NUMPY, STEP, MAIN), 30), Credit((STEP, MAIN), 40), Credit((MAIN,), 25), Credit((), 1000)]
    lines = by_line([*credits, Credit((NUMPY,), 5)])
    assert [(one.frame, one.bytes, one.share) for one in lines] == [(STEP, 70, 0.7), (MAIN, 25, 0.25), (NUMPY, 5, 0.05)]
    assert by_line([]) == ()


def test_the_same_stack_is_told_once() -> None:
    assert merged([Credit((MAIN,), 1), Credit((), 5), Credit((MAIN,), 2)]) == (Credit((), 5), Credit((MAIN,), 3))
