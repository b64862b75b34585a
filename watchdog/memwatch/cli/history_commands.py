"""The commands that read the history: report, compare, export, and replay of a run that it has."""

from __future__ import annotations

import gzip
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from memwatch import __version__
from memwatch.app import load_and_replay_run
from memwatch.app.load_and_replay_run import LoadedRun, RejudgedWatch, rejudge
from memwatch.cli.commands import config_from_flags
from memwatch.config.settings import Config
from memwatch.core.engine.status_sentence import to_json_line, to_text_line
from memwatch.core.events import Notice
from memwatch.core.text_and_units import format_duration, printable
from memwatch.errors import ConfigError, ExitCode
from memwatch.history import csv_trace as traces
from memwatch.history import stored_runs
from memwatch.outputs.html import report_page as pages
from memwatch.outputs.html import run_comparison
from memwatch.outputs.status_json import jsonable, snapshot_to_dict
from memwatch.outputs.terminal.command_progress import ProgressBar
from memwatch.outputs.terminal.plain_and_json_lines import NoticeFilter
from memwatch.outputs.text import generations_csv
from memwatch.outputs.text.exit_summary import render_summary
from memwatch.system import json_and_yaml, private_files

FORMAT_BY_SUFFIX = {".html": "html", ".txt": "text", ".json": "json", ".csv": "csv"}  # by suffix
MAGIC = b"SQLite format 3\0"
READING = "reading the history"
AS_IT_WAS = {"json", "verbose", "config"}  # options that judge nothing


def report(flags: dict[str, Any]) -> int:
    """`memwatch report [HISTORY]`: a run that was watched, the latest or the one that is named."""
    history, wanted, output = str(flags.pop("runs", "")), flags.pop("run_id", None), _path(flags)
    config = config_from_flags(flags)
    path = load_and_replay_run.history_path(config, os.environ, history)
    if "list" in flags:
        return _list(path)
    run = load_and_replay_run.find_run(path, wanted)
    form = _form(flags, config.json, output)
    with _written(output, tuple(FORMAT_BY_SUFFIX)) as write:
        with ProgressBar(READING) as progress:
            found = load_and_replay_run.load_run(path, run, config, progress)
            text = _shown(found, form)
        write(text)
    return ExitCode.ENDED


def _form(flags: dict[str, Any], wants_json: bool, output: Path | None) -> str:
    """What is asked for; else what the file's name tells."""
    if wants_json or "csv" in flags:
        return "json" if wants_json else "csv"
    return "text" if "text" in flags or output is None else FORMAT_BY_SUFFIX.get(output.suffix.lower(), "html")


def _shown(found: LoadedRun, form: str) -> str:
    if form == "csv":
        return generations_csv.generations_csv(found.end)
    if form == "text":
        return render_summary(found.end, found.is_running)
    return report_json(found) if form == "json" else report_html(found)


def report_html(found: LoadedRun) -> str:
    return pages.render_report(found.run_data, pages.describe_ending(found.end, found.is_running), found.run.run_id)


def report_json(found: LoadedRun) -> str:
    """The state at the end as in /status.json, how it ended, all that was told, and each examination's types."""
    story = found.run_data
    told = {
        **snapshot_to_dict(found.end),
        "ending": pages.describe_ending(found.end, found.is_running),
        "events": [{"t": one.t, "event": one.event, "text": one.text, **one.fields} for one in story.notices],
        "examinations": [
            {"t": one.t, "generation": one.asked.generation, "phase": one.asked.phase, "census": one.found.census}
            for _, one in story.examined
        ],
    }
    return json_and_yaml.to_shown_json(jsonable(told)) + "\n"


def _list(path: Path) -> int:
    """Which runs a history has, the latest first."""
    for one in load_and_replay_run.list_runs(path):
        begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.begun_t))
        lasted = format_duration(one.latest_t - one.begun_t)
        print(f"{one.run_id}  {begun}  {lasted:>12}  {printable(one.command, 100)}")
        if parts := load_and_replay_run.attempt_names(one):
            print(f"{'':24}its processes: {', '.join(parts)}")
    return ExitCode.ENDED


