"""Paths through attributes and items that a user may name: Trainer.replay_buffer, Trainer.population[*]."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memwatch.errors import ConfigError

_NAME = r"[^\W\d]\w*"
_ROOT = re.compile(rf"{_NAME}(?:\.{_NAME})*")
STEP = re.compile(rf"\.({_NAME})|\[(\*)\]|\[(\d+)\]|\[(?:'([^']*)'|\"([^\"]*)\")\]")


@dataclass(frozen=True, slots=True)
class AttributePath:
    """A path through attributes and items, from the instances of a class or from a module."""

    path: str
    names: tuple[str, ...]  # "Trainer", "memory", "items": the heap shows how many of them name the class
    steps: tuple[str, ...]  # after these: ".name", "[*]", "[3]", "['key']"


def parse_attribute_path(path: str) -> AttributePath:
    """Parse a path; ConfigError, with an example, when it is none."""
    root = _ROOT.match(path)
    names, at = (tuple(root[0].split(".")), root.end()) if root else ((), 0)
    steps = []
    while names and at < len(path) and (step := STEP.match(path, at)):
        steps.append(step[0])
        at = step.end()
    if len(names) + len(steps) < 2 or at < len(path):
        hint = "write a class and what follows: Trainer.replay_buffer, Trainer.population[*], Trainer.state['memory']"
        raise ConfigError(f"{path!r} is no path to an attribute", hint)
    return AttributePath(path, names, tuple(steps))


def matching_names(track: AttributePath, name: str) -> int:
    """Return how many names of the path belong to the class of this name; 0: the path does not start there."""
    for length in range(len(track.names), 0, -1):
        begin = ".".join(track.names[:length])
        if name == begin or name.endswith(f".{begin}"):
            return length
    return 0
