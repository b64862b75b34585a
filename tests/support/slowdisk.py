"""A disk that takes its time."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any


class SlowDisk(sqlite3.Connection):
    """Each commit takes as long as this says."""

    commit_seconds = 0.0

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:  # type: ignore[override]
        if sql == "COMMIT":
            time.sleep(self.commit_seconds)
        return super().execute(sql, *values)


def slow_disk(path: Path, commit_seconds: float = 0.0) -> SlowDisk:
    """A history's file on it."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=SlowDisk)
    connection.commit_seconds = commit_seconds
    return connection
