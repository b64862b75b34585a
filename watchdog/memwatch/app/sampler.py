"""Takes a sample: calls each reader once; one that fails is listed with its reason and does not stop the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from memwatch.core.interfaces import Reader
from memwatch.core.measurements import (
    HOST,
    CgroupMemory,
    GpuMemory,
    HostMemory,
    Sample,
    SchedulerLimit,
    TmpfsMemory,
    TreeMemory,
    UnavailableSource,
)
from memwatch.core.memory_accounting import accounting_method, usages
from memwatch.errors import AbsentError, SourceError, TargetGoneError

T = TypeVar("T")

ABSENT_SECONDS = 5.0  # until a source that this machine does not have is tried again
_NOT_ABSENT = (-math.inf, UnavailableSource("", ""))


class Sampler:
    """Composes the readers of one trainer."""

    def __init__(
        self,
        tree: Reader[TreeMemory],
        cgroup: Reader[CgroupMemory],
        host: Reader[HostMemory],
        gpus: Reader[tuple[GpuMemory, ...]] | None,
        limit_bytes: int | None,
        *,
        tmpfs: Reader[tuple[TmpfsMemory, ...]] | None = None,
        scheduler: SchedulerLimit | None = None,
        gpus_expected: bool = False,
    ) -> None:
        """`gpus`, None when GPUs are not read, returns the same tuple again while it has no newer reading.

        With `gpus_expected` a missing GPU driver is a failure, not a normal state.
        """
        self._tree, self._cgroup, self._host, self._gpus = tree, cgroup, host, gpus
        self._tmpfs, self._scheduler = tmpfs, scheduler
        self._limit_bytes, self._gpus_expected = limit_bytes, gpus_expected
        self._last_gpus: tuple[GpuMemory, ...] | None = None
        self._absent: dict[str, tuple[float, UnavailableSource]] = {}  # by reader: when to try again, and the reason

    def sample(self, now: float) -> Sample:
        """Read all that can be read now; `unread` names the rest. TargetGoneError when the trainer has no memory.

        A reading of GPUs stays in the sample until there is a newer one, but is in `usages` only once: fed twice, it
        would look like a standstill followed by a jump.
        """
        unread: list[UnavailableSource] = []
        tree = self._attempt(self._tree, now, unread)
        if tree is not None and tree.stale:
            unread.append(UnavailableSource(self._tree.name, tree.stale))
        cgroup = self._attempt(self._cgroup, now, unread)
        host = self._attempt(self._host, now, unread)
        gpus = (self._attempt(self._gpus, now, unread, self._gpus_expected) or ()) if self._gpus else ()
        tmpfs = (self._attempt(self._tmpfs, now, unread) or ()) if self._tmpfs else ()
        pools = usages(tree, cgroup, host, gpus, self._limit_bytes, tmpfs=tmpfs, scheduler=self._scheduler)
        if gpus is self._last_gpus:
            known = {gpu.resource for gpu in gpus}
            pools = tuple(usage for usage in pools if usage.resource not in known)
        self._last_gpus = gpus
        bound = next((usage.limit for usage in pools if usage.resource == HOST), None)
        accounting = accounting_method(tree, cgroup, gpus, bound)
        return Sample(pools, tree, cgroup, host, gpus, tuple(unread), accounting, tmpfs)

    def _attempt(
        self, reader: Reader[T], now: float, unread: list[UnavailableSource], expected: bool = False
    ) -> T | None:
        retry_t, absent = self._absent.get(reader.name, _NOT_ABSENT)
        if now < retry_t:
            unread.append(absent)
            return None
        read: Callable[[float], T] = reader.read_memory
        try:
            return read(now)
        except TargetGoneError:
            raise
        except SourceError as error:
            failed = UnavailableSource(reader.name, str(error), absent=isinstance(error, AbsentError) and not expected)
            if failed.absent:
                self._absent[reader.name] = (now + ABSENT_SECONDS, failed)
            unread.append(failed)
        except Exception as error:  # a bug in one reader is reported and does not stop the watch
            unread.append(UnavailableSource(reader.name, f"internal error: {type(error).__name__}: {error}"))
        return None

    def close(self) -> None:
        readers: Sequence[Reader[object] | None] = (self._tree, self._cgroup, self._host, self._gpus, self._tmpfs)
        for reader in readers:
            if reader is not None:
                reader.close()
