"""`memwatch doctor`: every part that a watch would use, tried once, with what it means when it does not work."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from memwatch.actions.signal_sender import PidfdSignaller, choose_signal
from memwatch.app.composition import configured_presets, find_target, make_readers
from memwatch.app.interrupter import check_hook
from memwatch.app.watch_session import exposure_warning, make_access_policy
from memwatch.config.settings import Config
from memwatch.core.engine.status_sentence import limit_name
from memwatch.core.events import GenerationSeen
from memwatch.core.measurements import HOST, CgroupMemory, Sample, Target, TreeMemory, Usage
from memwatch.core.text_and_units import format_bytes
from memwatch.errors import ConfigError, ExitCode, HistoryError, MemwatchError, SourceError
from memwatch.history.event_store import HistoryStore
from memwatch.outputs.http.server import WebServer
from memwatch.sources.log.log_source import LogSource
from memwatch.sources.log.whole_log_scan import scan_log
from memwatch.sources.memory.cgroup import CgroupReader
from memwatch.sources.memory.kernel_oom_log import KmsgReader, require_kernel_pid_namespace
from memwatch.sources.memory.memory_wakeup import CgroupWaker
from memwatch.sources.procfs import read_stat
from memwatch.sources.target.target_facts import TargetFacts, is_same_process, read_target_facts
from memwatch.system import json_and_yaml, process_priority
from memwatch.system.clock import SystemClock

OK, NOTE, FAILED = "ok", "note", "FAIL"
GPU_PATIENCE_SECONDS = 10.0  # a driver that nobody has used for a while takes seconds to answer
COUNTED_LOG_BYTES = 64_000_000  # of a longer log the markers are not counted


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One part and what was found."""

    part: str
    level: str  # ok: works; note: works with less; FAIL: does not, and it matters
    text: str


def run_doctor(config: Config, test_notify: bool = False) -> int:
    """Print all checks; `test_notify` sends a message. AttachError when a trainer cannot be watched at all."""
    facts = find_target(config) if config.target.is_named else None
    checks = []
    for check in _checks(config, facts, test_notify):
        checks.append(check)
        if not config.json:
            print(f"{check.level:>4}  {check.part:<11} {check.text}", flush=True)
    if config.json:
        print(json_and_yaml.to_shown_json(checks))
    elif facts is None:
        print("\nThis is what a trainer started here would get. With --pid PID: what works for that one.")
    return ExitCode.CANNOT_ATTACH if any(check.level == FAILED for check in checks) else ExitCode.ENDED


def _checks(config: Config, facts: TargetFacts | None, test_notify: bool) -> Iterator[DoctorCheck]:
    if facts is not None:
        yield DoctorCheck("trainer", OK, f"PID {facts.target.pid}: {facts.command}")
        yield from _signals(config, facts)
    yield from _memory(config, facts)
    if facts is not None:
        yield _files(facts)
        yield _log(config, facts)
    yield _try("kernel log", _kernel_log, "an OOM kill is told from the cgroup's counters alone")
    yield _try("history", lambda: _history(config), "nothing outlives memwatch, and a restart begins anew")
    yield _listen(config)
    if test_notify and "notify" not in config.enabled_extras:
        yield DoctorCheck("notify", FAILED, "no address is configured: notify.urls or notify.file")
    if config.actions.hook is not None:
        yield _hook(config, facts)
    for extra in config.enabled_extras:
        yield _extra(config, extra, test_notify)


def _try(part: str, work: Callable[[], str], otherwise: str) -> DoctorCheck:
    try:
        return DoctorCheck(part, OK, work())
    except MemwatchError as error:
        return DoctorCheck(part, NOTE, f"{error}: {otherwise}")


# --- the trainer ----------------------------------------------------------------------------------------------------


def _signals(config: Config, facts: TargetFacts) -> Iterator[DoctorCheck]:
    chosen = choose_signal(facts.status, config.signals.wanted)
    with closing(PidfdSignaller(facts.target, is_same_process)) as signaller:
        if not signaller.may_signal():
            why = signaller.problem or "not permitted: run memwatch as the trainer's user or with CAP_KILL"
            yield DoctorCheck("signal", FAILED, f"memwatch cannot signal it, only warn: {why}")
        else:
            yield DoctorCheck(
                "signal", FAILED if chosen.signal is None else OK if chosen.handled else NOTE, chosen.reason
            )
    if facts.is_torchrun:
        yield DoctorCheck(
            "torchrun", NOTE, "told to stop, it kills its workers after 30 s: a checkpoint must fit into that"
        )


