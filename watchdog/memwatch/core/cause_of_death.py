"""How the trainer ended, from evidence only: Evidence -> Exited. Where the evidence does not say, UNKNOWN.

The first line that fits decides. "Ours": a signal that memwatch really sent in the episode in which the trainer ended.
"Maybe ours": memwatch was killed just as it was to send one, and none was sent in that episode before.

| evidence | cause |
|---|---|
| ours or maybe ours, a checkpoint complete after the first of them | SAVED, however it died: the run resumes from it |
| the kernel's OOM record names the trainer, killed or status unknown; or a child just before a status of 137 | OOM_* |
| no record, a SIGKILL not ours (or status unknown), oom_kill of the trainer's *own* cgroup rose as it ended | OOM_* |
| ours, and no checkpoint was seen | UNSAVED, status 0 too: many trainers save nothing |
| maybe ours, no checkpoint was seen, and it ended by that very signal (or 128 + its number) | UNSAVED |
| maybe ours, no checkpoint was seen | UNKNOWN: it may have been interrupted |
| the log's last words are a failed allocation (`core.lastwords`), status not 0, not killed | MEMORY_ERROR, CUDA_OOM |
| status unknown or SIGKILL, and oom_kill of a *shared* cgroup rose, no record | UNKNOWN: it may have been a neighbour |
| SIGKILL, and neither the kernel's log nor a counter could be read | UNKNOWN |
| ended by a signal | SIGNALLED: a SIGKILL without a trace of the OOM killer is somebody's SIGKILL |
| ended with a status | COMPLETED (0), FAILED |
| nothing | UNKNOWN |

Whether a program may have died of the failed allocation that its log tells of, by what log and status say after it.

A program that dies of it says so last: the end of a traceback, `terminate called`, or a message of its own and nothing
more. One that outlived it goes on: it says that it does, another exception follows, or it leaves with a status of its
choice. What may be either is taken for outlived: that it failed is then said, and why is not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from memwatch.core.events import Cause, CheckpointSeen, Exited, OutOfMemorySeen, Signalled, Signalling
from memwatch.core.text_and_units import format_duration, printable

LAST_WORDS_SECONDS = 60.0  # a failed allocation in the log so shortly before a failure is its reason
LAST_WORDS_UNCONFIRMED_SECONDS = 10.0  # and so shortly when the exit status is unknown
_SHELL_SIGKILL = 128 + 9  # the status of a shell (or runner) whose child was killed


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One kill in the kernel's log."""

    pid: int
    constraint: str  # "memcg" or "global"
    line: str
    of_trainer: bool  # it names the trainer itself
    of_child: bool  # it names a child of the trainer, and is of the last seconds


@dataclass(frozen=True, slots=True)
class ExitEvidence:
    """All that is known at the trainer's end. None: not known."""

    exit_code: int | None = None
    exit_signal: str | None = None  # "SIGKILL"
    signalled: Signalled | None = None  # the last one of the episode in which it ended; None after the episode's end
    unconfirmed_signal: Signalling | None = (
        None  # of that episode, after all that are known to be sent: it may have been sent
    )
    escalated: bool = False  # a stronger signal followed the first
    checkpoint_after_signal: str | None = None  # evidence of a checkpoint complete after our signal
    saved: CheckpointSeen | None = None  # the latest that was complete, whoever asked for it
    oom_kills_delta: int | None = None  # rise of the innermost cgroup's oom_kill counter since it was last seen to live
    cgroup_owned: bool = False  # only the trainer's tree lives in it
    kernel_record: KernelRecord | None = None  # the one about the trainer's tree, else any other of that time
    kernel_log_read: bool = False  # it could be read: without a record there was no kill
    log_oom: OutOfMemorySeen | None = None  # the latest
    survived_oom_reason: str = ""  # why that is not what ended it; empty: it may be
    cgroup_headroom_bytes: int | None = None  # last reading; None: no cgroup limit
    host_headroom_bytes: int | None = None

    @property
    def delivered_signal(self) -> Signalled | None:
        """The signal that memwatch did deliver."""
        sent = self.signalled
        return sent if sent is not None and not sent.dry_run and not sent.error else None

    @property
    def possibly_delivered_signal(self) -> Signalling | None:
        """The signal that memwatch may have delivered, where there is none that it did."""
        return self.unconfirmed_signal if self.delivered_signal is None else None

    @property
    def status_known(self) -> bool:
        """How the process ended was readable."""
        return self.exit_code is not None or self.exit_signal is not None