def compare(flags: dict[str, Any]) -> int:
    """`memwatch compare A B`: two runs side by side; each is a history file, or the ID of a run."""
    names, output = flags.pop("pair"), _path(flags)
    config = config_from_flags(flags)
    with ProgressBar(READING) as progress:
        a, b = (_side(name, config, progress) for name in names)
    with _written(output, (".html",)) as write:
        if output is not None:
            write(run_comparison.document(a, b))
        else:
            write(
                json_and_yaml.to_shown_json(run_comparison.as_json(a, b)) + "\n"
                if config.json
                else run_comparison.render_comparison_text(a, b)
            )
    return ExitCode.ENDED


def _side(name: str, config: Config, progress: ProgressBar) -> run_comparison.ComparedRun:
    is_file = Path(name).exists()
    path = load_and_replay_run.history_path(config, os.environ, name if is_file else "")
    run = load_and_replay_run.find_run(path, None if is_file else name)
    found = load_and_replay_run.load_run(path, run, config, progress)
    return run_comparison.ComparedRun(
        name, run.run_id, found.run_data, pages.describe_ending(found.end, found.is_running)
    )


def export(flags: dict[str, Any]) -> int:
    """`memwatch export [HISTORY]`: a run as a trace that `memwatch replay` reads."""
    history, wanted, output = str(flags.pop("runs", "")), flags.pop("run_id", None), _path(flags)
    config = config_from_flags(flags)
    path = load_and_replay_run.history_path(config, os.environ, history)
    run = load_and_replay_run.find_run(path, wanted)
    with _opened(output) as file, ProgressBar(READING, is_wanted=not file.isatty()) as progress:
        traces.write_trace(progress.track(stored_runs.event_batches(path, run), run.elapsed_share), file)
    return ExitCode.ENDED


def is_history(path: Path) -> bool:
    """It is a database, not a trace."""
    try:
        if not path.is_file():  # a pipe would be emptied
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def replay_history(path: Path, flags: dict[str, Any]) -> int:
    """`memwatch replay HISTORY`: a run judged again, as it was judged; INTERNAL when anything is told otherwise."""
    wanted = flags.pop("run_id", None)
    if set(flags) - AS_IT_WAS:
        raise ConfigError(
            f"{path}: a run of the history is judged again as it was judged, by its own limits and settings",
            "to judge it otherwise, export it as a trace: memwatch export HISTORY -o trace.csv",
        )
    config = config_from_flags(flags)
    run = load_and_replay_run.find_run(path, wanted)
    with ProgressBar("judging it again") as progress:
        watches = list(rejudge(path, run, progress.update))
    _print_all([notice for watch in watches for notice in watch.recomputed], config)
    conclusion = _conclusion(watches)
    print(conclusion, file=sys.stderr if config.json else sys.stdout)
    return ExitCode.INTERNAL if any(watch.difference for watch in watches) else ExitCode.ENDED


def _print_all(notices: Sequence[Notice], config: Config) -> None:
    is_news = NoticeFilter()
    for notice in notices:
        if config.json:
            print(to_json_line(notice))
        elif config.verbose or is_news(notice):
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(notice.t))} {to_text_line(notice)}")


def _conclusion(watches: Sequence[RejudgedWatch]) -> str:
    for i, one in enumerate(watches, 1):
        if one.difference is not None:
            then, now = (to_json_line(notice) if notice is not None else "nothing" for notice in one.difference)
            whose = f"watch {i} of {len(watches)}, by memwatch {one.watch.version}; this is {__version__}"
            return f"\ntold otherwise than it was ({whose}):\n  then {then}\n  now  {now}"
    many = "1 watch" if len(watches) == 1 else f"{len(watches)} watches"
    events = sum(len(watch.recomputed) for watch in watches)
    return f"\njudged again, {many}: each of {events} events as it was told, bit for bit"


@contextmanager
def _opened(output: Path | None) -> Iterator[TextIO]:
    if output is None:
        yield sys.stdout
        return
    try:
        with gzip.open(output, "wt") if output.suffix == ".gz" else output.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise ConfigError(f"-o {output}: {error.strerror}", "name a file that can be written") from error


def _path(flags: dict[str, Any]) -> Path | None:
    return Path(str(flags.pop("output"))) if "output" in flags else None


@contextmanager
def _written(output: Path | None, suffixes: tuple[str, ...]) -> Iterator[Callable[[str], None]]:
    """What writes a text: to that file, or where none is named to stdout."""
    if output is None:
        yield lambda text: print(text, end="")
        return
    with private_files.atomic_writer(output, "-o", suffixes) as write:
        yield write
    print(f"written: {output}")
