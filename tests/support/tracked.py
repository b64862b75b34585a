"""memwatch with its trackers: the environment that has them, what they wrote, and a server that takes messages."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil

from support.mainjob import ROOT, Folder, until
from support.pythons import PROGRAMS

PYTHON = ROOT / ".venv" / "trackers" / "bin" / "python"
MLFLOW = {"MLFLOW_ALLOW_FILE_STORE": "true"}  # it needs no server then
WORKER = "tracker_worker"  # in the command of each process that feeds a tracker
MADE = PYTHON.parents[1] / ".made"


class TrackedFolder(Folder):
    """A folder whose memwatch has wandb, mlflow, tensorboard and apprise, from this checkout."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.python = str(PYTHON)
        self.config = path / "memwatch.yaml"

    def environ(self) -> dict[str, str]:
        """Without what a user's wandb may have set."""
        inherited = {key: value for key, value in super().environ().items() if not key.startswith("WANDB_")}
        return {**inherited, **MLFLOW, "PYTHONPATH": str(ROOT / "watchdog")}

    def event_folders(self) -> list[Path]:
        """A run each."""
        return sorted((self.path / "tb").glob("memwatch-*"))

    def wandb_files(self) -> list[Path]:
        """A part of a run each, in the order in which they were begun."""
        return sorted((self.path / "wandb").glob("offline-run-*/run-*.wandb"))

    def wait_for_trackers(self) -> None:
        """Until the last of them has written the rest: memwatch has ended before, on a busy machine."""
        until(lambda: not any(map(self._is_tracker, psutil.process_iter())))

    def _is_tracker(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            return process.cwd() == str(self.path) and WORKER in str(process.cmdline())
        return False


def read(path: Path) -> Any:
    """What a tracker wrote, as its own reader reads it."""
    command, env = [str(PYTHON), str(PROGRAMS / "read_figures.py"), str(path)], {**os.environ, **MLFLOW}
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout)


def series(folder: Path, tag: str) -> list[tuple[int, float]]:
    """Steps and values of a tag in a TensorBoard or MLflow folder."""
    return [(step, value) for name, step, value in read(folder) if name == tag]


def children(pid: int) -> dict[int, str]:
    """Command lines of a process's own children and theirs, by PID."""
    found: dict[int, str] = {}
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, listed.read_text().split()):
            found |= {child: Path(f"/proc/{child}/cmdline").read_text(), **children(child)}
    return found


def lives(pid: int) -> bool:
    """It has not ended, or nobody knows yet."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text() != ""
    except (FileNotFoundError, ProcessLookupError):
        return False


class Inbox:
    """What a server was sent; `status` is what it says to that."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.status, self.port = 200, 0

    def titles(self) -> list[str]:
        """What is said, without who says it."""
        return [message["title"].partition(": ")[2] for message in self.messages]


@contextmanager
def inbox() -> Iterator[Inbox]:
    """A server on this machine that apprise reaches as json://127.0.0.1:PORT."""
    kept = Inbox()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            kept.messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(kept.status)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        kept.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield kept
        finally:
            server.shutdown()
            thread.join()
