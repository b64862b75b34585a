"""Memory growth by the code that caused it: as a table, as folded stacks, as a speedscope file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from memwatch.core.examination import AllocationProfile, LineGrowth, StackFrame, StackGrowth
from memwatch.core.leaks.growth_attribution import by_line
from memwatch.core.text_and_units import format_bytes, format_duration, replace_unprintable

PROFILE_TABLE_ROWS = 15
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_UNSEEN = StackFrame("(not seen)", "", 0)


def render_profile(profile: AllocationProfile) -> str:
    lines = by_line(profile.credits)
    seen = sum(one.bytes for one in lines)
    head = f"{format_bytes(profile.grown_bytes, signed=True)} in {format_duration(profile.seconds)}"
    if not profile.grown_bytes:
        return f"{head}: resident memory did not grow"
    if not lines:
        return f"{head}: too fast or too rare to be attributed to code; try a longer time: --seconds"
    return "\n".join(
        (
            f"{head}; {seen / profile.grown_bytes:.0%} of it attributed to lines of code",
            "",
            *profile_rows(lines[:PROFILE_TABLE_ROWS]),
        )
    )


def profile_rows(lines: Iterable[LineGrowth]) -> Iterator[str]:
    for one in lines:
        yield f"{format_bytes(one.bytes, signed=True):>12}  {one.share:>4.0%}  {format_frame(one.frame)}"


def format_frame(frame: StackFrame) -> str:
    """`Trainer.learn (evolve.py:224)`."""
    function = replace_unprintable(frame.function)
    return f"{function} ({replace_unprintable(frame.file.rpartition('/')[2])}:{frame.line})" if frame.file else function


def folded(credits: Sequence[StackGrowth]) -> str:
    """A line for each stack: its frames from the outermost in, and bytes, as flamegraph.pl reads it."""
    return "".join(f"{_path(one)} {one.bytes}\n" for one in credits)


def _path(one: StackGrowth) -> str:
    return ";".join(format_frame(frame).replace(";", ",") for frame in _outermost_first(one))


def speedscope(credits: Sequence[StackGrowth], name: str) -> str:
    """JSON for https://www.speedscope.app, with weights in bytes."""
    numbers: dict[StackFrame, int] = {}
    samples = [[numbers.setdefault(frame, len(numbers)) for frame in _outermost_first(one)] for one in credits]
    weights = [one.bytes for one in credits]
    frames = [{"name": frame.function, "file": frame.file, "line": frame.line} for frame in numbers]
    of_all = {"type": "sampled", "name": name, "unit": "bytes", "startValue": 0, "endValue": sum(weights)}
    document = {
        "$schema": _SCHEMA,
        "exporter": "memwatch",
        "name": name,
        "shared": {"frames": frames},
        "profiles": [{**of_all, "samples": samples, "weights": weights}],
    }
    return json.dumps(document)


def _outermost_first(one: StackGrowth) -> tuple[StackFrame, ...]:
    return one.frames[::-1] or (_UNSEEN,)
