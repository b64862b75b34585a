"""Processes that memwatch starts."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest

from memwatch.app import examination_launcher, signal_handling_check
from memwatch.sources.gpu.gpu_reader import HELPER_CODE
from memwatch.sources.progress import heap_clock
from memwatch.system.python_workers import start_python


def test_the_kernel_kills_them_first_from_their_first_moment_on() -> None:
    process = start_python("import sys; sys.stdin.read()", subprocess.PIPE)
    try:
        assert Path(f"/proc/{process.pid}/oom_score_adj").read_text() == "1000\n"
    finally:
        process.communicate()


@pytest.mark.parametrize(
    "code", [examination_launcher._EXAMINATION_CODE, signal_handling_check._CODE, heap_clock._CODE, HELPER_CODE]
)
def test_a_child_starts_without_what_only_the_watch_needs(code: str) -> None:
    """To import the engine and the configuration takes more CPU time than a look at a heap."""
    with tempfile.TemporaryFile() as said:
        child = start_python(f"import sys; {code.partition(';')[0]}; print(*sys.modules)", subprocess.DEVNULL, said)
        assert child.wait() == 0
        said.seek(0)
        names = said.read().decode().split()
    of_watch = ("config", "core.events", "core.engine", "core.forecast", "outputs")
    assert not [name for name in names if name.startswith(tuple(f"memwatch.{part}" for part in of_watch))]
