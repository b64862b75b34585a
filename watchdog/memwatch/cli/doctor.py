"""`memwatch doctor`: tries once every part that a watch would use, and says what follows if it does not work."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from memwatch.actions.signal_sender import PidfdSignaller, choose_signal
from memwatch.app.composition import configured_presets, find_target, make_readers
from memwatch.app.interrupter import check_hook
from memwatch.app.signal_handling_check import check_signal_handling
from memwatch.app.watch_session import exposure_warning, make_access_policy
from memwatch.cli.watch_serve_markers import config_from_flags
from memwatch.config.settings import Config
from memwatch.core.engine.status_sentence import limit_name, signal_handling_text
from memwatch.core.events import GenerationSeen
from memwatch.core.measurements import HOST, CgroupMemory, Sample, Target, Usage
from memwatch.core.text_and_units import format_bytes
from memwatch.diagnosis.heap.cpython_runtime import find_interpreter
from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.errors import ConfigError, ExitCode, HistoryError, MemwatchError, SourceError
from memwatch.history.event_store import HistoryStore
from memwatch.outputs.http.server import WebServer
from memwatch.sources.log.log_choice import is_coarse_log, named_logs, open_log, require_one_log
from memwatch.sources.log.log_source import LogSource
from memwatch.sources.log.log_tail import STDIN
from memwatch.sources.log.whole_log_scan import scan_log
from memwatch.sources.memory.cgroup import CgroupReader
from memwatch.sources.memory.kernel_oom_log import KmsgReader, require_kernel_pid_namespace
from memwatch.sources.memory.memory_wakeup import CgroupWaker
from memwatch.sources.procfs import read_stat
from memwatch.sources.progress.progress_files import STATE_FILE
from memwatch.sources.target.find_log import find_logs
from memwatch.sources.target.target_facts import TargetFacts, is_same_process, read_target_facts
from memwatch.system import json_and_yaml, process_priority
from memwatch.system.clock import SystemClock

OK, NOTE, FAILED = "ok", "note", "FAIL"
GPU_PATIENCE_SECONDS = 10.0  # a driver that has not been used for a while takes seconds to answer
MAX_COUNTED_LOG_BYTES = 64_000_000  # the markers of a longer log are not counted


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The outcome for one part of a watch."""

    part: str
    level: str  # ok: works; note: the watch works with less; FAIL: something that matters does not work
    text: str


def doctor(flags: Mapping[str, Any]) -> int:
    """`memwatch doctor`: print all checks; --test-notify also sends a message. CANNOT_ATTACH if one has failed."""
    config = config_from_flags(flags)
    facts = find_target(config) if config.target.is_named else None
    checks = []
    for check in _checks(config, facts, "test_notify" in flags):
        checks.append(check)
        if not config.json:
            print(f"{check.level:>4}  {check.part:<11} {check.text}", flush=True)
    if config.json:
        print(json_and_yaml.to_shown_json(checks))
    elif facts is None:
        print("\nThis holds for a trainer that is started here. With --pid PID, doctor checks one that runs.")
    return ExitCode.CANNOT_ATTACH if any(check.level == FAILED for check in checks) else ExitCode.ENDED


def _checks(config: Config, facts: TargetFacts | None, test_notify: bool) -> Iterator[DoctorCheck]:
    if facts is not None:
        yield DoctorCheck("trainer", OK, f"PID {facts.target.pid}: {facts.command}")
        yield from _signals(config, facts)
    yield from _memory(config, facts)
    if facts is not None:
        yield _checkpoint_files(facts)
        yield _log(config, facts)
        yield _try("heap", lambda: _heap(config, facts), "memwatch can tell that it grows, not which objects do")
    yield _try("kernel log", _kernel_log, "only the cgroup's counters show an OOM kill")
    yield _try("history", lambda: _history(config), "nothing is stored, and a restarted watch begins from scratch")
    yield _listen(config)
    if test_notify and "notify" not in config.enabled_extras:
        yield DoctorCheck("notify", FAILED, "no address is configured: notify.urls or notify.file")
    if config.actions.hook is not None:
        yield _hook(config, config.actions.hook, facts)
    for extra in config.enabled_extras:
        yield _extra(config, extra, test_notify)


def _try(part: str, check: Callable[[], str], consequence: str) -> DoctorCheck:
    try:
        return DoctorCheck(part, OK, check())
    except MemwatchError as error:
        return DoctorCheck(part, NOTE, f"{error}: {consequence}")


# --- the trainer ----------------------------------------------------------------------------------------------------