def _hook(config: Config, facts: TargetFacts | None) -> DoctorCheck:
    """Its program was found when the configuration was read."""
    words = shlex.join(config.actions.hook or ())
    try:
        if facts is not None:
            check_hook(config, facts.environ or {}, facts.argv)
    except ConfigError as error:
        return DoctorCheck("hook", FAILED, f"{error}: memwatch would not start. {error.hint}")
    instead = "" if config.actions.signal else ", in place of the signal"
    return DoctorCheck("hook", OK, f"on an interrupt{instead}: {words}")


def _files(facts: TargetFacts) -> DoctorCheck:
    try:
        for entry in islice(Path(f"/proc/{facts.target.pid}/fd").iterdir(), 1):
            entry.readlink()  # to list them and to see where they lead are two permissions
    except OSError:
        return DoctorCheck(
            "checkpoint", NOTE, "its open files may not be seen: a checkpoint shows in log and folders alone"
        )
    return DoctorCheck("checkpoint", OK, "its open files can be seen: never interrupted while one is a checkpoint")


def _log(config: Config, facts: TargetFacts) -> DoctorCheck:
    path = config.log.path or facts.stdout_path
    if path is None:
        return DoctorCheck("log", NOTE, f"none ({facts.stdout_reason}): growth by time alone; name one with --log")
    try:
        found = _generations(config, Path(path))
    except SourceError as error:
        return DoctorCheck("log", NOTE, f"{error}: growth by time alone until it can be read")
    if not found:
        return DoctorCheck("log", NOTE, f"{path}: no generation markers so far; see memwatch markers {path}")
    return DoctorCheck("log", OK, f"{path}: {found}")


def _generations(config: Config, path: Path) -> str:
    """`12 markers, latest: generation 12 of 25 (preset: evolutionary)`; empty without any."""
    if path.is_file() and path.stat().st_size <= COUNTED_LOG_BYTES:
        whole = scan_log(path, configured_presets(config))
        seen = [hit.event for hit in whole.markers if isinstance(hit.event, GenerationSeen)]
        count, total, preset = f"{len(seen)} marker{'s' * (len(seen) != 1)}, latest: ", whole.total, whole.preset
    else:
        with closing(LogSource(path, configured_presets(config))) as source:
            events = list(source.poll(0.0))
            while source.catching_up:
                events += source.poll(0.0)
            seen = [event for event in events if isinstance(event, GenerationSeen)]
            count, total, preset = "", source.finder.total, source.finder.preset
    if not seen:
        return ""
    of = f" of {total}" if total else ""
    return f"{count}{seen[-1].unit} {seen[-1].index:g}{of} (preset: {preset})"


# --- memory ---------------------------------------------------------------------------------------------------------


def _memory(config: Config, facts: TargetFacts | None) -> Iterator[DoctorCheck]:
    """Of the trainer; without one, of memwatch itself, which stands where a trainer started here would stand."""
    watched = (
        facts if facts is not None else read_target_facts(Target("", os.getpid(), read_stat(os.getpid()).start_ticks))
    )
    with ExitStack() as held:
        readers = make_readers(config, watched, held, GPU_PATIENCE_SECONDS)
        sample = readers.sampler.sample(SystemClock().now())
        wakes = list(_wakes(readers.cgroup, sample)) if facts is not None else []
    if facts is not None and sample.tree is not None:
        yield DoctorCheck("memory", OK, _tree(sample.tree))
    for usage in sample.usages:
        if usage.resource == HOST:
            yield _limit(usage)
    if sample.cgroup is not None:
        yield DoctorCheck("cgroup", OK, _cgroup(sample.cgroup, facts is not None))
    yield from wakes
    locked = process_priority.lock_memory() if config.daemon.lock_memory else "daemon.lock_memory is false"
    yield DoctorCheck("memwatch", NOTE if locked else OK, locked or "its own memory is locked")
    yield from _gpus(config, sample, facts is not None)
    for unread in sample.unread:
        if unread.source != "nvml":
            yield DoctorCheck(unread.source, NOTE, unread.reason)


