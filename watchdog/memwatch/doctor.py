"""`memwatch doctor`: every part that a watch would use, tried once, with what it means when it does not work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from memwatch import wire
from memwatch.actions.signals import PidfdSignaller, plan
from memwatch.app import find_target, make_readers, presets
from memwatch.clock import SystemClock
from memwatch.config import Config
from memwatch.core.engine import Engine
from memwatch.core.model import GenerationSeen, Sample
from memwatch.core.units import format_bytes
from memwatch.errors import ConfigError, ExitCode, HistoryError, MemwatchError, SourceError
from memwatch.history.store import HistoryStore
from memwatch.outputs.web import WebServer
from memwatch.sources.kmsg import KmsgReader
from memwatch.sources.logsource import LogSource
from memwatch.sources.target import TargetFacts, is_same

OK, NOTE, BAD = "ok", "note", "FAIL"


@dataclass(frozen=True, slots=True)
class Check:
    """One part and what was found."""

    part: str
    level: str  # ok: works; note: works with less; FAIL: does not, and it matters
    text: str


def examine(config: Config) -> int:
    """Print all checks. AttachError when a trainer is named and cannot be watched at all."""
    target = config.target
    named = target.pid is not None or target.pidfile is not None or target.match is not None
    facts = find_target(config) if named else None
    checks = list(_checks(config, facts))
    if config.json:
        print(wire.to_json(checks).decode())
    else:
        for check in checks:
            print(f"{check.level:>4}  {check.part:<11} {check.text}")
        if facts is None:
            print("\nThis was the machine. With --pid PID it says what works for that trainer.")
    return ExitCode.CANNOT_ATTACH if any(check.level == BAD for check in checks) else ExitCode.ENDED


def _checks(config: Config, facts: TargetFacts | None) -> Iterator[Check]:
    if facts is not None:
        yield Check("trainer", OK, f"PID {facts.target.pid}: {facts.command}")
        yield from _signals(config, facts)
        yield from _memory(config, facts)
        yield _files(facts)
        yield _log(config, facts)
    yield _try("kernel log", _kernel_log, "an OOM kill is told from the cgroup's counters alone")
    yield _try("history", lambda: _history(config), "nothing outlives memwatch, and a restart begins anew")
    yield _try("listen", lambda: _listen(config), "nothing is served there")


def _try(part: str, work: Callable[[], str], otherwise: str) -> Check:
    try:
        return Check(part, OK, work())
    except MemwatchError as error:
        return Check(part, NOTE, f"{error}: {otherwise}")


def _signals(config: Config, facts: TargetFacts) -> Iterator[Check]:
    chosen = plan(facts.status, config.signals.wanted)
    with closing(PidfdSignaller(facts.target, is_same)) as signaller:
        if not signaller.may_signal():
            why = signaller.problem or "not permitted: run memwatch as the trainer's user or with CAP_KILL"
            yield Check("signal", BAD, f"memwatch cannot signal it, only warn: {why}")
        else:
            yield Check("signal", BAD if chosen.signal is None else OK if chosen.handled else NOTE, chosen.reason)
    if facts.is_torchrun:
        yield Check("torchrun", NOTE, "told to stop, it kills its workers after 30 s: a checkpoint must fit into that")


def _memory(config: Config, facts: TargetFacts) -> Iterator[Check]:
    with ExitStack() as held:
        readers = make_readers(config, facts, held)
        sample = readers.sampler.sample(SystemClock().now())
    yield from _usages(sample)
    if sample.cgroup is not None:
        whose = "its own" if sample.cgroup.owned else "shared with other processes: growth is counted by process"
        yield Check("cgroup", OK, f"version {sample.cgroup.version}, {sample.cgroup.levels[0].path}, {whose}")
    for unread in sample.unread:
        yield Check(unread.source, NOTE, unread.reason)


def _usages(sample: Sample) -> Iterator[Check]:
    for usage in sample.usages:
        if usage.limit is None:
            yield Check("limit", NOTE, f"{usage.resource}: no limit is known; give one with --limit")
        else:
            limit = usage.limit
            room = f"{format_bytes(limit.headroom_bytes)} left of {format_bytes(limit.bytes)} ({limit.origin})"
            yield Check("memory", OK, f"{usage.resource}: {format_bytes(usage.used_bytes)} used, {room}")


def _files(facts: TargetFacts) -> Check:
    try:
        next(Path(f"/proc/{facts.target.pid}/fd").iterdir(), None)
    except OSError:
        return Check("checkpoint", NOTE, "its open files may not be seen: a checkpoint shows in log and folders alone")
    return Check("checkpoint", OK, "its open files can be seen: never interrupted while one is a checkpoint")


def _log(config: Config, facts: TargetFacts) -> Check:
    path = config.log.path or facts.stdout_path
    if path is None:
        return Check("log", NOTE, f"none ({facts.stdout_reason}): growth by time alone; name one with --log")
    source = LogSource(Path(path), presets(config))
    try:
        with closing(source):
            events = source.poll(0.0)
    except SourceError as error:
        return Check("log", NOTE, f"{path}: {error}")
    seen = [event for event in events if isinstance(event, GenerationSeen)]
    if not seen:
        return Check("log", NOTE, f"{path}: no generation markers so far; see memwatch markers {path}")
    of = f" of {source.finder.total}" if source.finder.total else ""
    return Check("log", OK, f"{path}: {seen[-1].unit} {seen[-1].index:g}{of} (preset: {source.finder.preset})")


def _kernel_log() -> str:
    with closing(KmsgReader()):
        return "readable: an OOM kill is told from the kernel's own record"


def _history(config: Config) -> str:
    path = config.history_path(os.environ)
    if path is None:
        raise HistoryError("switched off")
    with closing(HistoryStore.open(path)):
        return str(path)


def _listen(config: Config) -> str:
    address = config.listen_address
    if address is None:
        raise ConfigError("switched off")
    server = WebServer(*address, SystemClock())
    url = server.url
    server.close(Engine(config.policy).snapshot())
    return url
