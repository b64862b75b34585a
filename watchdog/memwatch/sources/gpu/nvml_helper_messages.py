"""The messages between memwatch and its NVML helper, each one JSON text.

The helper uses `json` alone: msgspec, which memwatch reads them with, would double its size.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from memwatch.core.measurements import GpuMemory
from memwatch.errors import AbsentError, SourceError

MAX_HELPER_MESSAGE_BYTES = 1 << 20  # bytes; more than such a socket takes


@dataclass(frozen=True, slots=True)
class HelperSettings:
    """The first message: what all questions have in common."""

    root: str  # as for NvmlPidResolver
    visible: str | None  # the trainer's CUDA_VISIBLE_DEVICES
    known: tuple[GpuMemory, ...]  # the trainer's, as of an earlier helper's last answer

    @classmethod
    def decode(cls, message: bytes) -> HelperSettings:
        facts = json.loads(message)
        known = tuple(GpuMemory(**{**gpu, "pids": tuple(gpu["pids"])}) for gpu in facts.pop("known"))
        return cls(**facts, known=known)


@dataclass(frozen=True, slots=True)
class NvmlAnswer:
    """The trainer's GPUs, or why they cannot be read."""

    gpus: tuple[GpuMemory, ...]
    reason: str = ""  # why they cannot be read; empty: they can
    hint: str = ""
    is_absent: bool = False  # the reason is that there is no NVML or no driver
    restart_helper: bool = False  # another helper must initialize NVML again

    @classmethod
    def from_error(cls, error: SourceError, restart_helper: bool) -> NvmlAnswer:
        return cls((), str(error), error.hint, isinstance(error, AbsentError), restart_helper)

    @property
    def error(self) -> SourceError | None:
        kind = AbsentError if self.is_absent else SourceError
        return kind(self.reason, self.hint) if self.reason else None

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()
