"""Determines from evidence how the trainer ended (ExitEvidence -> Exited); UNKNOWN where nothing decides it.

The first row that applies decides. "Ours": memwatch sent a signal in the episode in which the trainer ended.
"Maybe ours": memwatch was killed just before it sent one, and had sent none before in that episode.

| evidence | cause |
|---|---|
| ours or maybe ours, it went on to its last generation, and ended with status 0 | COMPLETED: nothing to resume |
| ours or maybe ours, a checkpoint complete after the first of them | SAVED, however it died: the run resumes from it |
| the kernel's OOM record names the trainer, killed or status unknown; or a child just before it failed | OOM_* |
| no record, a SIGKILL not ours (or status unknown, or a worker killed), oom_kill of its own cgroup rose | OOM_* |
| SIGBUS (or a status of 135), and a tmpfs was nearly full at the last sample | TMPFS_FULL |
| ours, and its own checkpoint on disk is as good as one: hardly any work is lost | SAVED |
| ours, and no checkpoint was seen | UNSAVED, even with status 0: many trainers save nothing |
| maybe ours, no checkpoint was seen, and it ended by that very signal (or 128 + its number) | as if ours |
| maybe ours, no checkpoint was seen | UNKNOWN: it may have been interrupted |
| it failed, its last lines name a full device, and a tmpfs was nearly full at the last sample | TMPFS_FULL |
| the log ends with memory that ran out (`survival_reason`), status not 0, no signal but SIGTERM, SIGABRT | its kind's |
| status unknown or SIGKILL, and oom_kill of a *shared* cgroup rose, no record | UNKNOWN: perhaps another process |
| the log ends with a scheduler's word for another end (time limit, preemption, node failure), status not 0 | its kind |
| SIGKILL, and neither the kernel's log nor a counter could be read | UNKNOWN |
| `memwatch run` passed a signal on that ends programs, such as Ctrl-C's, and it ended soon after | SIGNALLED |
| ended by a signal (or 128 + its number, but 137) | SIGNALLED: a SIGKILL without a trace of OOM was somebody's |
| ended with a status | COMPLETED (0), FAILED |
| nothing is known | UNKNOWN |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from memwatch.core.events import Cause, Exited, LastCheckpoint, OutOfMemorySeen, Signalled, Signalling
from memwatch.core.measurements import TmpfsMemory
from memwatch.core.text_and_units import (
    TERMINAL_ESCAPE,
    format_bytes,
    format_duration,
    index_text,
    printable,
    replace_unprintable,
)

LAST_WORDS_SECONDS = 60.0  # A failed allocation at most this long before a failure is its cause (chosen).
LAST_WORDS_UNCONFIRMED_SECONDS = 10.0  # The same when the exit status is unknown (chosen).
PASSED_ON_SECONDS = 600.0  # A signal that was passed on at most so long before the end has ended it (chosen).
LITTLE_WORK_SECONDS = 10.0  # An interrupt that loses no more work than this, or than a save takes, loses none (chosen).
# What the rules for `oom` call it (configs/markers/out_of_memory.yaml); any other name: an allocation of main memory.
_CAUSES_IN_LOG = {
    "CUDA out of memory": Cause.CUDA_OOM,
    "accelerator out of memory": Cause.ACCELERATOR_OOM,
    "killed by a memory monitor": Cause.OOM_MONITOR,
    "killed at the container's limit": Cause.OOM_CGROUP,
    "killed by the kernel, host out of memory": Cause.OOM_HOST,
    "Slurm memory limit": Cause.OOM_SCHEDULER,
    "PBS memory limit": Cause.OOM_SCHEDULER,
    "LSF memory limit": Cause.OOM_SCHEDULER,
    "SGE memory limit": Cause.OOM_SCHEDULER,
    "HTCondor memory limit": Cause.OOM_SCHEDULER,
    "shared memory full": Cause.TMPFS_FULL,
    "worker killed": Cause.WORKER_KILLED,
}
_KILLS = frozenset(
    {Cause.OOM_MONITOR, Cause.OOM_HOST, Cause.OOM_CGROUP, Cause.OOM_SCHEDULER}
)  # the trainer's signal is another's
_UNEXPLAINED = frozenset({Cause.FAILED, Cause.SIGNALLED, Cause.UNKNOWN})
# C++ and Rust abort when an allocation fails; a launcher terminates the others after the process that failed.
_ALLOCATION_SIGNALS = (None, "SIGABRT", "SIGTERM")
# Slurm; LSF; PBS: `walltime 3642 exceeded limit 3600`
_ENDED_BY_SCHEDULER = re.compile(
    r"\bCANCELLED AT \S+ DUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE)\b|\bTERM_(?:RUN|CPU|THREAD|PROCESS)LIMIT\b"
    r"|\b(?:walltime|cput) \S+ exceeded limit\b"
)
_OF_ERROR = re.compile(r"(?i)\berror\b|\w(?:Error|Exception)\b|\bfatal\b|\bno space left\b|\bfailed\b")
_SIGNAL_OF_STATUS = {  # as a shell reports a child that it ended
    128 + 1: "SIGHUP",
    128 + 2: "SIGINT",
    128 + 3: "SIGQUIT",
    128 + 6: "SIGABRT",
    128 + 7: "SIGBUS",
    128 + 9: "SIGKILL",
    128 + 11: "SIGSEGV",
    128 + 15: "SIGTERM",
}
_NO_SPACE = "No space left on device"
# Of a tmpfs, whose last sample is up to a second old: so little room before a SIGBUS is none (chosen; a segment of
# shared memory is taken page by page, so that the last samples show it half written).
NEARLY_FULL_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One kill in the kernel's log."""

    pid: int
    constraint: str  # "memcg" or "global"
    line: str
    of_trainer: bool  # it names the trainer itself
    of_child: bool  # it names a child of the trainer and was written in the last seconds


