"""`memwatch mark`: a script marks where its program is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memwatch import marking
from memwatch.errors import AttachError, ConfigError, ExitCode

_EXAMPLE = "as in: memwatch mark epoch=3 total=25, phase=train, buffer=448/5000, saved=ckpt.pt"


def mark(flags: Mapping[str, Any]) -> int:
    """`memwatch mark NAME=VALUE ...`: AttachError where nobody watches this script or a process above it."""
    what = dict(map(_pair, flags["marks"]))
    pid = flags.get("pid")
    if pid is not None and not pid.isdecimal():
        raise ConfigError(f"--pid {pid}: not a process ID", _EXAMPLE)
    if not (marking.mark(**what) if pid is None else marking.mark_process(int(pid), what)):
        who = "this script, or a process above it" if pid is None else f"process {pid}"
        raise AttachError(f"no memwatch watches {who}", "start one: memwatch --pid PID, or memwatch run")
    return ExitCode.ENDED


def _pair(text: str) -> tuple[str, object]:
    name, separator, value = text.partition("=")
    if not (name.isidentifier() and separator and value):
        raise ConfigError(f"mark {text}: not NAME=VALUE", _EXAMPLE)
    number = r"-?\d+(?:\.\d+)?"
    if found := re.fullmatch(rf"({number})(?:/({number}))?", value):
        numbers = [float(one) for one in found.groups() if one is not None]
        return name, numbers[0] if len(numbers) == 1 else numbers
    return name, value
