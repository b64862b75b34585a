"""The error tree: each class knows its exit code, each error carries a hint that a tired operator can act on."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What `memwatch` exits with (`memwatch run` exits with the trainer's own status instead)."""

    ENDED = 0  # the trainer ended with status 0, or the cause of its end is unknown
    INTERNAL = 1  # a bug in memwatch
    USAGE = 2  # bad usage or configuration
    CANNOT_ATTACH = 3  # no such process, no permission, or not exactly one match
    SAVED = 10  # memwatch interrupted the trainer and it saved
    UNSAVED = 11  # memwatch interrupted it, and it died without saving
    OOM_KILLED = 12  # the kernel's OOM killer, or the batch scheduler at its memory limit, killed it
    FAILED = 13  # it failed by itself: error status, MemoryError, CUDA OOM, a full tmpfs, or a signal that was not ours
    STOPPED = 14  # memwatch was asked to stop while the trainer runs on


class MemwatchError(Exception):
    """Something a user can mend; `hint` says how."""

    exit_code = ExitCode.INTERNAL

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ConfigError(MemwatchError):
    """A flag or a configuration key that cannot be used."""

    exit_code = ExitCode.USAGE
    others: tuple[ConfigError, ...] = ()  # what else is wrong with the same configuration


class AttachError(MemwatchError):
    """The trainer cannot be watched."""

    exit_code = ExitCode.CANNOT_ATTACH


class NoTrainerError(AttachError):
    """Nothing is what was named: not yet, or no longer. `memwatch serve` waits for it."""


class SourceError(MemwatchError):
    """A reading failed this time; the loop goes on without it."""


class AbsentError(SourceError):
    """What is read does not exist on this machine: a normal state, a GPU driver for one."""


class TargetGoneError(SourceError):
    """The process ended: a normal outcome."""


class HistoryError(MemwatchError):
    """The history file cannot be used; watching goes on without it."""
