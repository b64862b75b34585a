"""GPU memory of the trainer, without ever waiting for NVML; nothing is imported or started where no driver is."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from memwatch.core.measurements import GpuMemory
from memwatch.errors import AbsentError, SourceError

if TYPE_CHECKING:
    from memwatch.sources.gpu.nvml_helper_client import NvmlHelper
    from memwatch.sources.gpu.trainer_gpus import GpuOpenDetector

# One of these stands wherever an NVIDIA driver does: on Linux, in containers, on WSL 2, on Jetson. Looking for them
# costs 10 us; a process that imports pynvml to hear "driver not loaded" costs 80 ms.
DRIVER_TRACES = (
    "/dev/nvidiactl",
    "/proc/driver/nvidia",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/dev/nvhost-ctrl-gpu",
    "/dev/nvgpu",
)
NO_DRIVER_RETRY_S = 60.0
NO_LIBRARY_RETRY_S = 300.0  # a driver is there and NVML is not: asking costs a process
MAX_BACKOFF_S = 120.0
ASK_AHEAD_S = 0.05  # before a look NVML is asked: an answer takes a few ms, and the look should not be older
MIN_INTERVAL_S = 0.25  # between two questions
UNUSED_INTERVAL_S = 5.0  # the same while the trainer uses no GPU
# For an answer; the first answer of a driver that nobody else uses takes seconds for each GPU.
KILL_AFTER_S = 30.0
STOP_GRACE_S = 2.0  # for nvmlShutdown and the end of a helper that is stopped
CLOSE_GRACE_S = 0.3  # the same when memwatch ends
MAX_KILL_AFTER_S = 600.0
STOP_HELPER_AFTER_S = 300.0  # without a GPU of the trainer's
IDLE_RETRY_S = 600.0


class GpuReader:
    """Reader of the trainer's GPUs: those on which NVML lists a PID of its tree, else those it was given.

    A helper process asks NVML, and `read` takes what has been answered by then: the same tuple as before while nothing
    has, and SourceError when an answer takes longer than `deadline_s`. A helper that hangs for long is killed and
    replaced, ever more rarely, and NVML that fails is begun anew by another. While the trainer has used no GPU for
    STOP_HELPER_AFTER_S there is no helper, until one of its processes opens a GPU's device, and every IDLE_RETRY_S.
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
        patience_s: float = 0.0,
        deadline_s: float = 2.0,
        helper: NvmlHelper | None = None,
    ) -> None:
        """`read` asks by itself `pace_s` after the last question, and waits `patience_s` for that answer."""
        self._tree_pids, self._traces = tree_pids, driver_traces
        self._roots, self._visible = (root, host_root), environ.get("CUDA_VISIBLE_DEVICES")
        self._pace_s, self._patience_s, self._deadline_s = pace_s, patience_s, deadline_s
        self._helper = helper  # None: it is made when it is first needed
        self._may_ask_t = self._must_ask_t = self._used_t = float("-inf")  # may ask, must ask, a GPU was last in use
        self._kill_after_s = KILL_AFTER_S
        self._failures = 0
        self._has_worked = False
        self._last: tuple[GpuMemory, ...] = ()
        self._last_used: tuple[GpuMemory, ...] = ()  # the last that were the trainer's
        self._error: SourceError | None = None
        self._open_detector: GpuOpenDetector | None = None

    # --- what the loop asks for

    @property
    def pids(self) -> frozenset[int]:
        """The processes that work for this reader."""
        return frozenset() if self._helper is None else self._helper.pids

    def request_before_sample(self, now: float, look_s: float) -> None:
        """Let the helper, where there is one, ask NVML shortly before a look that is so far away."""
        if self._running_helper is not None:
            self.request(now, max(look_s - ASK_AHEAD_S, look_s / 2))

    def request(self, now: float, wait_s: float = 0.0) -> None:
        """Put a question for in so many seconds, unless one is open or that is too early for one."""
        t = now + wait_s
        if self._is_waiting or t < self._may_ask_t:
            return
        self._may_ask_t, self._must_ask_t = t + min(MIN_INTERVAL_S, self._pace_s), t + self._pace_s
        try:
            helper = self._running_helper or self._start_helper(now)
            if helper is not None:
                helper.ask(self._tree_pids(), t, wait_s)
        except SourceError as error:
            self._fail(now, error)

    def read_memory(self, now: float) -> tuple[GpuMemory, ...]:
        """The trainer's GPUs, () when it uses none. AbsentError where there is no driver, SourceError on failure."""
        if self._helper is None and now < self._must_ask_t:  # no driver here
            return self._latest_or_raise()
        if self._helper is not None:
            self._helper.reap(now)
        self._receive_answer(now)
        if self._open_detector is not None and self._open_detector.check(now, self._tree_pids()):
            self._may_ask_t = self._must_ask_t = self._used_t = now
            self._open_detector = None
        if not self._is_waiting and now >= self._must_ask_t:
            self.request(now)
            self._wait_for_answer(now)
        self._check_deadline(now)
        return self._latest_or_raise()

    def _latest_or_raise(self) -> tuple[GpuMemory, ...]:
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._last

    def close(self) -> None:
        """Give NVML's handles back; a helper that hangs is killed. Takes half a second at most."""
        if self._helper is not None:
            self._helper.close(grace_seconds=CLOSE_GRACE_S, killed_seconds=0.05)

    # --- the helper

    @property
    def _running_helper(self) -> NvmlHelper | None:
        return self._helper if self._helper is not None and self._helper.is_running else None

    @property
    def _is_waiting(self) -> bool:
        return self._helper is not None and self._helper.asked_t is not None

    def _start_helper(self, now: float) -> NvmlHelper | None:
        if not any(os.path.exists(trace) for trace in self._traces):  # noqa: PTH110 - a Path interns its parts each time
            self._may_ask_t = self._must_ask_t = now + NO_DRIVER_RETRY_S
            self._last = ()
            gone = SourceError("the NVIDIA driver is gone")
            self._error = gone if self._has_worked else AbsentError("no NVIDIA driver here")
            return None
        from memwatch.sources.gpu.nvml_helper_client import NvmlHelper
        from memwatch.sources.gpu.nvml_helper_messages import HelperSettings

        self._helper = self._helper or NvmlHelper()
        self._helper.start_helper(HelperSettings(*self._roots, self._visible, self._last_used), now)
        return self._helper

    def _stop(self, now: float, grace_seconds: float = STOP_GRACE_S) -> None:
        if self._helper is not None:
            self._helper.stop(now, grace_seconds)

    def _wait_for_answer(self, now: float) -> None:
        if self._helper is not None and self._is_waiting and self._patience_s > 0:
            select.select([self._helper], [], [], self._patience_s)
            self._receive_answer(now)
            self._check_deadline(now + self._patience_s)

    # --- its answers

    def _receive_answer(self, now: float) -> None:
        helper = self._running_helper
        if helper is None:
            return
        asked_t = now if helper.asked_t is None else helper.asked_t
        try:
            answer = helper.receive_answer()
        except SourceError as error:
            self._fail(asked_t, error)
            return
        if answer is None:
            return
        self._kill_after_s = KILL_AFTER_S
        if answer.error is None:
            self._succeed(asked_t, answer.gpus)
        elif answer.restart_helper:
            self._fail(asked_t, answer.error)
        else:
            self._back_off(asked_t, answer.error)

    def _succeed(self, asked_t: float, gpus: tuple[GpuMemory, ...]) -> None:
        self._last, self._error, self._failures, self._has_worked = gpus, None, 0, True
        self._last_used = gpus or self._last_used
        if gpus or self._used_t == float("-inf"):
            self._used_t = asked_t
        if not gpus:
            self._may_ask_t = self._must_ask_t = asked_t + UNUSED_INTERVAL_S
        if asked_t - self._used_t >= STOP_HELPER_AFTER_S:
            self._stop_helper(asked_t)

    def _stop_helper(self, now: float) -> None:
        from memwatch.sources.gpu.trainer_gpus import GpuOpenDetector

        self._stop(now)
        self._may_ask_t = self._must_ask_t = now + IDLE_RETRY_S
        self._open_detector = GpuOpenDetector(self._roots[0], self._tree_pids())

    def _fail(self, asked_t: float, error: SourceError) -> None:
        self._stop(asked_t)
        self._back_off(asked_t, error)

    def _back_off(self, asked_t: float, error: SourceError) -> None:
        """No driver from the start is normal; one that went away is a failure."""
        self._last = ()
        wait_s = min(MAX_BACKOFF_S, max(self._pace_s, 2.0**self._failures))
        self._failures = min(self._failures + 1, 10)
        self._error = SourceError(str(error), error.hint) if self._has_worked else error
        if isinstance(self._error, AbsentError):
            wait_s = NO_LIBRARY_RETRY_S
        self._may_ask_t = self._must_ask_t = asked_t + wait_s

    def _check_deadline(self, now: float) -> None:
        waiting_seconds = 0.0 if self._helper is None else self._helper.waiting_seconds(now)
        if not self._is_waiting or waiting_seconds < self._deadline_s:
            return
        from memwatch.sources.gpu.nvml_helper_client import HANG_HINT

        self._last, self._error = (), SourceError(f"NVML does not answer within {self._deadline_s:g} s", HANG_HINT)
        if waiting_seconds >= self._kill_after_s:
            self._kill_after_s = min(2 * self._kill_after_s, MAX_KILL_AFTER_S)
            self._stop(now, grace_seconds=0.0)
