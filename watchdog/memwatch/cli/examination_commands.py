"""`memwatch census`, `profile`, `snapshot` and `diff`: examine a running Python from outside, once."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from memwatch.app.composition import find_target, make_readers
from memwatch.app.examination_launcher import ProcessSnapshotOutcome, ProcessSnapshotRequest
from memwatch.app.examination_worker import DEFAULT_TRACED_TYPES, examine_process
from memwatch.cli.watch_serve_markers import config_from_flags
from memwatch.config.settings import Config, TargetConfig, default_history
from memwatch.core.leaks.process_snapshot import ProcessSnapshot, diff_process_snapshots
from memwatch.core.text_and_units import format_duration, printable
from memwatch.diagnosis.heap.attribute_path_syntax import parse_attribute_path
from memwatch.diagnosis.whole_heap.object_census import CensusOptions, take_census
from memwatch.errors import AttachError, ConfigError, ExitCode, MemwatchError, SourceError
from memwatch.outputs.terminal.command_progress import ProgressBar
from memwatch.outputs.text.process_snapshot_text import render_census, render_inspection_diff, render_snapshot
from memwatch.system import json_and_yaml, private_files
from memwatch.system.process_priority import lower_priority
from memwatch.system.python_workers import serve_task

MAX_PROFILE_SECONDS = 86_400.0
MAX_SAVED_SNAPSHOTS = 200  # files in the state folder; the oldest are deleted
GPU_PATIENCE_SECONDS = 5.0  # how long a snapshot waits for the GPU driver
_SUFFIX = ".json"


def census(flags: Mapping[str, Any]) -> int:
    """`memwatch census --pid PID`: count the objects of a running Python by type."""
    options = replace(_census_options(flags), bytes="bytes" in flags)
    config = config_from_flags(flags)
    pid = find_target(config).target.pid
    lower_priority()
    with _attaching(), ProgressBar("counting objects"):
        found = take_census(pid, options)
    print(json_and_yaml.to_shown_json(found) if config.json else render_census(found))
    return ExitCode.ENDED


def profile(flags: Mapping[str, Any]) -> int:
    """`memwatch profile --pid PID`: find the lines of code that raise its memory."""
    from memwatch.diagnosis.memory_growth_recorder import DEFAULT_RECORD_SECONDS, record_profile
    from memwatch.outputs.text.profile_formats import folded, render_profile, speedscope

    seconds = _parse_seconds(flags.get("seconds", DEFAULT_RECORD_SECONDS))
    config = config_from_flags(flags)
    facts = find_target(config)
    lower_priority()
    with _create(flags["output"]) if "output" in flags else nullcontext() as file:
        with _attaching(), ProgressBar(f"following memory for {format_duration(seconds)}"):
            found = record_profile(facts.target.pid, seconds)
        print(json_and_yaml.to_shown_json(found) if config.json else render_profile(found))
        if file is not None:
            is_speedscope = file.name.endswith(".json")
            file.write(speedscope(found.credits, facts.command) if is_speedscope else folded(found.credits))
            print(f"\nstacks: {file.name}", file=sys.stderr if config.json else sys.stdout)
    return ExitCode.ENDED


def snapshot(flags: Mapping[str, Any]) -> int:
    """`memwatch snapshot --pid PID --label NAME`: store what a trainer holds now in a file, and print it."""
    options = replace(_census_options(flags), bytes=True, trace_most_frequent=DEFAULT_TRACED_TYPES)
    label = flags.get("label") or time.strftime("%Y-%m-%d %H:%M:%S")
    config = config_from_flags(flags)
    lower_priority()
    with ProgressBar("examining the trainer"):
        found = take_process_snapshot(config, label, options)
    path = save_process_snapshot(found, Path(flags["output"]) if "output" in flags else None, os.environ)
    print(json_and_yaml.to_shown_json(found) if config.json else f"{render_snapshot(found)}\n\nsaved: {path}")
    return ExitCode.ENDED


def diff(flags: Mapping[str, Any]) -> int:
    """`memwatch diff A B`: show the differences between two snapshots."""
    before, after = (load_process_snapshot(name, os.environ) for name in flags["snapshots"])
    found = diff_process_snapshots(before, after)
    print(json_and_yaml.to_shown_json(found) if "json" in flags else render_inspection_diff(found))
    return ExitCode.ENDED


def _census_options(flags: Mapping[str, Any]) -> CensusOptions:
    paths = tuple(parse_attribute_path(path) for path in flags.get("track", ()))
    return CensusOptions(traced_types=tuple(flags.get("holders", ())), attribute_paths=paths)


@contextmanager
def _attaching() -> Iterator[None]:
    """Turn a failed reading into a failure to attach, which has an exit code of its own."""
    try:
        yield
    except SourceError as error:
        raise AttachError(str(error), error.hint) from error


def _parse_seconds(given: object) -> float:
    try:
        seconds = float(str(given))
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds <= MAX_PROFILE_SECONDS:
        raise ConfigError(f"--seconds {given}: not a length of time", "give seconds, as in --seconds 30")
    return seconds


def _create(path: str) -> TextIO:
    with _file_errors(path):
        return open(path, "x", encoding="utf-8")


@contextmanager
def _file_errors(path: Path | str) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise ConfigError(f"{path} exists already", "name another file with -o: no file is overwritten") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", "name a file that can be written with -o") from error


# --- snapshots ------------------------------------------------------------------------------------------------------


def take_process_snapshot(config: Config, label: str, options: CensusOptions) -> ProcessSnapshot:
    """Read all that can be read of the trainer now; AttachError when there is none."""
    facts = find_target(config)
    with ExitStack() as stack:
        readers = make_readers(config, facts, stack, gpu_patience_seconds=GPU_PATIENCE_SECONDS)
        sample = readers.sampler.sample(time.time())
    examination = examine_process(facts.target.pid, options)
    return ProcessSnapshot(printable(label), time.time(), facts.target, facts.command, sample, examination)


def serve() -> None:
    """In a process of its own: answer a ProcessSnapshotRequest with a ProcessSnapshotOutcome."""
    serve_task(ProcessSnapshotRequest, _save_requested)


def _save_requested(request: ProcessSnapshotRequest) -> ProcessSnapshotOutcome:
    config = Config(target=TargetConfig(pid=request.pid))
    options = CensusOptions(bytes=True, trace_most_frequent=DEFAULT_TRACED_TYPES)
    try:
        found = take_process_snapshot(config, request.label, options)
        return ProcessSnapshotOutcome(path=str(save_process_snapshot(found, None, os.environ)))
    except (MemwatchError, OSError) as error:
        return ProcessSnapshotOutcome(reason=str(error))


def save_process_snapshot(found: ProcessSnapshot, path: Path | None, environ: Mapping[str, str]) -> Path:
    """Write a file that nobody else can read, at `path` or in the state folder, and return its path."""
    if path is None:
        folder = _private_folder(environ)
        for earlier in sorted(folder.glob(f"*{_SUFFIX}"))[: -MAX_SAVED_SNAPSHOTS + 1]:
            earlier.unlink(missing_ok=True)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(found.t))
        name = re.sub(r"[^a-z0-9]+", "-", found.label.lower()).strip("-")
        path = folder / f"{stamp}-{name or 'snapshot'}-{os.getpid()}{_SUFFIX}"
    with _file_errors(path), open(private_files.create_private_file(path), "wb") as file:
        file.write(json_and_yaml.to_json(found) + b"\n")
    return path


def load_process_snapshot(name: str, environ: Mapping[str, str]) -> ProcessSnapshot:
    """Return the snapshot in the file called `name`, or the latest with this label; ConfigError when there is none."""
    if Path(name).is_file():
        return _read(Path(name))
    stored = (_read(path) for path in sorted(_folder(environ).glob(f"*{_SUFFIX}"), reverse=True))
    found = next((one for one in stored if one.label == name), None)
    if found is None:
        raise ConfigError(f"no snapshot and no file is called {name!r}", "memwatch snapshot --label NAME takes one")
    return found


def _read(path: Path) -> ProcessSnapshot:
    try:
        return json_and_yaml.from_json(path.read_bytes(), ProcessSnapshot)
    except (OSError, json_and_yaml.SerializationError) as error:
        raise ConfigError(f"{path}: no snapshot: {error}", "name a file that memwatch snapshot has written") from error


def _folder(environ: Mapping[str, str]) -> Path:
    return default_history(environ).parent / "snapshots"


def _private_folder(environ: Mapping[str, str]) -> Path:
    path = _folder(environ)
    try:
        return private_files.ensure_private_dir(path)
    except OSError as error:
        hint = "set XDG_STATE_HOME to a folder of your own, or name a file with -o"
        raise ConfigError(f"{path}: {error.strerror}", hint) from error
