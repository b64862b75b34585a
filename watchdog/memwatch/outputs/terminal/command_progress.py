"""A progress bar on stderr, if that is a terminal, for commands that take longer than a second."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TextIO, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")

SHOW_AFTER_SECONDS = 1.0  # shorter work shows no bar (chosen)
EVERY = 256  # items between two updates of the bar (chosen)


class ProgressBar:
    """A context manager that shows a bar, labelled `label`, on `stream` (by default stderr) while work goes on."""

    def __init__(
        self,
        label: str,
        stream: TextIO | None = None,
        *,
        is_wanted: bool = True,
        patience_seconds: float = SHOW_AFTER_SECONDS,
    ) -> None:
        self._label, self._stream = label, stream if stream is not None else sys.stderr
        self._is_wanted = is_wanted
        self._bar: Progress | None = None
        self._lock = threading.Lock()  # guards _bar and _done
        self._done = False
        self._timer = threading.Timer(patience_seconds, self._show)
        self._timer.daemon = True

    def __enter__(self) -> ProgressBar:
        if self._is_wanted and self._stream.isatty():
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._done = True
            if self._bar is not None:
                self._bar.stop()

    def track(self, items: Iterable[T], share: Callable[[T], float]) -> Iterator[T]:
        """Yields the same items; `share` returns how much of the work is done with an item, 0 to 1."""
        for count, item in enumerate(items):
            if not count % EVERY:
                self.update(share(item))
            yield item

    def update(self, share: float) -> None:
        """Sets how much is done, 0 to 1; before the first call the bar shows only that work goes on."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], total=1.0, completed=share)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(file=self._stream),
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # output of the command is printed above the bar
            redirect_stderr=False,
        )
        bar.add_task(self._label, total=None)
        with self._lock:
            if not self._done:
                self._bar = bar
                bar.start()