@dataclass(frozen=True, slots=True)
class ExitEvidence:
    """The evidence at the trainer's end. None: not known."""

    exit_code: int | None = None
    exit_signal: str | None = None  # "SIGKILL"
    signalled: Signalled | None = None  # the last one, of the episode in which the trainer ended
    unconfirmed_signal: Signalling | None = None  # the last one announced in that episode, which may have been sent
    escalated: bool = False  # a stronger signal followed the first
    outlived_signal: str = ""  # what shows that it went on after our signal until the run was over; empty: nothing
    checkpoint_after_signal: str | None = None  # evidence of a checkpoint complete after our signal
    checkpoint: LastCheckpoint | None = None  # the latest one, whoever asked for it
    save_seconds: float = 0.0  # that the trainer's saves take, at most
    oom_kills_delta: int | None = None  # rise of the innermost cgroup's oom_kill counter since the last sample
    cgroup_owned: bool = False  # only the trainer's tree lives in it
    kernel_record: KernelRecord | None = None  # a record about the trainer's tree, else any other of that time
    kernel_log_read: bool = False  # the kernel's log could be read, so without a record there was no kill
    log_oom: OutOfMemorySeen | None = None  # the latest
    survived_oom_reason: str = ""  # why log_oom did not end the trainer; empty: it may have
    cgroup_headroom_bytes: int | None = None  # last reading; None: no cgroup limit
    host_headroom_bytes: int | None = None
    log_tail: tuple[str, ...] = ()  # the last lines of the log, printable
    passed_on: tuple[float, str] | None = None  # the last signal that `memwatch run` was sent and passed on, and when
    tmpfs: tuple[tuple[TmpfsMemory, int], ...] = ()  # the last reading, and the most taken between two samples

    @property
    def delivered_signal(self) -> Signalled | None:
        """The signal that memwatch sent; None for a dry run or a failure."""
        sent = self.signalled
        return sent if sent is not None and not sent.dry_run and not sent.error else None

    @property
    def possibly_delivered_signal(self) -> Signalling | None:
        """The signal that memwatch may have sent; None where it certainly sent one."""
        return self.unconfirmed_signal if self.delivered_signal is None else None

    @property
    def ending_signal(self) -> str | None:
        """The signal that ended it, or by its status a child of it or its handler of the signal."""
        return self.exit_signal or _SIGNAL_OF_STATUS.get(self.exit_code or 0)

    @property
    def status_known(self) -> bool:
        return self.exit_code is not None or self.exit_signal is not None


