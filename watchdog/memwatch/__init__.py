"""memwatch: an out-of-process memory watchdog for training runs. `from memwatch import mark` is for trainers."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`mark`, which memwatch itself does not need."""
    if name == "mark":
        from memwatch.marking import mark

        return mark
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