def _signals(config: Config, facts: TargetFacts) -> Iterator[DoctorCheck]:
    with closing(PidfdSignaller(facts.target, is_same_process)) as signaller:
        if signaller.may_signal():
            chosen = choose_signal(facts.status, config.signals.wanted)
            level, text = FAILED if chosen.signal is None else OK if chosen.handled else NOTE, chosen.reason
            if chosen.signal is not None and chosen.handled:
                found = check_signal_handling(facts.target, chosen.signal)
                level, text = OK if found.handled else NOTE, f"{text}; {signal_handling_text(found)}"
            yield DoctorCheck("signal", level, text)
        else:
            reason = signaller.problem or "not permitted: run memwatch as the trainer's user or with CAP_KILL"
            yield DoctorCheck("signal", FAILED, f"memwatch can warn, but cannot signal it: {reason}")
    if facts.is_torchrun:
        text = "30 s after a signal it kills its workers: a checkpoint must not take longer"
        yield DoctorCheck("torchrun", NOTE, text)


def _hook(config: Config, command: tuple[str, ...], facts: TargetFacts | None) -> DoctorCheck:
    """Check what depends on the trainer: the program was found when the configuration was loaded."""
    try:
        if facts is not None:
            check_hook(config, facts.environ or {}, facts.argv)
    except ConfigError as error:
        return DoctorCheck("hook", FAILED, f"{error}: memwatch would not start. {error.hint}")
    instead = ", in place of the signal" if config.actions.hook_replaces_signal else ""
    return DoctorCheck("hook", OK, f"on an interrupt{instead}: {shlex.join(command)}")


def _checkpoint_files(facts: TargetFacts) -> DoctorCheck:
    try:
        for entry in islice(Path(f"/proc/{facts.target.pid}/fd").iterdir(), 1):
            entry.readlink()  # listing the files and reading where they lead are two permissions
    except OSError:
        text = "its open files cannot be read: a checkpoint shows only in its log and its folders"
        return DoctorCheck("checkpoint", NOTE, text)
    text = "its open files can be read: memwatch never interrupts it while it writes a checkpoint"
    return DoctorCheck("checkpoint", OK, text)


def _log(config: Config, facts: TargetFacts) -> DoctorCheck:
    named = config.log.paths
    if STDIN in named:
        return DoctorCheck("log", NOTE, "standard input: it is read during a watch")
    try:
        require_one_log(named)
        found_logs = named_logs(named) if named else find_logs(facts) if facts.stdout_path is None else ()
        if not (named or found_logs or facts.stdout_path):
            text = f"none ({facts.stdout_reason}): the forecast is by time alone; name a log with --log"
            return DoctorCheck("log", NOTE, text)
        path = next(iter(found_logs), Path(*named[:1] or [facts.stdout_path or ""]))
        found = _latest_generation(config, path)
    except ConfigError as error:
        return DoctorCheck("log", FAILED, f"{error}: memwatch would not start. {error.hint}")
    except SourceError as error:
        return DoctorCheck("log", NOTE, f"{error}: the forecast is by time alone until it can be read")
    if not found:
        return DoctorCheck("log", NOTE, f"{path}: no generation markers so far; see memwatch markers {path}")
    return DoctorCheck("log", OK, f"{path}: {found}")


def _heap(config: Config, facts: TargetFacts) -> str:
    if not config.diagnosis.enabled:
        raise SourceError("diagnosis.enabled is false")
    with closing(RemoteMemory(facts.target.pid)) as memory:
        major, number = find_interpreter(memory).minor
    return f"CPython {major}.{number}, readable: findings name the objects that grow"


def _latest_generation(config: Config, path: Path) -> str:
    """`12 markers, latest: generation 12 of 25 (preset: evolutionary)`; empty without any."""
    presets = configured_presets(config)
    if not is_coarse_log(path) and path.is_file() and path.stat().st_size <= MAX_COUNTED_LOG_BYTES:
        scan = scan_log(path, presets)
        seen = [marker.event for marker in scan.markers if isinstance(marker.event, GenerationSeen)]
        count, total, preset = f"{len(seen)} marker{'s' * (len(seen) != 1)}, latest: ", scan.total, scan.preset
    else:
        with closing(open_log(path, presets)) as source:
            events = list(source.poll(0.0))
            while source.catching_up:
                events += source.poll(0.0)
            seen = [event for event in events if isinstance(event, GenerationSeen)]
            count, total = "", seen[-1].total if seen else None
            preset = STATE_FILE if path.name == STATE_FILE else "TensorBoard"
            if isinstance(source, LogSource):
                total, preset = source.finder.total, source.finder.preset
    if not seen:
        return ""
    of = f" of {total}" if total else ""
    return f"{count}{seen[-1].unit} {seen[-1].index:g}{of} (preset: {preset})"


# --- memory ---------------------------------------------------------------------------------------------------------