def explain_exit(t: float, evidence: ExitEvidence) -> Exited:
    """Return the end at `t` (seconds) with its cause and the lines that support it, the deciding line first."""
    cause, reason = _decide(t, evidence)
    facts = _facts(t, evidence)
    if cause in _UNEXPLAINED:
        facts += _last_words(evidence.log_tail)
    lines = (reason, *(line for line in facts if line != reason))
    tail = evidence.log_tail if cause is not Cause.COMPLETED else ()
    return Exited(t, cause, lines, evidence.exit_code, evidence.exit_signal, evidence.checkpoint, tail)


def _last_words(tail: Sequence[str]) -> list[str]:
    """Tell the last error that the log names and its last line; only the last line where they are the same.

    An indented line may belong to the message of an error above it.
    """
    errors = [line for line in tail if _OF_ERROR.search(line)]
    error = next((line for line in reversed(errors) if not line[0].isspace()), errors[-1] if errors else None)
    words = [f"the log's last error: {printable(error)}"] if error is not None and error != tail[-1] else []
    return [*words, *(f"the log's last line: {printable(line)}" for line in tail[-1:])]


def lost_work_text(last: LastCheckpoint) -> str:
    """Say in a few words what an end without a save costs: `34 s of work lost, its last checkpoint is of epoch 7`."""
    lost, count = format_duration(last.lost_seconds), last.lost_generations
    if count is None or last.generation is None:
        return f"{lost} of work lost since its last checkpoint"
    parts = f"{index_text(count)} {last.unit}{'' if count == 1 else 's'}, " if count else ""
    return f"{parts}{lost} of work lost since its last checkpoint in {last.unit} {index_text(last.generation)}"


def _decide(t: float, e: ExitEvidence) -> tuple[Cause, str]:
    ours, maybe = e.delivered_signal, e.possibly_delivered_signal
    if (ours or maybe) and e.outlived_signal and e.exit_code == 0:
        return Cause.COMPLETED, e.outlived_signal
    if (sent := ours or maybe) and e.checkpoint_after_signal:
        doubt = "" if ours else ", which may have been sent"
        return Cause.SAVED, f"checkpoint complete after {sent.signal_or_hook}{doubt}: {e.checkpoint_after_signal}"
    if outside := _kernel_oom(e) or _full_tmpfs(e):
        return outside
    last = e.checkpoint
    has_saved = last is not None and last.lost_seconds <= max(LITTLE_WORK_SECONDS, e.save_seconds)
    if ours and last is not None and has_saved:
        return Cause.SAVED, f"{_before(last.lost_seconds, ours)}: {last.evidence}"
    lost = "" if last is None else f"; {lost_work_text(last)}"
    if ours and e.escalated:
        return Cause.UNSAVED, f"the interrupt had no effect in time and {ours.signal} had to follow{lost}"
    if ours:
        return Cause.UNSAVED, f"no checkpoint was seen after {ours.signal_or_hook}{lost}"
    if not maybe:
        return _ended_without_us(t, e)
    status, signal = _status(e), maybe.signal_or_hook  # The status alone shows whether the signal ended it.
    if e.ending_signal == maybe.signal:
        if last is not None and has_saved:
            return Cause.SAVED, f"{_before(last.lost_seconds, maybe)}, which may have been sent: {last.evidence}"
        return Cause.UNSAVED, f"{status}, as {signal} does, which may have been sent; no checkpoint was seen"
    return Cause.UNKNOWN, f"{status}; whether {signal} came before it is not known"


