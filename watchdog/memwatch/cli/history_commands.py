"""The commands that read the history: `memwatch last`, `report`, `compare` and `export`."""

from __future__ import annotations

import gzip
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from memwatch.app import load_and_replay_run
from memwatch.app.load_and_replay_run import LoadedRun
from memwatch.cli.watch_serve_markers import config_from_flags
from memwatch.config.settings import Config
from memwatch.core.snapshot import EarlierRun
from memwatch.core.text_and_units import format_duration, printable
from memwatch.errors import ConfigError, ExitCode
from memwatch.history import stored_runs, trace_files
from memwatch.outputs.html import report_page, run_comparison
from memwatch.outputs.status_json import jsonable, snapshot_to_dict
from memwatch.outputs.terminal.command_progress import ProgressBar
from memwatch.outputs.text.exit_summary import generations_csv, render_summary
from memwatch.system import json_and_yaml, private_files

FORMAT_BY_SUFFIX = {".html": "html", ".txt": "text", ".json": "json", ".csv": "csv"}
PROGRESS_LABEL = "reading the history"


def last(flags: Mapping[str, Any]) -> int:
    """`memwatch last [HISTORY]`: how the latest run ended, or stands, why, and what to do."""
    config = config_from_flags(flags)
    named = flags.get("runs", "")
    path = load_and_replay_run.history_path(config, os.environ, named)
    run = load_and_replay_run.find_run(path, flags.get("run_id"))
    with ProgressBar(PROGRESS_LABEL) as progress:
        loaded = load_and_replay_run.load_run(path, run, config, progress)
    if config.json:
        print(report_json(loaded), end="")
        return ExitCode.ENDED
    begun, latest = (time.strftime("%Y-%m-%d %H:%M", time.localtime(t)) for t in (run.begun_t, run.latest_t))
    print(f"run {run.run_id}, from {begun} to {latest}", end="\n\n")
    end, history = replace(loaded.end, run_id=run.run_id), named or config.history or ""
    print(render_summary(end, loaded.is_running, history=history, with_examinations=False), end="")
    return ExitCode.ENDED


def report(flags: Mapping[str, Any]) -> int:
    """`memwatch report [HISTORY]`: report on a run that was watched, the latest or the one that --run names."""
    config, output = config_from_flags(flags), _output(flags)
    path = load_and_replay_run.history_path(config, os.environ, flags.get("runs", ""))
    if "list" in flags:
        return _list_runs(path)
    run = load_and_replay_run.find_run(path, flags.get("run_id"))
    with _writer(output, tuple(FORMAT_BY_SUFFIX)) as write:
        with ProgressBar(PROGRESS_LABEL) as progress:
            loaded = load_and_replay_run.load_run(path, run, config, progress)
            text = _render(loaded, _format(flags, config, output), path)
        write(text)
    return ExitCode.ENDED


def _list_runs(path: Path) -> int:
    for run in load_and_replay_run.list_runs(path):
        begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.begun_t))
        duration = format_duration(run.latest_t - run.begun_t)
        cause = printable(run.cause or "-", 20)
        print(f"{run.run_id}  {begun}  {duration:>12}  {cause:<20}  {printable(run.command, 100)}")
        if names := load_and_replay_run.attempt_names(run):
            print(f"{'':24}its processes: {', '.join(names)}")
    return ExitCode.ENDED


def _format(flags: Mapping[str, Any], config: Config, output: Path | None) -> str:
    """Return the format that an option asks for, else the one of the output's suffix."""
    if config.json:
        return "json"
    if "csv" in flags:
        return "csv"
    return "text" if "text" in flags or output is None else FORMAT_BY_SUFFIX[output.suffix.lower()]


def _render(loaded: LoadedRun, format: str, path: Path) -> str:
    if format == "csv":
        return generations_csv(loaded.end)
    if format == "text":
        return render_summary(loaded.end, loaded.is_running)
    if format == "json":
        return report_json(loaded)
    return report_html(loaded, stored_runs.earlier_runs(path, loaded.run.run_id, loaded.run.command))


