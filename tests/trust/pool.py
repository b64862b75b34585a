"""Plays real runs, some at a time, each in a process of its own, to which orphans come."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from trust.stage import use_this_memwatch

Row = dict[str, Any]


@contextmanager
def players(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """So many at a time; nobody plays twice."""
    context = get_context("forkserver")
    context.set_forkserver_preload(
        ["trust.kinds", "memwatch.app.load_and_replay_run"]
    )  # a player is there in 10 ms, not in a second
    with ProcessPoolExecutor(jobs, context, use_this_memwatch, max_tasks_per_child=1) as pool:
        yield pool


def play_all(play: Callable[[int], Row], numbers: Sequence[int], jobs: int, kept: Path | None) -> list[Row]:
    """All of them, in order. `kept`: a file of rows, a line of JSON each, that is gone on with."""
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept is not None and kept.exists() else []
    played = {row["number"] for row in rows}
    with players(jobs) as pool:
        for future in as_completed([pool.submit(play, number) for number in numbers if number not in played]):
            rows.append(future.result())
            _tell(rows[-1], kept)
    return sorted(rows, key=lambda row: row["number"])


def tell(command: str, summary: Row, output: Path | None) -> None:
    """Print what came of it, with the command that repeats it; `output`: a file for it, too."""
    text = json.dumps({"command": command, "cores": os.cpu_count(), **summary}, indent=1)
    if output is not None:
        output.parent.mkdir(exist_ok=True)
        output.write_text(text + "\n")
    print(text)


def _tell(row: Row, kept: Path | None) -> None:
    if row["bad"]:
        print(f"{row['number']}: {row['bad']}: {row.get('said')}", file=sys.stderr, flush=True)
    if kept is not None:
        with kept.open("a") as file:
            print(json.dumps(row), file=file)


class Ahead:
    """Plays what tests are about to ask for before they do; what is asked for again is played again."""

    def __init__(
        self, pool: ProcessPoolExecutor, play: Callable[..., Row], wanted: Iterable[tuple[Hashable, ...]]
    ) -> None:
        self._pool, self._play = pool, play
        self._rows: dict[tuple[Hashable, ...], Future[Row]] = {words: pool.submit(play, *words) for words in wanted}

    def row(self, *words: Hashable) -> Row:
        """Of these arguments."""
        future = self._rows.pop(words, None)
        return (future or self._pool.submit(self._play, *words)).result()