def _before(seconds: float, sent: Signalled | Signalling) -> str:
    return f"its own checkpoint was complete {format_duration(seconds)} before {sent.signal_or_hook}"


def _kernel_oom(e: ExitEvidence) -> tuple[Cause, str] | None:
    """Look for a kill by the kernel's OOM killer: in its record, and without a record in its counter."""
    record = e.kernel_record
    if record is not None:
        killed = e.exit_signal == "SIGKILL" or not e.status_known
        failed = bool(e.exit_code) or e.exit_signal is not None
        if (record.of_trainer and killed) or (record.of_child and failed):
            return (Cause.OOM_HOST if record.constraint == "global" else Cause.OOM_CGROUP), f"kernel: {record.line}"
        return None  # The record is of another process, and the kernel kills one at a time.
    worker_killed = e.log_oom is not None and cause_in_log(e.log_oom) is Cause.WORKER_KILLED and e.exit_code != 0
    if not (_killed_by_somebody(e) or worker_killed) or not e.cgroup_owned or not (e.oom_kills_delta or 0) > 0:
        return None
    return _tighter(e), f"the oom_kill counter of the trainer's own cgroup rose by {e.oom_kills_delta} at its end"


def _full_tmpfs(e: ExitEvidence) -> tuple[Cause, str] | None:
    """Look for a tmpfs without a page for the access that SIGBUS ended."""
    return _nearly_full(e) if e.ending_signal == "SIGBUS" else None


def _nearly_full(e: ExitEvidence) -> tuple[Cause, str] | None:
    for tmpfs, most_taken in e.tmpfs:
        if tmpfs.total_bytes - tmpfs.used_bytes <= max(NEARLY_FULL_SHARE * tmpfs.total_bytes, most_taken):
            used = f"{format_bytes(tmpfs.used_bytes)} of it at the last sample"
            return (
                Cause.TMPFS_FULL,
                f"{tmpfs.resource} was full ({format_bytes(tmpfs.total_bytes)}): {used}; {_status(e)}",
            )
    return None


def _killed_by_somebody(e: ExitEvidence) -> bool:
    """Whether it ended by a SIGKILL that memwatch did not send, or in an unknown way."""
    sent_kill = e.delivered_signal is not None and e.delivered_signal.signal == "SIGKILL"
    return not sent_kill and (e.exit_signal == "SIGKILL" or not e.status_known)


def _tighter(e: ExitEvidence) -> Cause:
    """Choose the limit with less headroom: the cgroup's counter rises for OOM kills of the host too."""
    if e.cgroup_headroom_bytes is None:
        return Cause.OOM_HOST
    host = e.host_headroom_bytes
    return Cause.OOM_CGROUP if host is None or e.cgroup_headroom_bytes <= host else Cause.OOM_HOST


def _ended_without_us(t: float, e: ExitEvidence) -> tuple[Cause, str]:
    status = _status(e)
    if e.exit_code and any(_NO_SPACE in line for line in e.log_tail) and (full := _nearly_full(e)):
        return full
    if e.log_oom is not None and _died_of_log_oom(t, e, e.log_oom):
        return cause_in_log(e.log_oom), _limit_text(e.log_oom) + _log_line(t, e.log_oom)
    scheduler = next((line for line in e.log_tail if _ENDED_BY_SCHEDULER.search(line)), None)
    if scheduler is not None and e.exit_code != 0 and e.kernel_record is None:
        return Cause.ENDED_BY_SCHEDULER, f"the log says: {printable(scheduler)}"
    if e.kernel_record is None and _killed_by_somebody(e) and (e.oom_kills_delta or 0) > 0:
        return Cause.UNKNOWN, f"{status}; the oom_kill counter of a shared cgroup rose, perhaps by another process"
    if e.exit_signal == "SIGKILL" and not e.kernel_log_read and e.kernel_record is None and e.oom_kills_delta is None:
        return Cause.UNKNOWN, f"{status}; neither the kernel's log nor an oom_kill counter could be read"
    if e.passed_on is not None and t - e.passed_on[0] <= PASSED_ON_SECONDS:
        return Cause.SIGNALLED, f"memwatch was sent {e.passed_on[1]} (Ctrl-C is SIGINT) and passed it on"
    if e.exit_signal is not None:
        return Cause.SIGNALLED, status
    if e.ending_signal not in (None, "SIGKILL"):  # 137 may be of the OOM killer: of a child's child, or nobody saw it
        return Cause.SIGNALLED, f"{status}, as after {e.ending_signal}"
    return (Cause.UNKNOWN if e.exit_code is None else Cause.FAILED if e.exit_code else Cause.COMPLETED), status


