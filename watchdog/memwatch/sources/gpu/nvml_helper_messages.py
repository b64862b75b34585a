"""What memwatch and its NVML helper say to each other: one JSON text a message, over a socket that keeps them apart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from memwatch.core.measurements import GpuMemory
from memwatch.errors import AbsentError, SourceError
from memwatch.sources.kernel_files import TOO_LARGE

MAX_HELPER_MESSAGE_BYTES = 1 << 20  # bytes; more than such a socket takes


@dataclass(frozen=True, slots=True)
class _WireAnswer:
    """An answer as it travels."""

    gpus: tuple[GpuMemory, ...]
    error: tuple[bool, str, str] | None  # whether NVML is absent, why, a hint
    last: bool


@dataclass(frozen=True, slots=True)
class Begin:
    """The first message: what all questions have in common."""

    root: str  # as for PidMap
    host_root: str | None
    visible: str | None  # the trainer's CUDA_VISIBLE_DEVICES
    known: tuple[GpuMemory, ...]  # the trainer's, as last seen by a helper before

    def encode(self) -> bytes:
        """As bytes."""
        return json.dumps([self.root, self.host_root, self.visible, _rows(self.known)]).encode()

    @classmethod
    def decode(cls, message: bytes) -> Begin:
        """From bytes."""
        root, host_root, visible, known = json.loads(message)
        return cls(root, host_root, visible, _gpus(known))


@dataclass(frozen=True, slots=True)
class NvmlAnswer:
    """The trainer's GPUs, or why they cannot be read."""

    gpus: tuple[GpuMemory, ...] = ()
    error: SourceError | None = None
    restart_helper: bool = False  # NVML is to be begun anew, by another helper

    def encode(self) -> bytes:
        """As bytes."""
        error = self.error
        told = None if error is None else (isinstance(error, AbsentError), str(error), error.hint)
        return json.dumps(asdict(_WireAnswer(self.gpus, told, self.restart_helper))).encode()

    @classmethod
    def decode(cls, message: bytes) -> NvmlAnswer:
        """From bytes; SourceError for what no helper says: the figures are a driver's, and the loop rests on them."""
        from memwatch.system import serialization  # the helper, which asks for no answer, is the smaller without it

        try:
            told = serialization.from_json(message, _WireAnswer)
        except serialization.SerializationError as error:
            raise SourceError(f"NVML's helper answers what is no answer: {error}") from error
        for gpu in told.gpus:
            sizes = (gpu.used_bytes, gpu.device_used_bytes, gpu.total_bytes, *gpu.pids)
            if not all(size is None or 0 <= size < TOO_LARGE for size in sizes):
                raise SourceError(f"NVML's helper tells figures of {gpu.resource} that cannot be")
        kind = AbsentError if told.error is not None and told.error[0] else SourceError
        return cls(told.gpus, None if told.error is None else kind(*told.error[1:]), told.last)


def encode_question(tree: Iterable[int], t: float, wait_s: float) -> bytes:
    """Which GPUs do these processes use at t, in so many seconds?"""
    return json.dumps([list(tree), t, wait_s]).encode()


def decode_question(message: bytes) -> tuple[frozenset[int], float, float]:
    """The PIDs, the time of the question, and the seconds until then."""
    tree, t, wait_s = json.loads(message)
    return frozenset(tree), t, wait_s


def _rows(gpus: Iterable[GpuMemory]) -> list[list[Any]]:
    return [[getattr(gpu, name) for name in GpuMemory.__slots__] for gpu in gpus]


def _gpus(rows: Iterable[Sequence[Any]]) -> tuple[GpuMemory, ...]:
    return tuple(_gpu(*row) for row in rows)


def _gpu(*facts: Any) -> GpuMemory:
    *others, pids = facts
    return replace(GpuMemory(*others), pids=tuple(pids))
