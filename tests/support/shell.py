"""One bash for many commands: jobs in the background, variables and the folder stay from one to the next."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

ENDS = "-- the command has ended --"
PATIENCE_SECONDS = 120.0


class Shell:
    """A context; what it left running is killed at its end."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environ,
            start_new_session=True,
        )

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def run(self, command: str) -> str:
        """What it prints, on both streams. `$?` and `$!` are those of the command before."""
        assert self._process.stdin and self._process.stdout
        script = f"(exit $status)\n{{ {command}\n}} < /dev/null\nstatus=$?; echo; echo '{ENDS}'\n"
        self._process.stdin.write(script.encode())
        self._process.stdin.flush()
        printed, deadline = b"", time.monotonic() + PATIENCE_SECONDS
        while ENDS.encode() not in printed:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            assert part, f"{command!r} has not ended: {printed.decode()}"
            printed += part
        return printed.decode().partition(ENDS)[0]