def _memory(config: Config, facts: TargetFacts | None) -> Iterator[DoctorCheck]:
    """Check the trainer's memory; without one memwatch's own, which has the limits of a trainer started here."""
    pid = os.getpid()
    watched = facts or read_target_facts(Target("", pid, read_stat(pid).start_ticks))
    with ExitStack() as stack:
        readers = make_readers(config, watched, stack, GPU_PATIENCE_SECONDS)
        sample = readers.sampler.sample(SystemClock().now())
        wakeups = list(_wakeups(readers.cgroup, sample)) if facts is not None else []
    if facts is not None and sample.tree is not None:
        count = sample.tree.processes
        used = format_bytes(sample.tree.used_bytes)
        yield DoctorCheck("memory", OK, f"{used} in {'1 process' if count == 1 else f'{count} processes'}")
    for usage in sample.usages:
        if usage.resource == HOST:
            yield _limit(usage)
    if sample.cgroup is not None:
        yield DoctorCheck("cgroup", OK, _cgroup(sample.cgroup, facts is not None))
    yield from wakeups
    problem = process_priority.lock_memory() if config.daemon.lock_memory else "daemon.lock_memory is false"
    text = problem or "it stays in RAM (locked), so that it can act when memory is short"
    yield DoctorCheck("memwatch", NOTE if problem else OK, text)
    yield from _gpus(config, sample, facts is not None)
    for unread in sample.unread:
        if unread.source != "nvml":
            yield DoctorCheck(unread.source, NOTE, unread.reason)


def _wakeups(cgroup: CgroupReader, sample: Sample) -> Iterator[DoctorCheck]:
    """Check what would wake memwatch between two samples."""
    limit = next((usage.limit for usage in sample.usages if usage.resource == HOST), None)
    if limit is None:
        return
    with closing(CgroupWaker(cgroup.level_directories)) as waker:
        waker.set_thresholds(sample.cgroup, limit, [limit.headroom_bytes // 2])
        waker.wait_until_armed()
        if waker.armed:
            yield DoctorCheck("wake-up", OK, f"the kernel wakes memwatch between two samples: {', '.join(waker.armed)}")
        else:
            reason = waker.failure or "there is no memory cgroup"
            yield DoctorCheck("wake-up", NOTE, f"{reason}: between two samples a sudden rise is not seen")


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
    owner = ", the trainer's own" if cgroup.owned else ", shared with others: their growth counts"
    return f"version {cgroup.version}, {cgroup.levels[0].path}, {limit}{owner if of_trainer else ''}"


def _gpus(config: Config, sample: Sample, of_trainer: bool) -> Iterator[DoctorCheck]:
    failed = next((unread for unread in sample.unread if unread.source == "nvml"), None)
    if not config.gpu.enabled:
        yield DoctorCheck("gpu", NOTE, "switched off (gpu.enabled)")
    elif failed is not None:
        matters = config.gpu.enabled is True or not failed.absent
        yield DoctorCheck("gpu", FAILED if matters else NOTE, failed.reason)
    elif not sample.gpus:
        yield DoctorCheck("gpu", OK, "the driver answers" + ("; the trainer uses no GPU so far" if of_trainer else ""))
    for gpu in sample.gpus:
        used = "its use is unknown" if gpu.used_bytes is None else f"{format_bytes(gpu.used_bytes)} used"
        of = f" of {format_bytes(gpu.total_bytes)}" if gpu.total_bytes is not None else ""
        reason = f": {gpu.reason}" if gpu.reason else ""
        text = f"{gpu.resource} {gpu.name}: {used}{of} ({gpu.attribution}){reason}"
        yield DoctorCheck("gpu", NOTE if reason else OK, text)


# --- memwatch itself ------------------------------------------------------------------------------------------------


def _kernel_log() -> str:
    require_kernel_pid_namespace()
    with closing(KmsgReader()):
        return "readable: it has a record of each OOM kill"


def _history(config: Config) -> str:
    path = config.history_path(os.environ)
    if path is None:
        raise HistoryError("switched off")
    try:
        parent = None if path.exists() else next(folder for folder in path.absolute().parents if folder.exists())
    except OSError as error:  # this user may not enter a folder
        raise HistoryError(f"{path} cannot be used: {error.strerror}") from error
    if parent is None:
        HistoryStore.open(path).close()
        return str(path)
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise HistoryError(f"{path} cannot be created")
    return f"{path}, will be created"  # by the watch: doctor may be run by another user


def _listen(config: Config) -> DoctorCheck:
    try:
        policy = make_access_policy(config)
    except ConfigError as error:
        return DoctorCheck("listen", FAILED, f"{error}: memwatch would not start. {error.hint}")
    address = config.listen_address
    if address is None:
        return DoctorCheck("listen", NOTE, "switched off: nothing is served there")
    try:
        server = WebServer(*address, SystemClock(), policy)
    except MemwatchError as error:
        return DoctorCheck("listen", NOTE, f"{error}: nothing is served there")
    asks = f", asks for {' and '.join(sorted(server.requirements))}" if server.requirements else ""
    text = "; ".join(filter(None, [f"{server.url}{asks}", exposure_warning(server)]))
    server.stop()
    return DoctorCheck("listen", OK, text)


def _extra(config: Config, extra: str, test_notify: bool) -> DoctorCheck:
    from memwatch.app.tracker_setup import probe_extra

    try:
        return DoctorCheck(extra, OK, probe_extra(config, extra, test_notify))
    except MemwatchError as error:
        return DoctorCheck(extra, FAILED, "; ".join(filter(None, (str(error), error.hint))))