def cause_in_log(seen: OutOfMemorySeen) -> Cause:
    """The cause of an end that this line of the log explains; of a user's own rule by the name that it gives."""
    by_name = Cause.CUDA_OOM if "cuda" in seen.kind.lower() else Cause.MEMORY_ERROR
    return _CAUSES_IN_LOG.get(seen.kind, by_name)


def is_consequence(seen: OutOfMemorySeen, before: OutOfMemorySeen) -> bool:
    """Whether `seen` only says that a worker was killed, just after `before` said why, or what a scheduler said first.

    A scheduler's first line has its limit.
    """
    again = cause_in_log(seen) is Cause.OOM_SCHEDULER and cause_in_log(before) is Cause.OOM_SCHEDULER
    return (again or cause_in_log(seen) is Cause.WORKER_KILLED) and seen.t - before.t <= LAST_WORDS_SECONDS


# slurmstepd: error: Job 9046 exceeded memory limit (734003200 > 536870912), being killed
# =>> PBS: job killed: mem 8650752kb exceeded limit 8388608kb
_EXCEEDED = re.compile(r"exceeded (?:memory )?limit (?:\([0-9]{1,18} > ([0-9]{1,18})\)|([0-9]{1,15})kb)")


def _limit_of_scheduler(line: str) -> int | None:
    """Return the limit in bytes that a scheduler's line names; None without one. Before 18.08 Slurm wrote KiB."""
    if not (found := _EXCEEDED.search(line)):
        return None
    if found[2] or int(found[1]) % (1 << 20) or int(found[1]) < 1 << 26:  # Slurm's limits are whole MiB
        return int(found[2] or found[1]) << 10
    return int(found[1])


def _limit_text(seen: OutOfMemorySeen) -> str:
    """`killed by Slurm at its limit of 536.9 MB; `, empty for what is no scheduler's."""
    if cause_in_log(seen) is not Cause.OOM_SCHEDULER:
        return ""
    limit = _limit_of_scheduler(seen.line)
    at = "its memory limit" if limit is None else f"its limit of {format_bytes(limit)}"
    return f"killed by {seen.kind.split()[0]} at {at}; "


def _died_of_log_oom(t: float, e: ExitEvidence, log_oom: OutOfMemorySeen) -> bool:
    """Whether the log ends with memory that ran out, and nothing contradicts that it was the cause."""
    is_kill = cause_in_log(log_oom) in _KILLS
    signals = (*_ALLOCATION_SIGNALS, "SIGKILL") if is_kill else _ALLOCATION_SIGNALS
    if e.survived_oom_reason or e.exit_code == 0 or e.exit_signal not in signals:
        return False
    if e.exit_signal == "SIGTERM" and e.passed_on is not None and not is_kill:
        return False  # memwatch was asked to stop it
    return t - log_oom.t <= (LAST_WORDS_SECONDS if e.status_known else LAST_WORDS_UNCONFIRMED_SECONDS)


def _status(e: ExitEvidence) -> str:
    if e.exit_signal is not None:
        return f"ended by {e.exit_signal}"
    if e.ending_signal == "SIGKILL":
        return "exit status 137, as a shell reports a child that SIGKILL ended"
    return f"exit status {e.exit_code}" if e.exit_code is not None else "its exit status could not be read"


