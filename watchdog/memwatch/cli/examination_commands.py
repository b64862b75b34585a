"""`memwatch snapshot` and `memwatch diff`: a trainer at one moment, kept in a file, and two of them side by side."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from memwatch.app.composition import find_target, make_readers
from memwatch.app.examination_launcher import ProcessSnapshotOutcome, ProcessSnapshotRequest
from memwatch.app.examination_worker import DEFAULT_TRACED_TYPES, examine_process
from memwatch.config.settings import Config, TargetConfig, default_history
from memwatch.core.leaks.process_snapshot import ProcessSnapshot
from memwatch.core.text_and_units import printable
from memwatch.diagnosis.heap.object_census import CensusOptions
from memwatch.errors import ConfigError, MemwatchError
from memwatch.system import json_and_yaml, private_files
from memwatch.system.python_workers import serve_task

MAX_SAVED_SNAPSHOTS = 200  # files; of more, the oldest go
_GPU_PATIENCE_SECONDS = 5.0
_SUFFIX = ".json"


def take_process_snapshot(config: Config, label: str, wish: CensusOptions) -> ProcessSnapshot:
    """All that can be read of the trainer now; AttachError when there is none."""
    facts = find_target(config)
    pid = facts.target.pid
    with ExitStack() as held:
        readers = make_readers(config, facts, held, gpu_patience_seconds=_GPU_PATIENCE_SECONDS)
        sample = readers.sampler.sample(time.time())
    found = examine_process(pid, wish)
    return ProcessSnapshot(printable(label), time.time(), facts.target, facts.command, sample, found)


def serve() -> None:
    """In a process of its own: answer a ProcessSnapshotRequest with a ProcessSnapshotOutcome."""
    serve_task(ProcessSnapshotRequest, _save_requested)


def _save_requested(request: ProcessSnapshotRequest) -> ProcessSnapshotOutcome:
    config = Config(target=TargetConfig(pid=request.pid))
    wish = CensusOptions(bytes=True, trace_most_frequent=DEFAULT_TRACED_TYPES)
    try:
        found = take_process_snapshot(config, request.label, wish)
        return ProcessSnapshotOutcome(path=str(save_process_snapshot(found, None, os.environ)))
    except (MemwatchError, OSError) as error:
        return ProcessSnapshotOutcome(reason=str(error))


def save_process_snapshot(inspection: ProcessSnapshot, path: Path | None, environ: Mapping[str, str]) -> Path:
    """Write it into a file that nobody else can read: the one that is named, or one in the state folder."""
    if path is None:
        folder = _own_folder(environ)
        for earlier in sorted(folder.glob(f"*{_SUFFIX}"))[: -MAX_SAVED_SNAPSHOTS + 1]:
            earlier.unlink(missing_ok=True)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(inspection.t))
        name = re.sub(r"[^a-z0-9]+", "-", inspection.label.lower()).strip("-")
        path = folder / f"{stamp}-{name or 'snapshot'}-{os.getpid()}{_SUFFIX}"
    try:
        with open(private_files.create_private_file(path), "wb") as file:
            file.write(json_and_yaml.to_json(inspection) + b"\n")
    except FileExistsError as error:
        raise ConfigError(
            f"{path} is there already", "name another file with -o; what is there is not written over"
        ) from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", "name a file that can be written with -o") from error
    return path


def load_process_snapshot(name: str, environ: Mapping[str, str]) -> ProcessSnapshot:
    """The snapshot in a file, or the latest with this label; ConfigError when there is none."""
    path = Path(name)
    if path.is_file():
        return _read(path)
    labelled = (_read(one) for one in sorted(_folder(environ).glob(f"*{_SUFFIX}"), reverse=True))
    found = next((one for one in labelled if one.label == name), None)
    if found is None:
        raise ConfigError(
            f"no snapshot is called {name!r}, and no such file is there", "memwatch snapshot --label NAME takes one"
        )
    return found


def _read(path: Path) -> ProcessSnapshot:
    try:
        return json_and_yaml.from_json(path.read_bytes(), ProcessSnapshot)
    except (OSError, json_and_yaml.SerializationError) as error:
        raise ConfigError(f"{path}: no snapshot: {error}", "name a file that memwatch snapshot has written") from error


def _own_folder(environ: Mapping[str, str]) -> Path:
    path = _folder(environ)
    try:
        return private_files.ensure_private_dir(path)
    except OSError as error:
        hint = "set XDG_STATE_HOME to a folder of your own, or name a file with -o"
        raise ConfigError(f"{path}: {error.strerror}", hint) from error


def _folder(environ: Mapping[str, str]) -> Path:
    return default_history(environ).parent / "snapshots"