def _wakes(cgroup: CgroupReader, sample: Sample) -> Iterator[DoctorCheck]:
    """What would wake memwatch between two looks."""
    limit = next((usage.limit for usage in sample.usages if usage.resource == HOST), None)
    if limit is None:
        return
    with closing(CgroupWaker(cgroup.level_directories)) as wakes:
        wakes.set_thresholds(sample.cgroup, limit, [limit.headroom_bytes // 2], hurried=False)
        told, without = ", ".join(wakes.armed), wakes.failure or "there is no memory cgroup"
    yield DoctorCheck("wakes", OK if told else NOTE, told or f"looks are paced by growth alone: {without}")


def _tree(tree: TreeMemory) -> str:
    processes = "1 process" if tree.processes == 1 else f"{tree.processes} processes"
    return f"{format_bytes(tree.used_bytes)} in {processes}"


def _limit(usage: Usage) -> DoctorCheck:
    limit = usage.limit
    if limit is None:
        return DoctorCheck("limit", NOTE, "none is known; give one with --limit")
    binds = f"{limit_name(limit)} {format_bytes(limit.bytes)} binds"
    if limit.headroom_bytes <= 0:
        return DoctorCheck("limit", NOTE, f"{binds} and is exceeded by {format_bytes(-limit.headroom_bytes)}")
    return DoctorCheck("limit", OK, f"{binds}, {format_bytes(limit.headroom_bytes)} left")


def _cgroup(cgroup: CgroupMemory, of_trainer: bool) -> str:
    bounds = [level.limit_bytes for level in cgroup.levels if level.limit_bytes is not None]
    limit = f"limit {format_bytes(min(bounds))}" if bounds else "no limit set"
    whose = ", the trainer's own" if cgroup.owned else ", shared with others: growth is counted by process"
    return f"version {cgroup.version}, {cgroup.levels[0].path}, {limit}{whose if of_trainer else ''}"


def _gpus(config: Config, sample: Sample, of_trainer: bool) -> Iterator[DoctorCheck]:
    failed = next((unread for unread in sample.unread if unread.source == "nvml"), None)
    if not config.gpu.enabled:
        yield DoctorCheck("gpu", NOTE, "switched off (gpu.enabled)")
    elif failed is not None:
        wanted = config.gpu.enabled is True or not failed.absent
        yield DoctorCheck("gpu", FAILED if wanted else NOTE, failed.reason)
    elif not sample.gpus:
        yield DoctorCheck("gpu", OK, "the driver answers" + ("; the trainer uses no GPU so far" if of_trainer else ""))
    for gpu in sample.gpus:
        used = "its share cannot be told" if gpu.used_bytes is None else f"{format_bytes(gpu.used_bytes)} used"
        of = f" of {format_bytes(gpu.total_bytes)}" if gpu.total_bytes is not None else ""
        reason = f": {gpu.reason}" if gpu.reason else ""
        yield DoctorCheck(
            "gpu", NOTE if reason else OK, f"{gpu.resource} {gpu.name}: {used}{of} ({gpu.attribution}){reason}"
        )


# --- memwatch itself ------------------------------------------------------------------------------------------------


def _kernel_log() -> str:
    require_kernel_pid_namespace()
    with closing(KmsgReader()):
        return "readable: an OOM kill is told from the kernel's own record"


def _history(config: Config) -> str:
    path = config.history_path(os.environ)
    if path is None:
        raise HistoryError("switched off")
    try:
        above = None if path.exists() else next(folder for folder in path.absolute().parents if folder.exists())
    except OSError as error:  # a folder that is closed to this user
        raise HistoryError(f"{path} cannot be used: {error.strerror}") from error
    if above is not None:  # not made by the doctor, who may be another user
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            raise HistoryError(f"{path} cannot be made")
        return f"{path}, to be made"
    with closing(HistoryStore.open(path)):
        return str(path)


def _listen(config: Config) -> DoctorCheck:
    try:
        make_access_policy(config)
    except ConfigError as error:
        return DoctorCheck("listen", FAILED, f"{error}: memwatch would not start. {error.hint}")
    return _try("listen", lambda: try_listen(config), "nothing is served there")


def _extra(config: Config, extra: str, test_notify: bool) -> DoctorCheck:
    from memwatch.app.tracker_setup import probe_extra

    try:
        return DoctorCheck(extra, OK, probe_extra(config, extra, test_notify))
    except MemwatchError as error:
        return DoctorCheck(extra, FAILED, "; ".join(filter(None, (str(error), error.hint))))


def try_listen(config: Config) -> str:
    """Where memwatch would be served and what is asked there; ConfigError when it cannot be, or is not wanted."""
    address = config.listen_address
    if address is None:
        raise ConfigError("switched off")
    server = WebServer(*address, SystemClock(), make_access_policy(config))
    told = "; ".join(filter(None, [f"{server.url}{_asked(server.requirements)}", exposure_warning(server)]))
    server.stop()
    return told


def _asked(things: frozenset[str]) -> str:
    return f", asks for {' and '.join(sorted(things))}" if things else ""