def _log_line(t: float, seen: OutOfMemorySeen) -> str:
    return f"log, {max(0.0, t - seen.t):.1f} s before the end: {seen.kind}: {seen.line}"


def _facts(t: float, e: ExitEvidence) -> list[str]:
    """List every fact in a line of its own, so that a reader can judge."""
    lines = [_status(e)]
    if (sent := e.signalled) is not None:
        done = "started" if sent.instead else "sent"
        if sent.dry_run:
            done = f"would have {done} (dry run)"
        elif sent.error:
            done = f"could not send ({sent.error})"
        lines.append(f"memwatch {done} {sent.signal_or_hook} {max(0.0, t - sent.t):.1f} s before the end")
    if (planned := e.unconfirmed_signal) is not None:
        plan = f"memwatch was about to send {planned.signal_or_hook} {max(0.0, t - planned.t):.1f} s before the end"
        lines.append(f"{plan}; whether it did is not known")
    if e.delivered_signal and e.checkpoint_after_signal:
        lines.append(f"checkpoint complete after {e.delivered_signal.signal_or_hook}: {e.checkpoint_after_signal}")
    elif e.checkpoint is not None:
        before = format_duration(e.checkpoint.age_seconds)
        lines.append(f"its latest checkpoint was complete {before} before the end: {e.checkpoint.evidence}")
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
            lines.append(f"the trainer survived it: {e.survived_oom_reason}")
    return lines


# --- the log after a failed allocation --------------------------------------------------------------------------------

