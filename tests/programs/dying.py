"""memwatch that is killed by SIGKILL just before its first signal is sent, or just after, at its border to the kernel.

Arguments: before or after, and the words that would start memwatch.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from types import FrameType

WHEN = {"before": "call", "after": "return"}[sys.argv[1]]


def watch(frame: FrameType, event: str, _: object) -> None:
    if event == WHEN and frame.f_code.co_name == "send_by_pidfd" and frame.f_locals["number"]:
        os.kill(os.getpid(), signal.SIGKILL)


sys.argv = sys.argv[sys.argv.index("memwatch") :]
sys.setprofile(watch)
runpy.run_module("memwatch", run_name="__main__", alter_sys=True)
