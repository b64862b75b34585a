"""GPU memory of the trainer, without ever waiting long for NVML; nothing is imported for it where no driver is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memwatch.core.model import GpuMemory
from memwatch.errors import AbsentError, SourceError

if TYPE_CHECKING:
    from memwatch.sources.nvml import Call, Helper

# One of these stands wherever an NVIDIA driver does: on Linux, in containers, on WSL 2, on Jetson. Looking for them
# costs 10 us; importing pynvml to hear "driver not loaded" costs 5 MB.
DRIVER_TRACES = (
    "/dev/nvidiactl",
    "/proc/driver/nvidia",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/dev/nvhost-ctrl-gpu",
    "/dev/nvgpu",
)
NO_DRIVER_RETRY_S = 60.0
LONGEST_BACKOFF_S = 60.0


class GpuReader:
    """Reader of the trainer's GPUs: those on which NVML lists a PID of its tree, else those it was given.

    The loop waits for NVML at most `patience_s`; a slower answer comes with a later read, and one that takes longer
    than `deadline_s` is an error until it comes. Readings are no closer than `pace_s`; the last stands in between.
    """

    name = "nvml"

    def __init__(
        self,
        tree_pids: Callable[[], frozenset[int]],
        environ: Mapping[str, str],
        *,
        root: str = "/proc",
        host_root: str | None = None,
        driver_traces: Sequence[str] = DRIVER_TRACES,
        pace_s: float = 1.0,
        patience_s: float = 0.1,
        deadline_s: float = 2.0,
    ) -> None:
        self._tree_pids, self._traces = tree_pids, driver_traces
        self._roots, self._visible = (root, host_root), environ.get("CUDA_VISIBLE_DEVICES")
        self._pace_s, self._patience_s, self._deadline_s = pace_s, patience_s, deadline_s
        self._helper: Helper | None = None
        self._call: Call | None = None
        self._next_t = float("-inf")
        self._failures = 0
        self._worked = False
        self._last: tuple[GpuMemory, ...] = ()
        self._error: SourceError | None = None

    def read(self, now: float) -> tuple[GpuMemory, ...]:
        """The trainer's GPUs, () when it uses none. AbsentError where there is no driver, SourceError on failure."""
        self._collect()
        if self._call is None and now >= self._next_t:
            self._begin(now)
            self._collect()
        if self._call is not None and now - self._call.now >= self._deadline_s:
            self._last = ()
            raise SourceError(
                f"NVML does not answer within {self._deadline_s:g} s", "a GPU may hang: look at dmesg for Xid"
            )
        if self._error is not None:
            raise type(self._error)(str(self._error), self._error.hint)
        return self._last

    def close(self) -> None:
        """Give NVML's handles back, unless it hangs."""
        if self._helper is not None:
            self._helper.close(0.0 if self._call is not None else self._patience_s)
        self._helper = None

    def _begin(self, now: float) -> None:
        if self._helper is None:
            if not any(Path(trace).exists() for trace in self._traces):
                self._next_t = now + NO_DRIVER_RETRY_S
                self._error = AbsentError("no NVIDIA driver here")
                return
            from memwatch.sources.nvml import Helper

            self._helper = Helper(*self._roots, self._visible)
        self._call = self._helper.submit(self._tree_pids(), now)
        self._call.done.wait(self._patience_s)

    def _collect(self) -> None:
        """Take in what the helper has found, if it is done."""
        call = self._call
        if call is None or not call.done.is_set():
            return
        self._call = None
        if call.error is None:
            self._last, self._error, self._failures, self._worked = call.gpus, None, 0, True
            self._next_t = call.now + self._pace_s
            return
        self._last = ()
        self._next_t = call.now + min(LONGEST_BACKOFF_S, max(self._pace_s, 2.0**self._failures))
        self._failures = min(self._failures + 1, 10)
        if not isinstance(call.error, SourceError):
            raise call.error
        self._error = call.error
        if isinstance(call.error, AbsentError):
            self._settle_absence(call)

    def _settle_absence(self, call: Call) -> None:
        """No driver from the start is normal; one that went away is a failure."""
        if self._worked:
            self._error = SourceError(str(call.error))
        else:
            self._next_t = call.now + NO_DRIVER_RETRY_S
