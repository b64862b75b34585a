"""Whether a program may have died of the failed allocation that its log tells of, by what log and status say after it.

A program that dies of it says so last: the end of a traceback, `terminate called`, or a message of its own and nothing
more. One that outlived it goes on: it says that it does, another exception follows, or it leaves with a status of its
choice. What may be either is taken for outlived: that it failed is then said, and why is not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memwatch.core.text_and_units import printable

AFTERMATH_LINES = 20  # in which a program says that it goes on
TRACEBACK_LINES = 400
SHOWN_CHARS = 4096  # of a line, that patterns are looked for in
_ENDS = re.compile(r"[\r\n]+")
_PREFIX = re.compile(r"^\[(?:rank)?\d+\]:? ?")  # [rank0]: as torchrun puts it before each line
_RAISED = 1  # the status of a Python, or a Java, that an exception has ended
_ABORTED = 128 + 6  # of a shell whose child aborted
_EXCEPTION = re.compile(
    r"^(?:\w+\.)*\w+(?:Error|Exception|Interrupt|Timeout|Expired)(?=:\s|$)|^SystemExit(?=:\s|$)|^Fatal Python error"
)
# What follows such a line is no other reason: it led to it, or came as the interpreter was shut down.
_LED_TO = re.compile(
    r"^(?:During handling of the above exception|The above exception was the direct cause|"
    r"Exception ignored in|Error in atexit)"
)
# What follows when somebody else has died: a launcher, a pool or another rank tells of it.
_OF_OTHERS = re.compile(
    r"ChildFailedError|CalledProcessError|Process(?:Raised|Exited)Exception|BrokenProcessPool|BrokenPipeError|"
    r"Connection\w*Error|EOFError|Dist\w*Error|RayTaskError|DataLoader worker|Fatal Python error: Aborted"
)
_GOES_ON = re.compile(
    r"\b(?:retry\w*|caught|halv\w+|skip\w*|ignor\w+|recover\w*|fall\w* back|continuing|left out|handled)\b", re.I
)
_ABORTS = re.compile(r"terminate called|Fatal Python error: Aborted")
_DIES = re.compile(r"^Exception in thread ")
_TRACEBACK = "Traceback (most recent call last)"


def outlived(log: str, line: str, exit_code: int | None, exit_signal: str | None) -> str:
    """Why the failed allocation of `line` is not what ended it, in a few words; empty when it may be.

    `log` is its end, or empty when it cannot be read; `line` is as OutOfMemorySeen has it.
    """
    if not log:
        return ""
    lines = [_PREFIX.sub("", one) for one in _ENDS.split(log) if one.strip()]
    place = next((i for i in reversed(range(len(lines))) if _is(lines[i], line)), None)
    if place is None:
        return "it is not in the last of the log"
    if exit_signal is not None or exit_code == _ABORTED:
        aborts = any(_ABORTS.search(one) for one in lines[max(0, place - 1) :])
        return "" if aborts else "nothing says that it aborted because of it"
    if exit_code not in (None, _RAISED):
        return "an exception does not end with that status"
    return _went_on(lines[place:]) or ("" if _is_fatal(lines, place) else _spoke_on(lines[place + 1 :]))


def _is(shown: str, line: str) -> bool:
    """A line of the log holds what was told, which may be cut."""
    return line.rstrip("…") in printable(shown, SHOWN_CHARS)


def _went_on(lines: Sequence[str]) -> str:
    """After the first of these, or in it, the program says that it goes on, or what ended it later."""
    near = (one for one in lines[:AFTERMATH_LINES] if not _LED_TO.match(one))
    goes_on = next((one for one in near if _GOES_ON.search(one)), None)
    if goes_on is not None:
        return f"it went on: {printable(goes_on)}"
    led_to = False
    for one in lines[1:]:
        led_to = led_to or bool(_LED_TO.match(one))
        if _EXCEPTION.match(one) and not _OF_OTHERS.search(one):
            if not led_to:
                return f"after it came: {printable(one)}"
            led_to = False
    return ""


def _is_fatal(lines: Sequence[str], place: int) -> bool:
    """The line is in the words of a program that dies: the last of a traceback, or of a thread's exception."""
    if _DIES.match(lines[place]) or any(_ABORTS.search(one) for one in lines[max(0, place - 1) :]):
        return True
    above = lines[max(0, place - TRACEBACK_LINES) : place]
    return bool(above) and above[-1][:1].isspace() and any(_TRACEBACK in one for one in above)


def _spoke_on(after: Sequence[str]) -> str:
    """A message that no traceback belongs to is the last only when nothing follows."""
    line = next((one for one in after if not one[:1].isspace()), None)
    return "" if line is None else f"the log went on: {printable(line)}"
