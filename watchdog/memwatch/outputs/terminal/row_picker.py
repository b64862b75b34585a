"""A table on the terminal that renews itself, of which a key chooses a row."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress

from rich.console import Console
from rich.live import Live
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

from memwatch.outputs.terminal.keyboard import Keyboard

REFRESH_SECONDS = 1.0
KEYS = "123456789abcdefghijklmnoprstuvwxyzABCDEFGHIJKLMNOPRSTUVWXYZ"  # of the rows that are shown; q leaves
FRAME_LINES = 4  # of the terminal: title, heads, and room below
MIN_LAST_COLUMN = 12  # characters of the last column, for which others make room (chosen)
RowStyle = StyleType
LEAVE = "qQ\x1b"  # and Escape


def choose_row(
    title: str,
    heads: Sequence[str],
    read_rows: Callable[[], Sequence[Sequence[str]]],
    style_of: Callable[[int], RowStyle] = lambda index: "",
) -> int | None:
    """Show the table until a row is chosen; return its index in what `read_rows` returned last, None for none.

    Rows that find no room are counted. The last column is as wide as the terminal leaves room, the others are aligned
    to the right. `style_of` returns the style of a row by its index. SourceError where no key can arrive.
    """
    pressed: list[str] = []
    with (
        closing(Keyboard(sys.stdin, pressed.append)) as keyboard,
        Live(auto_refresh=False, transient=True) as live,
        suppress(KeyboardInterrupt),
    ):
        while not any(key in LEAVE for key in pressed):
            every, room = read_rows(), max(1, min(len(KEYS), live.console.height - FRAME_LINES))
            rows = every[:room]
            more = f"  ({len(every) - len(rows)} more)" if len(every) > len(rows) else ""
            live.update(_table(live.console.width, title + more, heads, rows, style_of), refresh=True)
            select.select([keyboard], [], [], REFRESH_SECONDS)
            keyboard.poll(time.time())
            for key in pressed:
                if key in KEYS[: len(rows)]:
                    return KEYS.index(key)
    return None


def print_rows(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    style_of: Callable[[int], RowStyle] = lambda index: "",
) -> None:
    """Print the table once, without keys."""
    console = Console()
    console.print(_table(console.width, title, heads, rows, style_of, with_keys=False))


def _table(
    width: int,
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    style_of: Callable[[int], RowStyle],
    *,
    with_keys: bool = True,
) -> Table:
    """The table, without those columns to the left of the last for which `width` characters have no room."""
    shown = _fitting(width - 4, heads, rows)
    heads, rows = [heads[column] for column in shown], [[row[column] for column in shown] for row in rows]
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, expand=True)
    if with_keys:
        table.add_column("")
    for head in heads[:-1]:
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column(heads[-1], no_wrap=True, overflow="ellipsis", ratio=1)
    for index, row in enumerate(rows):
        keys = [Text(KEYS[index], "bold cyan")] if with_keys else []
        table.add_row(*keys, *map(Text, row), style=style_of(index))
    return table


def _fitting(width: int, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the columns for which there is room: of those before the last, the first ones stay longest."""
    wide = [max(len(row[column]) for row in (heads, *rows)) + 1 for column in range(len(heads))]
    shown = list(range(len(heads)))
    while len(shown) > 2 and sum(wide[column] for column in shown[:-1]) + MIN_LAST_COLUMN > width:
        del shown[-2]
    return shown
