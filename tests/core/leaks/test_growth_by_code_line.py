"""Growth by the code that raised it: what is made and dropped again leaves nothing, and nothing is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.examination import StackFrame, StackGrowth
from memwatch.core.leaks.growth_by_code_line import LifoAttribution, by_line, merge_stacks

MAIN, STEP = StackFrame("main", "/app/main.py", 80), StackFrame("Trainer.step", "/app/main.py", 20)
NUMPY = StackFrame("stack", "/usr/lib/python3/dist-packages/numpy/shapes.py", 400, installed=True)


@given(st.lists(st.tuples(st.integers(-1000, 1000), st.sampled_from("abc"))))
def test_the_credits_are_what_memory_has_grown_by_since_it_was_lowest(moves: list[tuple[int, str]]) -> None:
    levels: LifoAttribution[str] = LifoAttribution()
    level = lowest = 0
    for by, who in moves:
        levels.add_change(by, who)
        level += by
        lowest = min(lowest, level)
    assert sum(levels.bytes_by_source().values()) == level - lowest
    assert all(size > 0 for size in levels.bytes_by_source().values())


def test_what_is_made_and_dropped_again_leaves_nothing() -> None:
    levels: LifoAttribution[str] = LifoAttribution()
    for _ in range(1000):
        levels.add_change(1, "keeps")
        levels.add_change(500, "churns")
        levels.add_change(-500, "whoever")
    assert levels.bytes_by_source() == {"keeps": 1000}


def test_a_rise_in_a_library_is_that_of_the_line_that_called_it() -> None:
    credits = [
        StackGrowth((NUMPY, STEP, MAIN), 30),
        StackGrowth((STEP, MAIN), 40),
        StackGrowth((MAIN,), 25),
        StackGrowth((), 1000),
    ]
    lines = by_line([*credits, StackGrowth((NUMPY,), 5)])
    assert [(one.frame, one.bytes, one.share) for one in lines] == [(STEP, 70, 0.7), (MAIN, 25, 0.25), (NUMPY, 5, 0.05)]
    assert by_line([]) == ()


def test_the_same_stack_is_told_once() -> None:
    assert merge_stacks([StackGrowth((MAIN,), 1), StackGrowth((), 5), StackGrowth((MAIN,), 2)]) == (
        StackGrowth((), 5),
        StackGrowth((MAIN,), 3),
    )
