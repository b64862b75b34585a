"""What may be said of an end, from what a test did and what the kernel told it; memwatch is not asked. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

SAVED, UNSAVED, OOM = "interrupted_saved", "interrupted_unsaved", "oom_cgroup"
VERDICTS = ("true", "vague", "unknown", "nothing", "wrong")


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one end. Signals by name."""

    code: int | None = None  # exit status, as the kernel told the test; None: a signal ended it, or it is not known
    signal: str | None = None
    sent: tuple[str, ...] = ()  # to the trainer, by the test
    heard: tuple[str, ...] = ()  # by the trainer, whoever sent them
    kills: int = 0  # by the OOM killer in the trainer's own cgroup, none of them of another process
    child_killed: bool = False  # by the OOM killer; the trainer is a shell, and 137 is all that it says
    failure: str = ""  # "memory_error", "cuda_oom": a failed allocation ended it
    whole: bool = False  # a checkpoint that it began when it was told to is complete

    @property
    def killed_by_kernel(self) -> bool:
        """Nobody else can have sent that SIGKILL."""
        return self.signal == "SIGKILL" and "SIGKILL" not in self.sent and self.kills > 0

    @property
    def interrupted(self) -> bool:
        """By memwatch: it heard, or died of, a signal that the test did not send."""
        foreign = self.signal is not None and self.signal in ("SIGINT", "SIGTERM", "SIGKILL")
        died_of_it = foreign and self.signal not in self.sent and not self.killed_by_kernel
        return died_of_it or bool(Counter(self.heard) - Counter(self.sent))


@dataclass(frozen=True, slots=True)
class Truth:
    """Causes that tell it, and those that are no lie but leave out what could be known."""

    right: frozenset[str]
    vague: frozenset[str] = frozenset()


def truth(facts: Facts) -> Truth:
    """What may be said of it."""
    if facts.interrupted and facts.whole:
        return _truth(SAVED, vague=(OOM,) if facts.killed_by_kernel else ())
    if facts.killed_by_kernel:
        return _truth(OOM, vague=(UNSAVED,) if facts.interrupted else ())
    if facts.interrupted:
        return _truth(UNSAVED)
    if facts.child_killed:
        return _truth(OOM, vague=("failed",))
    if facts.failure:
        return _truth(facts.failure, vague=("signalled" if facts.signal else "failed",))
    if facts.signal is not None:
        return _truth("signalled")
    return _truth("failed" if facts.code else "completed")


def _truth(right: str, vague: tuple[str, ...] = ()) -> Truth:
    return Truth(frozenset((right,)), frozenset(vague))


def judge(said: dict[str, object] | None, facts: Facts) -> str:
    """One of VERDICTS, of what memwatch said: the fields `cause`, `exit_code` and `signal`; None: nothing."""
    if said is None:
        return "nothing"
    status, known = (said.get("exit_code"), said.get("signal")), (facts.code, facts.signal)
    if status != (None, None) and known != (None, None) and status != known:
        return "wrong"
    told, cause = truth(facts), said["cause"]
    if cause == "unknown":
        return "unknown"
    return "true" if cause in told.right else "vague" if cause in told.vague else "wrong"
