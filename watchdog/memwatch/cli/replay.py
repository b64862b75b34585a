"""`memwatch replay`: run the engine over a recorded trace, or over a run of the history as it was watched."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from memwatch import __version__
from memwatch.app.load_and_replay_run import RejudgedWatch, find_run, rejudge
from memwatch.cli.commands import config_from_flags
from memwatch.config.settings import MIN_INTERVAL_SECONDS, Config
from memwatch.core.engine.status_sentence import to_json_line, to_text_line
from memwatch.core.events import Notice
from memwatch.core.snapshot import Snapshot
from memwatch.core.text_and_units import format_bytes, format_duration
from memwatch.errors import ConfigError, ExitCode
from memwatch.history.csv_trace import read_trace, replay_notices
from memwatch.outputs.terminal.command_progress import ProgressBar
from memwatch.outputs.terminal.plain_and_json_lines import NoticeFilter

SQLITE_MAGIC = b"SQLite format 3\0"  # the first bytes of a history
HISTORY_FLAGS = {"file", "run_id", "json", "verbose", "config"}  # flags that do not change what the engine does


def replay(flags: Mapping[str, Any]) -> int:
    """`memwatch replay FILE`: a trace, also drawn with `--plot`, or a run of a history."""
    path = Path(flags["file"])
    if _is_history(path):
        return _replay_history(path, flags)
    if "run_id" in flags:
        hint = "leave --run out, or name a history"
        raise ConfigError(f"{path}: not a history, from which --run selects a run", hint)
    # A trace has its own times of samples: the interval of a live watch must not refuse a short --checkpoint-time.
    config = config_from_flags(
        {"checkpoint_time": os.environ.get("MEMWATCH_CHECKPOINT_S"), **flags, "interval": MIN_INTERVAL_SECONDS}
    )
    if "plot" in flags:
        _plot_trace(path, Path(flags["plot"]), config)
    else:
        _print_trace(path, config)
    return ExitCode.ENDED


def _is_history(path: Path) -> bool:
    try:
        if not path.is_file():  # to look into a pipe would empty it
            return False
        with path.open("rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError:
        return False


def _print_notice(notice: Notice, time_text: str, config: Config, is_news: NoticeFilter) -> None:
    if config.json:
        print(to_json_line(notice))
    elif config.verbose or is_news(notice):
        print(f"{time_text} {to_text_line(notice)}")


# --- a trace --------------------------------------------------------------------------------------------------------


def _plot_trace(trace: Path, path: Path, config: Config) -> None:
    """Print the replay, and draw it into the file at `path`."""
    from memwatch.outputs.charts import run_data
    from memwatch.outputs.html import replay_page
    from memwatch.system import private_files

    if trace.exists() and not trace.is_file():
        raise ConfigError(f"{trace}: cannot be read twice, as --plot must", "save the trace to a file first")
    notices, limit = list[Notice](), config.memory.limit_bytes
    with private_files.atomic_writer(path, "--plot", replay_page.SUFFIXES) as write:
        end, conclusion = _print_trace(trace, config, notices.append)
        options = {} if limit is None else {"--limit": format_bytes(limit)}
        data = run_data.build_run_data(read_trace(trace, limit), notices, end)
        write(replay_page.render_replay(path.suffix, trace.name, data, conclusion, options))
    print(f"plot: {path}", file=sys.stderr if config.json else sys.stdout)


def _print_trace(
    trace: Path, config: Config, keep: Callable[[Notice], None] = lambda notice: None
) -> tuple[Snapshot, str]:
    """Print the notices as they come, then the conclusion; return the state at the end and the conclusion."""
    is_news, interrupt, ends, start_t = NoticeFilter(), None, list[Snapshot](), None

    def replayed(progress: ProgressBar) -> Iterator[Notice]:
        ends.append((yield from replay_notices(trace, config.policy, config.memory.limit_bytes, progress.update)))

    with ProgressBar("replaying") as progress:
        for notice in replayed(progress):
            keep(notice)
            start_t = notice.t if start_t is None else start_t
            elapsed = notice.t - start_t
            _print_notice(notice, f"{format_duration(elapsed) if elapsed >= 1 else '0 s':>10} ", config, is_news)
            interrupt = interrupt or (notice if notice.event == "interrupt" else None)
    [end] = ends
    if end.started_t is None:
        raise ConfigError(f"{trace}: holds no samples", "a trace has a row for each sample below its header")
    conclusion = _conclude_trace(end, end.started_t, interrupt)
    if not config.json:
        print(f"\n{conclusion}")
    return end, conclusion


def _conclude_trace(end: Snapshot, start_t: float, interrupt: Notice | None) -> str:
    text = f"End after {format_duration(end.t - start_t)}: {end.sentence}."
    if interrupt is None:
        return f"{text}\nmemwatch would not have interrupted it."
    generation = interrupt.fields.get("gen")
    where = f", in {end.unit} {generation:g}" if generation is not None else ""
    return f"{text}\nmemwatch would have interrupted it after {format_duration(interrupt.t - start_t)}{where}."


# --- a run of the history -------------------------------------------------------------------------------------------


def _replay_history(path: Path, flags: Mapping[str, Any]) -> int:
    """Replay a run with the settings of its watches; INTERNAL when any notice differs from the recorded one."""
    if set(flags) - HISTORY_FLAGS:
        raise ConfigError(
            f"{path}: a run of the history is replayed with the limits and settings that it was watched with",
            "to replay it with others, export it as a trace: memwatch export HISTORY -o trace.csv",
        )
    config = config_from_flags(flags)
    run = find_run(path, flags.get("run_id"))
    with ProgressBar("replaying the run") as progress:
        watches = list(rejudge(path, run, progress.update))
    is_news = NoticeFilter()
    for notice in (notice for watch in watches for notice in watch.recomputed):
        _print_notice(notice, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(notice.t)), config, is_news)
    print(_conclude_history(watches), file=sys.stderr if config.json else sys.stdout)
    return ExitCode.INTERNAL if any(watch.difference for watch in watches) else ExitCode.ENDED


def _conclude_history(watches: Sequence[RejudgedWatch]) -> str:
    for i, one in enumerate(watches, 1):
        if one.difference is not None:
            then, now = (to_json_line(notice) if notice is not None else "nothing" for notice in one.difference)
            which = f"watch {i} of {len(watches)}, by memwatch {one.watch.version}; this is {__version__}"
            return f"\nthe replay differs from what was reported ({which}):\n  then {then}\n  now  {now}"
    count = "1 watch" if len(watches) == 1 else f"{len(watches)} watches"
    notices = sum(len(watch.recomputed) for watch in watches)
    return f"\nreplayed {count}: each of {notices} events as it was reported, bit for bit"