def explain_exit(t: float, evidence: ExitEvidence) -> Exited:
    """The end at `t`, its cause and the lines that support it, the deciding one first."""
    cause, reason = _decide(t, evidence)
    lines = (reason, *(line for line in _facts(t, evidence) if line != reason))
    return Exited(t, cause, lines, evidence.exit_code, evidence.exit_signal)


def _decide(t: float, e: ExitEvidence) -> tuple[Cause, str]:
    ours, maybe = e.delivered_signal, e.possibly_delivered_signal
    if ours and e.checkpoint_after_signal:
        return Cause.SAVED, f"checkpoint complete after {ours.signal_or_hook}: {e.checkpoint_after_signal}"
    if maybe and e.checkpoint_after_signal:
        return (
            Cause.SAVED,
            f"checkpoint complete after {maybe.signal_or_hook}, which may have been sent: {e.checkpoint_after_signal}",
        )
    kernel = _kernel_oom(e)
    if kernel:
        return kernel
    if ours and e.escalated:
        return Cause.UNSAVED, f"the interrupt had no effect in time and {ours.signal} had to follow"
    if ours:
        return Cause.UNSAVED, f"no checkpoint was seen after {ours.signal_or_hook}"
    if maybe:
        return _perhaps_interrupted(e, maybe)
    return _by_itself(t, e)


def _perhaps_interrupted(e: ExitEvidence, maybe: Signalling) -> tuple[Cause, str]:
    """No checkpoint was seen, and whether memwatch had a part in the end shows in its status alone."""
    if e.exit_signal == maybe.signal or e.exit_code == _shell_status(maybe.signal):
        return (
            Cause.UNSAVED,
            f"{_status(e)}, as {maybe.signal_or_hook} does, which may have been sent; no checkpoint was seen",
        )
    return Cause.UNKNOWN, f"{_status(e)}; whether {maybe.signal_or_hook} came before it is not known"


def _shell_status(signal: str) -> int | None:
    """As a shell, and many a handler, tells of an end by it."""
    return {"SIGINT": 130, "SIGTERM": 143, "SIGKILL": _SHELL_SIGKILL}.get(signal)


def _kernel_oom(e: ExitEvidence) -> tuple[Cause, str] | None:
    """A kill by the kernel's OOM killer: its record first, its counter where there is no record."""
    record = e.kernel_record
    if record is not None:
        killed = e.exit_signal == "SIGKILL" or not e.status_known
        if (record.of_trainer and killed) or (record.of_child and e.exit_code == _SHELL_SIGKILL):
            return (Cause.OOM_HOST if record.constraint == "global" else Cause.OOM_CGROUP), f"kernel: {record.line}"
        return None  # it tells of another process, and there is no second
    if not _killed_by_somebody(e) or not e.cgroup_owned or not (e.oom_kills_delta or 0) > 0:
        return None
    return _tighter(e), f"the oom_kill counter of the trainer's own cgroup rose by {e.oom_kills_delta} at its end"


def _killed_by_somebody(e: ExitEvidence) -> bool:
    """Ended by a SIGKILL that memwatch did not send, or in a way that is not known."""
    sent_kill = e.delivered_signal is not None and e.delivered_signal.signal == "SIGKILL"
    return not sent_kill and (e.exit_signal == "SIGKILL" or not e.status_known)


def _tighter(e: ExitEvidence) -> Cause:
    """The counter rises for host OOM kills too: the limit that had less room left was the one met."""
    if e.cgroup_headroom_bytes is None:
        return Cause.OOM_HOST
    host = e.host_headroom_bytes
    return Cause.OOM_CGROUP if host is None or e.cgroup_headroom_bytes <= host else Cause.OOM_HOST


