"""Growth of memory by stack and by line of the program."""

from __future__ import annotations

from memwatch.core.examination import StackFrame, StackGrowth
from memwatch.core.leaks.growth_attribution import by_line, merge_stacks

MAIN, STEP = StackFrame("main", "/app/main.py", 80), StackFrame("Trainer.step", "/app/main.py", 20)
NUMPY = StackFrame("stack", "/usr/lib/python3/dist-packages/numpy/shapes.py", 400, installed=True)


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
