"""A table on the terminal that renews itself, of which a key chooses a row."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress

from rich.live import Live
from rich.table import Table
from rich.text import Text

from memwatch.outputs.terminal.keyboard import Keyboard

REFRESH_SECONDS = 1.0
KEYS = "123456789"  # of the rows that are shown
LEAVE = "q\x1b"  # and Escape


def choose_row(title: str, heads: Sequence[str], read_rows: Callable[[], Sequence[Sequence[str]]]) -> int | None:
    """Show the table until a row is chosen; return its index in what `read_rows` returned last, None for none.

    The last column is as wide as the terminal leaves room, the others are aligned to the right. SourceError where no
    key can arrive.
    """
    pressed: list[str] = []
    with (
        closing(Keyboard(sys.stdin, pressed.append)) as keyboard,
        Live(auto_refresh=False, transient=True) as live,
        suppress(KeyboardInterrupt),
    ):
        while not any(key in LEAVE for key in pressed):
            rows = read_rows()[: len(KEYS)]
            live.update(_table(title, heads, rows), refresh=True)
            select.select([keyboard], [], [], REFRESH_SECONDS)
            keyboard.poll(time.time())
            for key in pressed:
                if key in KEYS[: len(rows)]:
                    return KEYS.index(key)
    return None


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, expand=True)
    table.add_column("")
    for head in heads[:-1]:
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column(heads[-1], no_wrap=True, overflow="ellipsis", ratio=1)
    for key, row in zip(KEYS, rows, strict=False):
        table.add_row(Text(key, "bold cyan"), *map(Text, row))
    return table
