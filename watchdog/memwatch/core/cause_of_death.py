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
"""

from __future__ import annotations

from dataclasses import dataclass

from memwatch.core.events import (
    Cause,
    CheckpointSeen,
    Exited,
    OutOfMemorySeen,
    Signalled,
    Signalling,
)
from memwatch.core.zz_units import format_duration

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
class Evidence:
    """All that is known at the trainer's end. None: not known."""

    exit_code: int | None = None
    exit_signal: str | None = None  # "SIGKILL"
    signalled: Signalled | None = None  # the last one of the episode in which it ended; None after the episode's end
    unsure: Signalling | None = None  # of that episode, after all that are known to be sent: it may have been sent
    escalated: bool = False  # a stronger signal followed the first
    checkpoint: str | None = None  # evidence of a checkpoint complete after our signal
    saved: CheckpointSeen | None = None  # the latest that was complete, whoever asked for it
    oom_kills_delta: int | None = None  # rise of the innermost cgroup's oom_kill counter since it was last seen to live
    cgroup_owned: bool = False  # only the trainer's tree lives in it
    kernel_record: KernelRecord | None = None  # the one about the trainer's tree, else any other of that time
    kernel_log_read: bool = False  # it could be read: without a record there was no kill
    log_oom: OutOfMemorySeen | None = None  # the latest
    outlived: str = ""  # why that is not what ended it; empty: it may be
    cgroup_headroom_bytes: int | None = None  # last reading; None: no cgroup limit
    host_headroom_bytes: int | None = None

    @property
    def ours(self) -> Signalled | None:
        """The signal that memwatch did deliver."""
        sent = self.signalled
        return sent if sent is not None and not sent.dry_run and not sent.error else None

    @property
    def maybe_ours(self) -> Signalling | None:
        """The signal that memwatch may have delivered, where there is none that it did."""
        return self.unsure if self.ours is None else None

    @property
    def status_known(self) -> bool:
        """How the process ended was readable."""
        return self.exit_code is not None or self.exit_signal is not None


def conclude(t: float, evidence: Evidence) -> Exited:
    """The end at `t`, its cause and the lines that support it, the deciding one first."""
    cause, reason = _decide(t, evidence)
    lines = (reason, *(line for line in _facts(t, evidence) if line != reason))
    return Exited(t, cause, lines, evidence.exit_code, evidence.exit_signal)


def _decide(t: float, e: Evidence) -> tuple[Cause, str]:
    ours, maybe = e.ours, e.maybe_ours
    if ours and e.checkpoint:
        return Cause.SAVED, f"checkpoint complete after {ours.deed}: {e.checkpoint}"
    if maybe and e.checkpoint:
        return Cause.SAVED, f"checkpoint complete after {maybe.deed}, which may have been sent: {e.checkpoint}"
    kernel = _kernel_oom(e)
    if kernel:
        return kernel
    if ours and e.escalated:
        return Cause.UNSAVED, f"the interrupt had no effect in time and {ours.signal} had to follow"
    if ours:
        return Cause.UNSAVED, f"no checkpoint was seen after {ours.deed}"
    if maybe:
        return _perhaps_interrupted(e, maybe)
    return _by_itself(t, e)


def _perhaps_interrupted(e: Evidence, maybe: Signalling) -> tuple[Cause, str]:
    """No checkpoint was seen, and whether memwatch had a part in the end shows in its status alone."""
    if e.exit_signal == maybe.signal or e.exit_code == _shell_status(maybe.signal):
        return Cause.UNSAVED, f"{_status(e)}, as {maybe.deed} does, which may have been sent; no checkpoint was seen"
    return Cause.UNKNOWN, f"{_status(e)}; whether {maybe.deed} came before it is not known"


def _shell_status(signal: str) -> int | None:
    """As a shell, and many a handler, tells of an end by it."""
    return {"SIGINT": 130, "SIGTERM": 143, "SIGKILL": _SHELL_SIGKILL}.get(signal)


def _kernel_oom(e: Evidence) -> tuple[Cause, str] | None:
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


def _killed_by_somebody(e: Evidence) -> bool:
    """Ended by a SIGKILL that memwatch did not send, or in a way that is not known."""
    sent_kill = e.ours is not None and e.ours.signal == "SIGKILL"
    return not sent_kill and (e.exit_signal == "SIGKILL" or not e.status_known)


def _tighter(e: Evidence) -> Cause:
    """The counter rises for host OOM kills too: the limit that had less room left was the one met."""
    if e.cgroup_headroom_bytes is None:
        return Cause.OOM_HOST
    host = e.host_headroom_bytes
    return Cause.OOM_CGROUP if host is None or e.cgroup_headroom_bytes <= host else Cause.OOM_HOST


def _by_itself(t: float, e: Evidence) -> tuple[Cause, str]:
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


def _last_words(t: float, e: Evidence) -> bool:
    """The log ends with a failed allocation, and nothing contradicts that it was the reason."""
    if e.log_oom is None or e.outlived or e.exit_code == 0:
        return False
    if e.exit_signal not in (None, "SIGABRT"):  # C++ aborts on bad_alloc
        return False
    return t - e.log_oom.t <= (LAST_WORDS_SECONDS if e.status_known else LAST_WORDS_UNCONFIRMED_SECONDS)


def _status(e: Evidence) -> str:
    if e.exit_signal is not None:
        return f"ended by {e.exit_signal}"
    if e.exit_code == _SHELL_SIGKILL:
        return "exit status 137, as a shell reports a child that SIGKILL ended"
    return f"exit status {e.exit_code}" if e.exit_code is not None else "its exit status could not be read"


def _log_line(t: float, seen: OutOfMemorySeen) -> str:
    return f"log, {max(0.0, t - seen.t):.1f} s before the end: {seen.kind}: {seen.line}"


def _facts(t: float, e: Evidence) -> list[str]:
    """Every fact in a line, for the reader who wants to judge alone."""
    lines = [_status(e)]
    sent = e.signalled
    if sent is not None:
        done = "started" if sent.instead else "sent"
        how = (
            f"would have {done} (dry run)" if sent.dry_run else f"could not send ({sent.error})" if sent.error else done
        )
        lines.append(f"memwatch {how} {sent.deed} {max(0.0, t - sent.t):.1f} s before the end")
    if e.unsure is not None:
        ago = max(0.0, t - e.unsure.t)
        lines.append(f"{ago:.1f} s before the end memwatch was to send {e.unsure.deed}; whether it did is not known")
    if e.ours and e.checkpoint:
        lines.append(f"checkpoint complete after {e.ours.deed}: {e.checkpoint}")
    elif not e.ours and e.saved is not None:
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
        if e.outlived:
            lines.append(f"which it outlived: {e.outlived}")
    return lines