TAIL_LINES, TAIL_CHARS = 12, 200  # of the log that are kept: a traceback of a few calls (chosen)
AFTERMATH_LINES = 20  # Lines after a failed allocation in which a program says that it goes on (chosen).
TRACEBACK_LINES = 400  # The longest traceback that is searched for its first line (chosen).
SHOWN_CHARS = 4096  # Characters of a line in which patterns are searched: a bound on the time.
_LINE_ENDS = re.compile(r"[\r\n]+")
# What launchers put before each line: [rank0]: of torchrun, `trainer-1  | ` of docker compose, (raylet pid=312) of Ray
_PROCESS_PREFIX = re.compile(
    r"^(?:\[(?:rank)?\d+\]:? ?|[\w.-]{1,60} +\| |\((?:[\w.:-]{1,80} )?pid=\d{1,8}(?:, ip=[\w.:]{1,45})?\) ?"
    r"|[A-Z][a-z]{2} [ \d]\d [\d:]{8} [\w.-]{1,80} [\w.@/-]{1,80}(?:\[\d{1,8}\])?: ){1,3}"  # syslog, journald
)
DYING_LINES = 4  # Lines between the one that says that a program dies and the one that names memory (chosen).
MESSAGE_LINES = 60  # Lines of an exception's own message, of which one names the failed allocation (chosen).
_RAISED = (None, 1, 2, 17)  # status where an exception ends a Python, Java, R or Julia; a Go; a process of torch_xla
_EXCEPTION = re.compile(
    r"^(?:\w+\.)*\w+(?:Error|Exception|Interrupt|Timeout|Expired)(?=:\s|$)|^SystemExit(?=:\s|$)|^Fatal Python error"
)
# An exception after such a line is not another cause: it led to this one, or came as the interpreter shut down.
_LED_TO = re.compile(
    r"^(?:During handling of the above exception|The above exception was the direct cause|"
    r"Exception ignored in|Error in atexit)"
)
# Exceptions by which a launcher, a pool or another rank reports that another process has died.
_OF_OTHERS = re.compile(
    r"ChildFailedError|CalledProcessError|Process(?:Raised|Exited)Exception|BrokenProcessPool|BrokenPipeError|"
    r"Connection\w*Error|EOFError|Dist\w*Error|RayTaskError|\w*Actor\w*Error|WorkerCrashed|TerminatedWorker|NodeDied|"
    r"DataLoader worker|Pin memory thread exited|[Rr]oot cause above|Fatal Python error: Aborted"
)
_GOES_ON = re.compile(
    r"\b(?:retry\w*|caught|halv\w+|skip\w*|ignor\w+|recover\w*|fall\w* back|continuing|left out|handled)\b", re.I
)
_ADVICE = re.compile(
    r"^(?:please|[0-9]\. (?:if|try)|if (?:yes|no|not|so)|the problem persists)\b"
    r"|\bto (?:enable|disable|adjust|avoid)\b",
    re.I,
)
# C++, Python, Rust, Node, glog
_ABORTS = re.compile(
    r"terminate called|libc\+\+abi: terminating|Fatal Python error: Aborted|^memory allocation of \d+ bytes failed|"
    r"^FATAL ERROR:|^F\d{4,8} [\d:.]{8,15} +\d+ "
)
# What a launcher prints when the program has ended: what follows is its own.
_SAYS_ENDED = re.compile(
    r"(?i)\b(?:fail|exit|terminat|finish)\w{0,3} with (?:an? )?(?:exit|return|status|error)? ?(?:code|status)\b"
    r"|\brank \d+ (?:died from|exited due to) signal\b|\bMain process exited, code="
)
# What a shell prints of a command that a signal ended: `Killed`, `a.sh: line 3:  481 Aborted  (core dumped) ./train`;
# and Torque of a job's processes: `Process "python", pid 4039488, rss 5211348992, vmem 7325782016`.
_SHELL_REPORTS = re.compile(
    r'^Process ".{1,80}", pid \d+, rss \d+|'
    r"^(?:\S+: line \d+: +\d+ |\[\d+\]\+? +(?:\d+ +)?|\w+: )?"
    r"(?i:abort(?:ed)?|killed|terminated|segmentation fault|bus error)(?!\w|:)"
)
# Java, XLA, Go, Julia, Node, Fortran, Lua
_DIES = re.compile(
    r"^Exception in (?:thread |device=)|^fatal error: |^ERROR: LoadError: |^FATAL ERROR:|^forrtl: severe \(|^PANIC: "
)
_TRACEBACK = re.compile(r'Traceback \(most recent call last\)|^\s+File "[^"]{1,400}", line \d')  # or a frame of it
_MATLAB_FRAME = re.compile(r"^Error in .{1,200} \(line \d+\)$")  # the next line is that line of the program
# More of a failure: words of it, stacks (C++, NCCL, R), what takes memory, the names of processes, lines without words.
_OF_FAILURE = re.compile(
    r"(?i)\b(?:error|exception|fail|unable|abort|traceback|stack ?trace|hint:|halted|shut\w* down|terminat)"
    r"|\(0x[0-9a-f]{4,16}\)$|:\d{1,6} -> \d{1,3}$|^#|^Calls: |\bmemory (?:pool )?usage: "
    r"|^process [\w-]{1,60}:$|^\W*$|^\[\[|\bhbm (?:usage|requirement)\b|^Output size unknown"
)


