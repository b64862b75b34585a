"""Reads the trainer's GPU memory without waiting for NVML, which only a helper process loads."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Mapping, Sequence

from memwatch.core.measurements import GpuMemory
from memwatch.errors import AbsentError, SourceError
from memwatch.sources.gpu.nvml_helper_messages import HelperSettings, NvmlAnswer
from memwatch.sources.gpu.trainer_gpus import GpuOpenDetector
from memwatch.sources.kernel_files import BYTE_COUNT_BOUND
from memwatch.system import json_and_yaml
from memwatch.system.python_workers import Worker

# One of these exists with every NVIDIA driver: on Linux, in containers, on WSL 2, on Jetson. Checking them takes 10 us,
# a process that imports pynvml to report "driver not loaded" takes 80 ms.
DRIVER_PATHS = (
    "/dev/nvidiactl",
    "/proc/driver/nvidia",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/dev/nvhost-ctrl-gpu",
    "/dev/nvgpu",
)
# Seconds until the next attempt: without a driver, with a driver but no NVML (each attempt starts a process), and at
# most after failures of NVML.
NO_DRIVER_RETRY_S, NO_LIBRARY_RETRY_S, MAX_BACKOFF_S = 60.0, 300.0, 120.0
ASK_AHEAD_S = 0.05  # before a sample, since an answer takes a few ms
# Between two questions: at least, and while the trainer uses no GPU.
MIN_INTERVAL_S, UNUSED_INTERVAL_S = 0.25, 5.0
# Without an answer a helper is killed after 30 s, and after twice that each time: the first answer of a driver that no
# other process uses takes seconds for each GPU.
KILL_AFTER_S, MAX_KILL_AFTER_S = 30.0, 600.0
# For nvmlShutdown and the exit of a helper: when it is stopped, and when memwatch ends.
STOP_GRACE_S, CLOSE_GRACE_S = 2.0, 0.3
# While the trainer uses no GPU: until the helper is stopped, and between the checks after that.
STOP_HELPER_AFTER_S, IDLE_RETRY_S = 300.0, 600.0
MAX_STUCK_HELPERS = 2  # processes that cannot be killed, before no other is started
HANG_HINT = "a GPU may hang: look at dmesg for Xid"
HELPER_CODE = "from memwatch.sources.gpu.nvml_helper import serve; serve()"


def validate(answer: NvmlAnswer) -> None:
    """SourceError when it has figures that no driver can mean: the loop computes with them."""
    for gpu in answer.gpus:
        sizes = (gpu.used_bytes, gpu.device_used_bytes, gpu.total_bytes, *gpu.pids)
        if not all(size is None or 0 <= size < BYTE_COUNT_BOUND for size in sizes):
            raise SourceError(f"NVML's helper reports impossible figures of {gpu.resource}")


class GpuReader:
    """Reads the trainer's GPUs: those on which NVML lists a PID of its tree, else those of CUDA_VISIBLE_DEVICES.

    A helper process asks NVML, and `read_memory` returns its latest answer: the same tuple as before while there is no
    newer one, and SourceError when an answer takes longer than `deadline_s`. A helper that hangs is killed and replaced
    at growing intervals, and a failure of NVML is also followed by a new helper. While the trainer uses no GPU, the
    helper is stopped until one of its processes opens a GPU's device, or IDLE_RETRY_S have passed.
    """

    name = "nvml"

    def __init__(
        self,
        tree_pids: Callable[[], frozenset[int]],
        environ: Mapping[str, str],
        *,
        root: str = "/proc",
        driver_traces: Sequence[str] = DRIVER_PATHS,
        pace_s: float = 1.0,
        patience_s: float = 0.0,
        deadline_s: float = 2.0,
        helper_code: str = HELPER_CODE,
    ) -> None:
        """`read_memory` asks `pace_s` after the latest question, and waits up to `patience_s` for the answer."""
        self._tree_pids, self._traces = tree_pids, driver_traces
        self._root, self._visible = root, environ.get("CUDA_VISIBLE_DEVICES")
        self._pace_s, self._patience_s, self._deadline_s = pace_s, patience_s, deadline_s
        # A process that runs `nvml_helper.serve` and ends with memwatch, started when it is first needed.
        self._helper = Worker(helper_code, "NVML's helper", "NVML may have crashed: does nvidia-smi, too?")
        self._may_ask_t = self._must_ask_t = self._used_t = float("-inf")  # the last: when a GPU was in use
        self._kill_after_s = KILL_AFTER_S
        self._failures = 0
        self._has_worked = False
        self._last: tuple[GpuMemory, ...] = ()
        self._last_used: tuple[GpuMemory, ...] = ()  # the latest that were not empty
        self._error: SourceError | None = None
        self._open_detector: GpuOpenDetector | None = None

    @property
    def pids(self) -> frozenset[int]:
        """The PIDs of helper processes."""
        return self._helper.pids

    def request_before_sample(self, now: float, until_sample_s: float) -> None:
        """Let a running helper ask NVML shortly before a sample that is due in `until_sample_s`."""
        if self._helper.is_running:
            self.request(now, max(until_sample_s - ASK_AHEAD_S, until_sample_s / 2))

    def request(self, now: float, wait_s: float = 0.0) -> None:
        """Ask for an answer in `wait_s`, unless a question is open or the latest was too recent."""
        t = now + wait_s
        if self._is_waiting or t < self._may_ask_t:
            return
        self._may_ask_t, self._must_ask_t = t + min(MIN_INTERVAL_S, self._pace_s), t + self._pace_s
        try:
            if self._helper.is_running or self._start_helper(now):
                self._helper.send(json_and_yaml.to_json((list(self._tree_pids()), t, wait_s)), t)
        except SourceError as error:
            self._fail(now, error)

    def read_memory(self, now: float) -> tuple[GpuMemory, ...]:
        """Return the trainer's GPUs, () when it uses none; AbsentError without a driver, SourceError on failure."""
        self._helper.reap(now)
        self._receive_answer(now)
        if self._open_detector is not None and self._open_detector.check(now, self._tree_pids()):
            self._may_ask_t = self._must_ask_t = self._used_t = now
            self._open_detector = None
        if not self._is_waiting and now >= self._must_ask_t:
            self.request(now)
            if self._is_waiting and self._patience_s > 0:
                select.select([self._helper], [], [], self._patience_s)
                self._receive_answer(now)
                self._check_deadline(now + self._patience_s)
        self._check_deadline(now)
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._last

    def close(self) -> None:
        """Stop the helper, which is killed when it hangs; within half a second."""
        self._helper.close(grace_seconds=CLOSE_GRACE_S, killed_seconds=0.05)

    @property
    def _is_waiting(self) -> bool:
        return self._helper.asked_t is not None

    def _start_helper(self, now: float) -> bool:
        """Start the helper's process; return False, and note the error, when there is no driver.

        SourceError when that cannot be done, and while too many hang that cannot be killed.
        """
        if not any(os.path.exists(trace) for trace in self._traces):  # noqa: PTH110 - a Path interns its parts each time
            self._may_ask_t = self._must_ask_t = now + NO_DRIVER_RETRY_S
            self._last = ()
            gone = SourceError("the NVIDIA driver is gone")
            self._error = gone if self._has_worked else AbsentError("no NVIDIA driver here")
            return False
        stuck = self._helper.reap(now)
        if stuck >= MAX_STUCK_HELPERS:
            raise SourceError(f"NVML hangs in {stuck} processes that cannot be killed", HANG_HINT)
        try:
            self._helper.start(HelperSettings(self._root, self._visible, self._last_used))
        except OSError as error:
            raise SourceError(f"no process can be started for NVML: {error}") from error
        return True

    def _receive_answer(self, now: float) -> None:
        if not self._helper.is_running:
            return
        asked_t = now if self._helper.asked_t is None else self._helper.asked_t
        try:
            answer = self._helper.receive(NvmlAnswer)
            if answer is None:
                return
            validate(answer)
        except SourceError as error:
            self._fail(asked_t, error)
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
            self._helper.stop(asked_t, STOP_GRACE_S)
            self._may_ask_t = self._must_ask_t = asked_t + IDLE_RETRY_S
            self._open_detector = GpuOpenDetector(self._root, self._tree_pids())

    def _fail(self, asked_t: float, error: SourceError) -> None:
        self._helper.stop(asked_t, STOP_GRACE_S)
        self._back_off(asked_t, error)

    def _back_off(self, asked_t: float, error: SourceError) -> None:
        """Set the error and the next attempt; after a success, a missing driver is a failure and no absence."""
        self._last = ()
        wait_s = min(MAX_BACKOFF_S, max(self._pace_s, 2.0**self._failures))
        self._failures = min(self._failures + 1, 10)
        self._error = SourceError(str(error), error.hint) if self._has_worked else error
        if isinstance(self._error, AbsentError):
            wait_s = NO_LIBRARY_RETRY_S
        self._may_ask_t = self._must_ask_t = asked_t + wait_s

    def _check_deadline(self, now: float) -> None:
        waiting_seconds = self._helper.waiting_seconds(now)
        if waiting_seconds < self._deadline_s:
            return
        self._last, self._error = (), SourceError(f"NVML does not answer within {self._deadline_s:g} s", HANG_HINT)
        if waiting_seconds >= self._kill_after_s:
            self._kill_after_s = min(2 * self._kill_after_s, MAX_KILL_AFTER_S)
            self._helper.stop(now)