def report_html(loaded: LoadedRun, earlier: Sequence[EarlierRun] = ()) -> str:
    return report_page.render_report(loaded.run_data, _ending(loaded), loaded.run.run_id, earlier=earlier)


def report_json(loaded: LoadedRun) -> str:
    """The state at the end as in /status.json, how it ended, all events, and the types of each examination."""
    data = {
        **snapshot_to_dict(loaded.end),
        "ending": _ending(loaded),
        "events": [{"t": one.t, "event": one.event, "text": one.text, **one.fields} for one in loaded.run_data.notices],
        "examinations": [
            {"t": one.t, "generation": one.asked.generation, "phase": one.asked.phase, "census": one.found.census}
            for _, one in loaded.run_data.examined
        ],
    }
    return json_and_yaml.to_shown_json(jsonable(data)) + "\n"


def _ending(loaded: LoadedRun) -> list[str]:
    return report_page.describe_ending(loaded.end, loaded.is_running)


def compare(flags: Mapping[str, Any]) -> int:
    """`memwatch compare A B`: two runs side by side; each is a history file, or the ID of a run."""
    config, output = config_from_flags(flags), _output(flags)
    with ProgressBar(PROGRESS_LABEL) as progress:
        a, b = (_load_side(name, config, progress) for name in flags["pair"])
    with _writer(output, (".html",)) as write:
        if output is not None:
            write(run_comparison.document(a, b))
        elif config.json:
            write(json_and_yaml.to_shown_json(run_comparison.as_json(a, b)) + "\n")
        else:
            write(run_comparison.render_comparison_text(a, b))
    return ExitCode.ENDED


def _load_side(name: str, config: Config, progress: ProgressBar) -> run_comparison.ComparedRun:
    path, run = load_and_replay_run.find_named_run(config, os.environ, name)
    loaded = load_and_replay_run.load_run(path, run, config, progress)
    return run_comparison.ComparedRun(name, run.run_id, loaded.run_data, _ending(loaded))


def export(flags: Mapping[str, Any]) -> int:
    """`memwatch export [HISTORY]`: export a run as a trace that `memwatch replay` reads, or in Parquet for pandas."""
    output = _output(flags)
    parquet = output if output is not None and output.suffix == ".parquet" else None
    if parquet is not None:
        trace_files.check_parquet()
    config = config_from_flags(flags)
    path = load_and_replay_run.history_path(config, os.environ, flags.get("runs", ""))
    run = load_and_replay_run.find_run(path, flags.get("run_id"))
    if parquet is not None:
        with ProgressBar(PROGRESS_LABEL) as progress:
            events = progress.track(stored_runs.event_batches(path, run), run.elapsed_share)
            trace_files.write_parquet(events, parquet)
        return ExitCode.ENDED
    with _open(output) as file, ProgressBar(PROGRESS_LABEL, is_wanted=not file.isatty()) as progress:
        trace_files.write_trace(progress.track(stored_runs.event_batches(path, run), run.elapsed_share), file)
    return ExitCode.ENDED


# --- the file of -o -------------------------------------------------------------------------------------------------


def _output(flags: Mapping[str, Any]) -> Path | None:
    return Path(flags["output"]) if "output" in flags else None


@contextmanager
def _open(output: Path | None) -> Iterator[TextIO]:
    """Open the file for writing, compressed if its name ends in .gz; without one, give stdout."""
    if output is None:
        yield sys.stdout
        return
    try:
        with gzip.open(output, "wt") if output.suffix == ".gz" else output.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise ConfigError(f"-o {output}: {error.strerror}", "name a file that can be written") from error


@contextmanager
def _writer(output: Path | None, suffixes: tuple[str, ...]) -> Iterator[Callable[[str], None]]:
    """Give a function that writes the whole text to the file; without one, to stdout."""
    if output is None:
        yield lambda text: print(text, end="")
        return
    with private_files.atomic_writer(output, "-o", suffixes) as write:
        yield write
    print(f"written: {output}")
