"""Finds the log of a trainer whose stdout is no file, by what its processes hold open and what is in its folder."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path

from memwatch.errors import SourceError
from memwatch.sources.checkpoint_files import name_suggests_checkpoint
from memwatch.sources.kernel_files import read_whole
from memwatch.sources.procfs import read_children, read_lineage
from memwatch.sources.progress.progress_files import EVENT_FILE, STATE_FILE
from memwatch.sources.target.target_facts import TargetFacts, reachable_path
from memwatch.system.clock import process_start_t

SEARCH_SECONDS = 60.0  # for how long a log is looked for: a trainer that has none by then writes none (chosen)
_MAX_ANCESTORS, _MAX_PROCESSES = 3, 64  # of a pipeline (python | tee, in a script), and of the trainer's own (chosen)
_MAX_ENTRIES, _MAX_DEPTH = 2000, 4  # of its folder, 5 ms; wandb/run-ID/files/output.log is the deepest
_RECENT_SECONDS = 60.0  # two files of one kind that were written within this time are of two trainers
_CONTAINER = re.compile(rb"[0-9a-f]{64}")
_CONTAINER_LOGS = (  # Docker, Kubernetes, Podman
    ("var/lib/docker/containers", "{id}/{id}-json.log"),
    ("var/log/containers", "*-{id}.log"),
    ("var/lib/containers/storage/overlay-containers", "{id}/userdata/ctr.log"),
)
_OPEN_LOG = re.compile(r"\.(?:log|out|err|txt|csv|jsonl)$|(?:^|/)(?:log|stdout|stderr)$", re.IGNORECASE)
# Written by wandb, Lightning's CSVLogger, stable-baselines3 and Ray, Ultralytics; opened for each line, or by a helper.
_FOLDER_LOGS = ("output.log", "metrics.csv", "progress.csv", "results.csv")
_Entry = tuple[str, str, os.stat_result]  # name, path and status of a file
_COARSE = (EVENT_FILE, STATE_FILE)  # as these begin


def find_logs(facts: TargetFacts, root: str = "/proc", host: str = "/") -> list[Path]:
    """Return what may be its log, the best evidence first; empty when there is nothing.

    First what its output goes to: files of the programs that read its pipe, of its container, of Slurm. Then log files
    that it and its children have open for writing, and last those of its folder that are written since it began.
    """
    found = [*_output_files(facts, root), *_container_logs(facts, root, host), *_slurm_logs(facts)]
    found += _open_logs(facts.target.pid, root)
    in_folder = list(_walk(facts))
    if not found:
        found += _folder_logs(in_folder)
    found += [*_event_files(facts, in_folder), *_state_files(in_folder)]  # coarse: the last resort
    own = set(filter(None, (_identity(f"/proc/self/fd/{number}") for number in (1, 2))))
    return [Path(path) for path in dict.fromkeys(found) if _identity(path) not in own]


def _output_files(facts: TargetFacts, root: str) -> Iterator[str]:
    """Yield its stderr, and what the other programs of its pipeline write that read its stdout, but their stderr."""
    pid = facts.target.pid
    yield from _written(pid, root, lambda number, name: number == "2")
    with suppress(OSError, SourceError):
        pipe = os.readlink(f"{root}/{pid}/fd/1")  # noqa: PTH115
        lineage = list(islice(read_lineage(pid, root), 1 + _MAX_ANCESTORS)) if pipe.startswith("pipe:") else []
        of_session = takewhile(lambda each: each.pid > 1 and each.session_id == lineage[0].session_id, lineage[1:])
        ancestors = [each.pid for each in of_session]
        beside = {child for each in ancestors for child in read_children(each, root)} - {pid, os.getpid(), *ancestors}
        for reader in sorted(beside)[:_MAX_PROCESSES]:
            with suppress(OSError):
                if os.readlink(f"{root}/{reader}/fd/0") == pipe:  # noqa: PTH115
                    yield from _written(reader, root, lambda number, name: number != "2")


def _open_logs(pid: int, root: str) -> Iterator[str]:
    pids = [pid]
    for each in pids:
        yield from _written(each, root, lambda number, name: _may_be_log(name))
        if len(pids) < _MAX_PROCESSES:
            pids += read_children(each, root)


def _may_be_log(path: str) -> bool:
    is_model = path.endswith(".txt") and name_suggests_checkpoint(path, path.rpartition("/")[0])  # LightGBM's
    return _OPEN_LOG.search(path) is not None and not is_model


def _written(pid: int, root: str, wanted: Callable[[str, str], bool]) -> Iterator[str]:
    """Yield the regular files that a process has open for writing, by descriptor."""
    folder = f"{root}/{pid}/fd"
    try:
        numbers = sorted(os.listdir(folder), key=int)  # noqa: PTH208 - the names are wanted
    except (OSError, ValueError):
        return
    for number in numbers:
        with suppress(OSError):
            can_write = os.lstat(f"{folder}/{number}").st_mode & stat.S_IWUSR
            if can_write and wanted(number, os.readlink(f"{folder}/{number}")):  # noqa: PTH115
                path, _ = reachable_path(f"{root}/{pid}", number)
                if path is not None:
                    yield path


def _container_logs(facts: TargetFacts, root: str, host: str) -> Iterator[str]:
    """Yield the file that holds the container's output, where memwatch runs beside the container and may read it.

    12:memory:/docker/9c0f...64 digits
    """
    with suppress(SourceError, OSError):
        for found in set(_CONTAINER.findall(read_whole(f"{root}/{facts.target.pid}/cgroup"))):
            for folder, name in _CONTAINER_LOGS:
                yield from map(str, Path(host, folder).glob(name.format(id=found.decode())))


def _slurm_logs(facts: TargetFacts) -> Iterator[str]:
    environ = facts.environ or {}
    folder, job = environ.get("SLURM_SUBMIT_DIR"), environ.get("SLURM_JOB_ID")
    array = f"{environ.get('SLURM_ARRAY_JOB_ID')}_{environ.get('SLURM_ARRAY_TASK_ID')}"
    for name in (f"slurm-{job}.out", f"slurm-{array}.out") if folder and job else ():
        if Path(folder or "", name).is_file():
            yield str(Path(folder or "", name))


def _folder_logs(in_folder: Sequence[_Entry]) -> list[str]:
    """The latest log of the first kind that is there; none where two of a kind are being written."""
    for wanted in _FOLDER_LOGS:
        if logs := _latest(sorted((status.st_mtime, path) for name, path, status in in_folder if name == wanted)):
            return logs
    return []


def _event_files(facts: TargetFacts, in_folder: Sequence[_Entry]) -> list[str]:
    """TensorBoard's largest file that names this process, else the latest one; none where two are being written.

    events.out.tfevents.1795973277.host.22538.0: the time, the host, the process, a number
    """
    there = [(path, status) for name, path, status in in_folder if name.startswith(EVENT_FILE)]
    process = re.findall(rb"^NSpid:.*?(\d+)$", facts.status, re.MULTILINE) or [str(facts.target.pid).encode()]
    own = [(path, status) for path, status in there if f".{process[0].decode()}." in path.rpartition("/")[2]]
    if own:
        return [max(own, key=lambda found: found[1].st_size)[0]]
    return _latest(sorted((status.st_mtime, path) for path, status in there))


def _state_files(in_folder: Sequence[_Entry]) -> list[str]:
    """The latest state of Hugging Face's Trainer; none where those of two are being written."""
    there: dict[str, tuple[float, str]] = {}  # the latest, by the folder of all checkpoints
    for written, path in sorted((status.st_mtime, path) for name, path, status in in_folder if name == STATE_FILE):
        there[re.sub(r"(?:/checkpoint-[^/]*)?/[^/]*$", "", path)] = written, path
    return _latest(sorted(there.values()))