def _by_itself(t: float, e: ExitEvidence) -> tuple[Cause, str]:
    """memwatch had no part in it."""
    if _last_words(t, e) and e.log_oom is not None:
        cause = Cause.CUDA_OOM if "cuda" in e.log_oom.kind.lower() else Cause.MEMORY_ERROR
        return cause, _log_line(t, e.log_oom)
    if e.kernel_record is None and _killed_by_somebody(e) and (e.oom_kills_delta or 0) > 0:
        return (
            Cause.UNKNOWN,
            f"{_status(e)}; the oom_kill counter of a cgroup that it shares rose: it may not be its own",
        )
    if e.exit_signal == "SIGKILL" and not e.kernel_log_read and e.kernel_record is None and e.oom_kills_delta is None:
        return Cause.UNKNOWN, f"{_status(e)}; whether by the OOM killer could not be read anywhere"
    if e.exit_signal is not None:
        return Cause.SIGNALLED, _status(e)
    if e.exit_code is not None:
        return (Cause.COMPLETED if e.exit_code == 0 else Cause.FAILED), _status(e)
    return Cause.UNKNOWN, _status(e)


def _last_words(t: float, e: ExitEvidence) -> bool:
    """The log ends with a failed allocation, and nothing contradicts that it was the reason."""
    if e.log_oom is None or e.survived_oom_reason or e.exit_code == 0:
        return False
    if e.exit_signal not in (None, "SIGABRT"):  # C++ aborts on bad_alloc
        return False
    return t - e.log_oom.t <= (LAST_WORDS_SECONDS if e.status_known else LAST_WORDS_UNCONFIRMED_SECONDS)


def _status(e: ExitEvidence) -> str:
    if e.exit_signal is not None:
        return f"ended by {e.exit_signal}"
    if e.exit_code == _SHELL_SIGKILL:
        return "exit status 137, as a shell reports a child that SIGKILL ended"
    return f"exit status {e.exit_code}" if e.exit_code is not None else "its exit status could not be read"


def _log_line(t: float, seen: OutOfMemorySeen) -> str:
    return f"log, {max(0.0, t - seen.t):.1f} s before the end: {seen.kind}: {seen.line}"


def _facts(t: float, e: ExitEvidence) -> list[str]:
    """Every fact in a line, for the reader who wants to judge alone."""
    lines = [_status(e)]
    sent = e.signalled
    if sent is not None:
        done = "started" if sent.instead else "sent"
        how = (
            f"would have {done} (dry run)" if sent.dry_run else f"could not send ({sent.error})" if sent.error else done
        )
        lines.append(f"memwatch {how} {sent.signal_or_hook} {max(0.0, t - sent.t):.1f} s before the end")
    if e.unconfirmed_signal is not None:
        ago = max(0.0, t - e.unconfirmed_signal.t)
        lines.append(
            f"{ago:.1f} s before the end memwatch was to send {e.unconfirmed_signal.signal_or_hook}; "
            "whether it did is not known"
        )
    if e.delivered_signal and e.checkpoint_after_signal:
        lines.append(f"checkpoint complete after {e.delivered_signal.signal_or_hook}: {e.checkpoint_after_signal}")
    elif not e.delivered_signal and e.saved is not None:
        before = format_duration(max(0.0, t - e.saved.t))
        lines.append(f"its latest checkpoint was complete {before} before the end: {e.saved.evidence}")
    if e.kernel_record is not None:
        whose = "" if e.kernel_record.of_trainer else f"process {e.kernel_record.pid}, not the trainer: "
        lines.append(f"kernel: {whose}{e.kernel_record.line}")
    if e.oom_kills_delta:
        owner = "trainer's own" if e.cgroup_owned else "shared"
        lines.append(f"oom_kill counter of the {owner} cgroup rose by {e.oom_kills_delta}")
    elif e.exit_signal == "SIGKILL" and e.kernel_record is None and e.oom_kills_delta == 0:
        lines.append("no trace of the OOM killer: the oom_kill counter did not rise")
    if e.log_oom is not None:
        lines.append(_log_line(t, e.log_oom))
        if e.survived_oom_reason:
            lines.append(f"which it outlived: {e.survived_oom_reason}")
    return lines


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


def survival_reason(log: str, line: str, exit_code: int | None, exit_signal: str | None) -> str:
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
