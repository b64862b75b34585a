"""The NVML helper as memwatch sees it: a child that is asked, may hang, and is killed then."""

from __future__ import annotations

from collections.abc import Iterable

from memwatch.errors import SourceError
from memwatch.sources.gpu.nvml_helper_messages import HelperSettings, NvmlAnswer
from memwatch.sources.kernel_files import BYTE_COUNT_BOUND
from memwatch.system import json_and_yaml
from memwatch.system.python_workers import Worker

MAX_STUCK_HELPERS = 2  # processes that cannot be killed, before no other is started
HANG_HINT = "a GPU may hang: look at dmesg for Xid"
_CODE = "from memwatch.sources.gpu.nvml_helper import serve; serve()"


class NvmlHelper(Worker):
    """A process that runs `nvml_helper.serve`, and those before it that have not ended yet. It ends with memwatch."""

    def __init__(self, code: str = _CODE) -> None:
        super().__init__(code, "NVML's helper", "NVML may have crashed: does nvidia-smi, too?")

    def start_helper(self, settings: HelperSettings, now: float) -> None:
        """Start one; SourceError when that cannot be done, and while too many hang that cannot be killed."""
        stuck = self.reap(now)
        if stuck >= MAX_STUCK_HELPERS:
            raise SourceError(f"NVML hangs in {stuck} processes that cannot be killed", HANG_HINT)
        try:
            self.start(settings)
        except OSError as error:
            raise SourceError(f"no process can be started for NVML: {error}") from error

    def ask(self, tree: Iterable[int], t: float, wait_seconds: float) -> None:
        """Ask which GPUs these PIDs use at t, in `wait_seconds`; SourceError when the helper has ended."""
        self.send(json_and_yaml.to_json((list(tree), t, wait_seconds)), t)

    def receive_answer(self) -> NvmlAnswer | None:
        """Return the answer, None while there is none; SourceError when the helper has ended or answers nonsense."""
        answer = self.receive(NvmlAnswer)
        return None if answer is None else validate(answer)


def validate(answer: NvmlAnswer) -> NvmlAnswer:
    """Return the answer; SourceError when it has figures that no driver can mean: the loop computes with them."""
    for gpu in answer.gpus:
        sizes = (gpu.used_bytes, gpu.device_used_bytes, gpu.total_bytes, *gpu.pids)
        if not all(size is None or 0 <= size < BYTE_COUNT_BOUND for size in sizes):
            raise SourceError(f"NVML's helper reports impossible figures of {gpu.resource}")
    return answer