def _latest(written: list[tuple[float, str]]) -> list[str]:
    """The latest of these files, in order of time; none where another is being written, too: by another trainer."""
    is_alone = len(written) < 2 or written[-2][0] < written[-1][0] - _RECENT_SECONDS
    return [path for _, path in written[-1:]] if is_alone else []


def _walk(facts: TargetFacts) -> Iterator[_Entry]:
    """Yield name, path and status of its user's files in its folder that were written since it began."""
    began, left = process_start_t(facts.target.start_ticks), _MAX_ENTRIES
    own = f"/proc/{facts.target.pid}/cwd"  # in a container its path leads elsewhere from here
    folders = [(facts.cwd if _identity(facts.cwd) == _identity(own) else own, 0)] if facts.cwd else []
    for folder, depth in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in islice(entries, left):
                left -= 1
                if entry.is_dir(follow_symlinks=False) and depth < _MAX_DEPTH - 1:
                    folders.append((entry.path, depth + 1))
                elif entry.name in _FOLDER_LOGS or entry.name.startswith(_COARSE):
                    status = entry.stat(follow_symlinks=False)
                    is_its = stat.S_ISREG(status.st_mode) and status.st_uid == facts.uid
                    if is_its and status.st_mtime >= began:
                        yield entry.name, entry.path, status


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
