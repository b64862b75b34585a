"""memwatch and the example trainer as real processes, for tests of the whole."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from memwatch.cli.demo import Confinement, confine

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "evolve.py"
MB = 10**6
PATIENCE_SECONDS = 120.0


class Folder:
    """A test's place: the trainer's log and checkpoints, memwatch's state."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.python = sys.executable  # that runs memwatch
        self.log = path / "main.log"
        self.checkpoints = path / "checkpoints"
        self.history = path / "state" / "memwatch" / "history.db"

    def environ(self) -> dict[str, str]:
        """With the state folder here, and one thread for numpy."""
        return {
            **os.environ,
            "XDG_STATE_HOME": str(self.path / "state"),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def saved(self) -> list[Path]:
        """Whole checkpoints."""
        return sorted(self.checkpoints.glob("generation-????.npz"))


@contextmanager
def trainer(
    folder: Folder, *options: str, limit_bytes: int | None = None, program: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """The example trainer (or `program`), logging to main.log, under a real limit when one is given."""
    confinement = confine(limit_bytes) if limit_bytes else Confinement("none")
    command = [*program] or [sys.executable, str(EXAMPLE), "--checkpoints", str(folder.checkpoints), *options]
    with folder.log.open("ab") as log:
        process = subprocess.Popen(
            [*confinement.prefix, *command],
            stdout=log,
            stderr=log,
            cwd=folder.path,
            env=folder.environ(),
            start_new_session=True,
            preexec_fn=confinement.before_exec,  # noqa: PLW1509 - tests have no threads here
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        confinement.close()


class Memwatch:
    """A running `memwatch`, its output in files."""

    def __init__(
        self,
        folder: Folder,
        *arguments: str,
        name: str = "memwatch",
        before: Sequence[str] = (),
        stdin: IO[Any] | None = None,
    ) -> None:
        self.out, self.err = folder.path / f"{name}.out", folder.path / f"{name}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [*before, folder.python, "-m", "memwatch", *arguments],
                stdin=stdin,
                stdout=out,
                stderr=err,
                cwd=folder.path,
                env=folder.environ(),
            )

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Its exit code."""
        return self.process.wait(seconds)

    def events(self) -> list[dict[str, Any]]:
        """What --json has printed so far, whole lines only."""
        return [json.loads(line) for line in self.out.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def named(self, event: str) -> list[dict[str, Any]]:
        """The events of this name."""
        return [one for one in self.events() if one["event"] == event]

    def kill(self) -> None:
        """kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def said(self) -> str:
        """Everything, for the message of a failed test."""
        return self.out.read_text() + self.err.read_text()


@contextmanager
def memwatch(
    folder: Folder,
    *arguments: str,
    name: str = "memwatch",
    before: Sequence[str] = (),
    stdin: IO[Any] | None = None,
) -> Iterator[Memwatch]:
    """`memwatch` with its own state folder; killed at the end if it still runs. `before`: words that exec it."""
    running = Memwatch(folder, *arguments, name=name, before=before, stdin=stdin)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.kill()


def roomy_budget(folder: Path) -> tuple[str, str]:
    """Options for a test of what is named: how much CPU examinations may take has tests of its own."""
    config = folder / "budget.yaml"
    config.write_text("diagnosis: {cpu_share: 0.25}\n")
    return "--config", str(config)


def free_port() -> int:
    """One that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def until(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for it; a failure when it does not come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
