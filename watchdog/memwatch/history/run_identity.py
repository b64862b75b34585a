"""Decides which trainers are the same run, and whether a process still lives."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePath

from memwatch.core.proc_stat import parse_stat

_INTERPRETERS = ("python", "pypy")
_LAUNCHERS = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "cProfile", "pdb"}


def run_key(argv: Sequence[str], cwd: str, log_path: str | None, uid: int) -> str:
    """Return a key that a trainer and the successor that resumes it share: program, folder, log and user, printable.

    It contains neither the interpreter nor options, because every trainer spells `--resume CKPT` in its own way.
    """
    log = os.path.normpath(log_path) if log_path else ""
    return repr((program(argv, cwd), os.path.normpath(cwd), log, uid))


def program(argv: Sequence[str], cwd: str) -> str:
    """Return the path of the script, `-m module`, or the executable.

    >>> program(["/usr/bin/python3.11", "-u", "train.py", "--resume", "c.pt"], "/runs/a")
    '/runs/a/train.py'
    """
    if not argv:
        return ""
    words = iter(argv[1:] if PurePath(argv[0]).name.startswith(_INTERPRETERS) else argv)
    first = ""
    for word in words:
        if word == "-m":
            module = next(words, "")
            if module not in _LAUNCHERS:
                return f"-m {module}"
        elif word == "-c" and not first:
            return f"-c {next(words, '')}"
        elif word.endswith(".py"):
            return _absolute(word, cwd)
        elif word in ("-W", "-X"):
            next(words, "")
        elif not word.startswith("-"):
            first = first or word
    return _absolute(first or argv[0], cwd)


def _absolute(name: str, cwd: str) -> str:
    return os.path.normpath(PurePath(cwd, name)) if "/" in name or name.endswith(".py") else name


def start_ticks(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Return the start time of a process in clock ticks since boot; None when it is gone or a zombie."""
    try:
        found = parse_stat((proc / str(pid) / "stat").read_bytes())
    except (OSError, ValueError):
        return None
    return None if found.dead else found.start_ticks
