"""Plays real runs, some at a time, each in a process of its own, to which orphans come."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any

from trust.stage import use_this_memwatch

Row = dict[str, Any]


@contextmanager
def players(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """So many at a time; nobody plays twice."""
    with ProcessPoolExecutor(jobs, max_tasks_per_child=1, initializer=use_this_memwatch) as pool:
        yield pool


def play_all(play: Callable[[int], Row], numbers: Sequence[int], jobs: int, done: Callable[[Row], None]) -> list[Row]:
    """All of them, in order; `done` is told each as it comes."""
    with players(jobs) as pool:
        rows = []
        for future in as_completed([pool.submit(play, number) for number in numbers]):
            rows.append(future.result())
            done(rows[-1])
    return sorted(rows, key=lambda row: row["number"])


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