def survival_reason(log: str, seen: OutOfMemorySeen, exit_code: int | None, exit_signal: str | None) -> str:
    """Say in a few words why what `seen` says did not end the program; empty when it may have.

    A program that dies of it prints that last: the end of a traceback, `terminate called`, or a message of its own. A
    program that survived says that it goes on, raises another exception, or exits with a status of its choice. Where
    both are possible, it survived: the exit is then reported as failed without a cause. What kills a program or its
    workers prints when it likes, and the status is its own. `log` is the end of the log, or empty when it cannot be
    read; the line of `seen` may be cut.
    """
    if not log:
        return ""
    lines = [_PROCESS_PREFIX.sub("", logged) for logged in _LINE_ENDS.split(log) if logged.strip()]
    start = _PROCESS_PREFIX.sub("", seen.line).rstrip("…")
    lines = [logged for logged in lines if not _SHELL_REPORTS.match(logged)]
    at = next((i for i in reversed(range(len(lines))) if start in printable(lines[i], SHOWN_CHARS)), None)
    if at is None:
        return "its line is not at the end of the log"
    was_killed = cause_in_log(seen) in _KILLS
    terminated = exit_signal == "SIGTERM" and not was_killed
    if was_killed and exit_signal is not None:
        aftermath = list(takewhile(lambda line: not _SAYS_ENDED.search(line), lines[at + 1 :]))
        died = len(aftermath) < AFTERMATH_LINES
        return "" if died else "nothing in the log says that the program ended because of it"
    if was_killed or cause_in_log(seen) is Cause.WORKER_KILLED or "bus error" in seen.line.lower():  # of a worker
        return _continued(lines[at:])
    aborts = any(_ABORTS.search(logged) for logged in lines[max(0, at - 1) :])
    by_signal = (exit_signal is not None and not terminated) or _SIGNAL_OF_STATUS.get(exit_code or 0) == "SIGABRT"
    if by_signal and aborts:
        return ""
    dies = any(map(_DIES.match, lines[max(0, at - DYING_LINES) : at + 1]))
    if not by_signal and exit_code not in _RAISED and not terminated and not dies:
        return "a program that an exception ends has another exit status"
    if survived := _continued(lines[at:]):
        return survived
    if not by_signal and (aborts or dies or _is_in_traceback(lines, at)):
        return ""
    # A message without a traceback was the cause only when nothing follows it but more of the failure.
    until_end = takewhile(lambda line: not _SAYS_ENDED.search(line), lines[at + 1 :])
    own = (line for before, line in pairwise(("", *until_end)) if not _MATLAB_FRAME.match(before))
    others = (line for line in own if not line[:1].isspace() and not _ADVICE.search(line))
    after = next((line for line in others if not _OF_FAILURE.search(line)), None)
    return "" if after is None else f"the log went on: {printable(after)}"


def last_lines(log: str) -> tuple[str, ...]:
    """The last TAIL_LINES with text, printable, indented as in the log; of a line that was redrawn, how it was last."""
    drawn = (line.rstrip("\r").rpartition("\r")[2].rstrip() for line in log.split("\n"))
    shown = (replace_unprintable(TERMINAL_ESCAPE.sub("", line))[:TAIL_CHARS] for line in drawn)
    return tuple([line for line in shown if line][-TAIL_LINES:])


def _is_in_traceback(lines: Sequence[str], at: int) -> bool:
    """Whether line `at` is the exception that ends a traceback, or a part of its message.

    The full name of a class is enough: where the beginning of a long traceback is not in the log any more.
    """
    if (exception := _EXCEPTION.match(lines[at])) is not None and "." in exception[0]:
        return True
    ends = (
        i
        for i in range(at, max(0, at - MESSAGE_LINES), -1)
        if lines[i - 1][:1].isspace() and not lines[i][:1].isspace()
    )
    end = next((i for i in ends if i == at or _EXCEPTION.match(lines[i])), 0)
    return end > 0 and any(map(_TRACEBACK.search, lines[max(0, end - TRACEBACK_LINES) : end]))


def _continued(lines: Sequence[str]) -> str:
    """Say how the program went on after the first of these lines, or which exception ended it later; else empty."""
    aftermath = (line for line in lines[:AFTERMATH_LINES] if not _LED_TO.match(line) and not _ADVICE.search(line))
    if (goes_on := next((line for line in aftermath if _GOES_ON.search(line)), None)) is not None:
        return f"the program went on: {printable(goes_on)}"
    led_to = False
    for line in lines[1:]:
        led_to = led_to or bool(_LED_TO.match(line))
        if _EXCEPTION.match(line) and not _OF_OTHERS.search(line):
            if not led_to:
                return f"another exception followed: {printable(line)}"
            led_to = False
    return ""
