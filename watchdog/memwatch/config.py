"""YAML and flags -> one frozen Config; what cannot work is refused here, before anything is watched."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from memwatch import wire
from memwatch.core.expectations import Check
from memwatch.core.expectations import parse as parse_expectation
from memwatch.core.occasions import DiagnosisPolicy
from memwatch.core.policy import Policy
from memwatch.core.units import parse_size
from memwatch.errors import ConfigError

NONE = "none"  # switches `listen` or `history` off
DEFAULT_LISTEN = "127.0.0.1:9877"


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """The trainer: one of them, usually as a flag; `match` also beside the last two."""

    pid: int | None = None
    pidfile: str | None = None
    match: str | None = None  # a regular expression for the command line
    unit: str | None = None  # of systemd
    cgroup: str | None = None  # a path as /proc/PID/cgroup has it, or a pattern of one

    @property
    def is_named(self) -> bool:
        """One of them is given."""
        return any(value is not None for value in (self.pid, self.pidfile, self.match, self.unit, self.cgroup))


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The trainer's log."""

    path: str | None = None  # None: its stdout, when that is a file
    markers: str | None = None  # the name of a preset; None: the one that fits
    extra: tuple[str | dict[str, Any], ...] = ()  # a user's own presets: files, folders, or written in place


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """How host memory is read."""

    limit: str | int | None = None  # as 175GB
    interval_seconds: float = 1.0
    sample_pages: bool = True

    @property
    def limit_bytes(self) -> int | None:
        """The limit in bytes, None without one."""
        return None if self.limit is None else parse_size(str(self.limit))


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """Whether GPUs are read: "auto" when there is a driver, True complains without one."""

    enabled: bool | Literal["auto"] = "auto"


@dataclass(frozen=True, slots=True)
class SignalsConfig:
    """How the trainer is interrupted."""

    wanted: tuple[str, ...] = ("SIGINT", "SIGTERM")  # the first that it handles is sent
    torchrun: Literal["agent", "ranks"] = "agent"


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """Where checkpoints appear."""

    globs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DiagnosisConfig:
    """How the causes of growth are looked for."""

    enabled: bool = True
    every_generations: int | None = None  # None: each of the first ten, then ever more rarely
    cpu_share: float = 0.01  # of a core
    memory: str | int = "256MiB"  # that an examination may take
    leak_threshold_mb: float = 5.0  # a generation


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """memwatch's own process."""

    lock_memory: bool = True  # where that is permitted
    realtime: bool = False  # run before all ordinary programs
    linger_seconds: float = 0.0  # answer HTTP for so long after the trainer's end
    wait_seconds: float = 2.0  # between two looks for a trainer, where memwatch waits for one


@dataclass(frozen=True, slots=True)
class WandbConfig:
    """Figures as a run of Weights & Biases."""

    project: str | None = None  # None: no such run
    entity: str | None = None
    name: str | None = None
    mode: Literal["online", "offline"] | None = None  # None: as WANDB_MODE says
    dir: str | None = None  # None: as WANDB_DIR says


@dataclass(frozen=True, slots=True)
class TensorboardConfig:
    """Figures as a TensorBoard event file."""

    dir: str | None = None  # None: no such file


@dataclass(frozen=True, slots=True)
class NotifyConfig:
    """Messages to people. The addresses hold passwords."""

    urls: tuple[str, ...] = ()
    file: str | None = None  # with an address in each line
    events: tuple[str, ...] = ("warn", "interrupt", "saved", "escalated", "failed", "exited", "gave_up")


@dataclass(frozen=True, slots=True)
class Config:
    """All that a user may set. The keys of the YAML file have the same names."""

    target: TargetConfig = field(default_factory=TargetConfig)
    log: LogConfig = field(default_factory=LogConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    gpu: GpuConfig = field(default_factory=GpuConfig)
    policy: Policy = field(default_factory=Policy)
    signals: SignalsConfig = field(default_factory=SignalsConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    diagnosis: DiagnosisConfig = field(default_factory=DiagnosisConfig)
    track: tuple[str, ...] = ()  # attributes whose size is told: Trainer.replay_buffer
    expectations: tuple[str, ...] = ()  # of the run: growth < 5GB/generation
    wandb: WandbConfig = field(default_factory=WandbConfig)
    tensorboard: TensorboardConfig = field(default_factory=TensorboardConfig)
    notify: NotifyConfig = field(default_factory=NotifyConfig)
    daemon: DaemonConfig = field(default_factory=DaemonConfig)
    listen: str | None = None  # None: DEFAULT_LISTEN, when that is free
    web_config: str | None = None  # who may ask what is served; None: who can reach it
    history: str | None = None  # None: the state folder
    dry_run: bool = False
    json: bool = False
    verbose: bool = False

    @property
    def examining(self) -> DiagnosisPolicy:
        """How the trainer is examined, for the engine."""
        set_, memory = self.diagnosis, parse_size(str(self.diagnosis.memory))
        threshold = set_.leak_threshold_mb * 1e6
        return DiagnosisPolicy(
            set_.enabled, set_.every_generations, set_.cpu_share, memory, threshold, tuple(self.track)
        )

    @property
    def checks(self) -> tuple[Check, ...]:
        """The expectations, as the engine checks them."""
        return tuple(map(parse_expectation, self.expectations))

    @property
    def extras(self) -> tuple[str, ...]:
        """The optional outputs that are asked for, by the names of their extras."""
        found = {
            "wandb": self.wandb.project,
            "tensorboard": self.tensorboard.dir,
            "notify": self.notify.urls or self.notify.file,
        }
        return tuple(name for name, asked in found.items() if asked)

    @property
    def listen_address(self) -> tuple[str, int] | None:
        """(address without brackets, port); None: nothing is served."""
        return parse_listen(self.listen or DEFAULT_LISTEN)

    def history_path(self, environ: Mapping[str, str]) -> Path | None:
        """Where the history is kept; None: nowhere."""
        if self.history == NONE:
            return None
        return Path(self.history) if self.history else default_history(environ)


FLAGS: Mapping[str, str] = {  # argparse's name -> the key that it overrides
    "pid": "target.pid",
    "pidfile": "target.pidfile",
    "match": "target.match",
    "unit": "target.unit",
    "cgroup": "target.cgroup",
    "log": "log.path",
    "limit": "memory.limit",
    "interval": "memory.interval_seconds",
    "checkpoint_time": "policy.checkpoint_seconds",
    "listen": "listen",
    "web_config": "web_config",
    "history": "history",
    "dry_run": "dry_run",
    "json": "json",
    "verbose": "verbose",
}
_SECTIONS = (
    *("target", "log", "memory", "gpu", "policy", "signals", "checkpoint", "diagnosis"),
    *("wandb", "tensorboard", "notify", "daemon"),
)
_RANGES: Mapping[str, tuple[float, float]] = {
    "target.pid": (1, 2**22),
    "memory.interval_seconds": (0.05, 3600),
    "policy.checkpoint_seconds": (0.1, 86_400),
    "policy.warn_horizon_seconds": (0, 31_536_000),
    "policy.warn_horizon_generations": (0, 1_000_000),
    "policy.confidence": (0.5, 0.9999),
    "policy.headroom_guard": (0, 0.5),
    "policy.second_look_seconds": (0, 3600),
    "policy.cooldown_seconds": (0, 604_800),
    "policy.save_timeout_seconds": (1, 86_400),
    "policy.kill_after_seconds": (1, 86_400),
    "diagnosis.every_generations": (1, 1_000_000),
    "diagnosis.cpu_share": (0, 1),
    "diagnosis.leak_threshold_mb": (0, 1e9),
    "daemon.linger_seconds": (0, 3600),
    "daemon.wait_seconds": (0.1, 3600),
}
_NOT_EMPTY = (
    *(
        "target.pidfile",
        "target.match",
        "target.unit",
        "target.cgroup",
        "log.path",
        "log.markers",
        "web_config",
        "history",
    ),
    *("wandb.project", "wandb.entity", "wandb.name", "wandb.dir", "tensorboard.dir", "notify.file"),
)
_UNCATCHABLE = ("SIGKILL", "SIGSTOP")


def load(path: Path | None = None, text: str | None = None, flags: Mapping[str, object] | None = None) -> Config:
    """The file at `path` (or its `text`, `path` then only names it), overridden by the flags that are not None.

    ConfigError names file and line (or the flag), the key, its value, and the fix.
    """
    given = {FLAGS[name]: value for name, value in (flags or {}).items() if name in FLAGS and value is not None}
    document = _overridden(_document(path, text), given)
    config = _with_home(wire.convert(document.data, Config, document))
    for check in (_check_ranges, _check_texts, _check_signals, _check_outputs, _check_pairs):
        check(config, document)
    return config


def parse_listen(text: str) -> tuple[str, int] | None:
    """`127.0.0.1:9877`, `[::1]:9877`, `localhost:0` -> (address, port); `none` -> None; else ValueError."""
    if text == NONE:
        return None
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+(?:%\w+)?)\]|([^\s:\[\]/]+)):([0-9]{1,5})", text)
    if found is None:
        raise ValueError("write ADDRESS:PORT, as 127.0.0.1:9877 or '[::1]:9877', or none")
    if int(found[3]) > 65535:
        raise ValueError("a port is 0 (any that is free) to 65535")
    return found[1] or found[2], int(found[3])


def default_history(environ: Mapping[str, str]) -> Path:
    """`memwatch/history.db` under the XDG state folder; a relative XDG_STATE_HOME counts for nothing, as XDG says."""
    state = environ.get("XDG_STATE_HOME", "")
    home = environ.get("HOME") or "~"
    folder = Path(state) if state.startswith("/") else Path(home).expanduser() / ".local/state"
    return folder / "memwatch" / "history.db"


# --- where it comes from --------------------------------------------------------------------------------------------


def _document(path: Path | None, text: str | None) -> wire.Document:
    if path is None and not text:
        return wire.Document("", {})
    name = str(path) if path is not None else "configuration"
    if text is None and path is not None:
        try:
            with path.open("rb") as file:
                content: str | bytes = file.read(wire.MAX_YAML_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}", "name a file that can be read with --config") from error
    else:
        content = text or ""
    document = wire.read_yaml(content, name)
    if document.data is None:
        return replace(document, data={})
    if not isinstance(document.data, dict):
        raise ConfigError(f"{name}:1: it holds no keys", "begin from configs/memwatch.yaml")
    return document


def _overridden(document: wire.Document, given: Mapping[str, object]) -> wire.Document:
    """The document with the flags in it. A target on the command line replaces any that the file names."""
    data = {key: dict(value) if isinstance(value, dict) else value for key, value in document.data.items()}
    data = {key: value for key, value in data.items() if value is not None or key not in _SECTIONS}  # `log:`, no more
    if any(path.startswith("target.") for path in given):
        data.pop("target", None)
    for path, value in given.items():
        *sections, key = path.split(".")
        section: Any = data
        for name in sections:
            section = section.setdefault(name, {})
        if isinstance(section, dict):
            section[key] = _number(value) if path in _RANGES else value
    names = {path: f"--{flag.replace('_', '-')}" for flag, path in FLAGS.items() if path in given}
    return replace(document, data=data, flags=names)


def _number(value: object) -> object:
    """A flag may come as text; what is no number is left for the check of types to refuse."""
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
    return value


def _with_home(config: Config) -> Config:
    """`~` at the start of a path is the user's home folder; one of an unknown user stays as it is written."""
    home = os.path.expanduser  # Path's own raises for an unknown user
    log, globs = config.log, config.checkpoint.globs
    return replace(
        config,
        target=replace(config.target, pidfile=config.target.pidfile and home(config.target.pidfile)),
        log=replace(
            log,
            path=log.path and home(log.path),
            extra=tuple(home(item) if isinstance(item, str) else item for item in log.extra),
        ),
        checkpoint=replace(config.checkpoint, globs=tuple(map(home, globs))),
        web_config=config.web_config and home(config.web_config),
        wandb=replace(config.wandb, dir=config.wandb.dir and home(config.wandb.dir)),
        tensorboard=replace(config.tensorboard, dir=config.tensorboard.dir and home(config.tensorboard.dir)),
        notify=replace(config.notify, file=config.notify.file and home(config.notify.file)),
        history=config.history and home(config.history),
    )


# --- what cannot work -----------------------------------------------------------------------------------------------


def _value(config: Config, path: str) -> Any:
    found: Any = config
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _check_ranges(config: Config, document: wire.Document) -> None:
    for path, (low, high) in _RANGES.items():
        value = _value(config, path)
        if value is not None and not low <= value <= high:
            fix = f"write a number from {low:.10g} to {high:.10g}"
            raise wire.complaint(document, path, "out of range", value, fix)


def _check_texts(config: Config, document: wire.Document) -> None:
    """Values with a form of their own."""
    forms: Mapping[str, tuple[Callable[[str], object], str]] = {
        "memory.limit": (parse_size, "not a size"),
        "diagnosis.memory": (parse_size, "not a size"),
        "listen": (parse_listen, "not a place to listen at"),
        "target.match": (re.compile, "not a regular expression"),
    }
    for path, (parse, problem) in forms.items():
        value = _value(config, path)
        try:
            if value is not None:
                parse(str(value))
        except (ValueError, re.error) as error:
            raise wire.complaint(document, path, problem, value, str(error)) from error
    for i, text in enumerate(config.expectations):
        try:
            parse_expectation(text)
        except ValueError as error:
            raise wire.complaint(document, f"expectations[{i}]", "not understood", text, str(error)) from error
    for i, track in enumerate(config.track):
        try:
            _parse_track(track)
        except ConfigError as error:
            raise wire.complaint(document, f"track[{i}]", "no path to an attribute", track, error.hint) from error
    for path in _NOT_EMPTY:
        if _value(config, path) == "":
            raise wire.complaint(document, path, "empty", "", "leave the key out, or give it a value")


def _parse_track(path: str) -> object:
    from memwatch.diagnosis.heap.tracks import parse

    return parse(path)


def _check_signals(config: Config, document: wire.Document) -> None:
    wanted = config.signals.wanted
    if not wanted:
        fix = "name one, as SIGINT; to warn only, set policy.act to false"
        raise wire.complaint(document, "signals.wanted", "nothing to interrupt with", list(wanted), fix)
    for i, name in enumerate(wanted):
        path = f"signals.wanted[{i}]"
        if name in _UNCATCHABLE:
            fix = "take it out; SIGKILL as the last resort is policy.kill"
            raise wire.complaint(document, path, "no trainer can catch it and save", name, fix)
        if name not in signal.Signals.__members__:
            raise wire.complaint(document, path, "not a signal", name, "write names as SIGINT, SIGTERM, SIGHUP")
        if name in wanted[:i]:
            raise wire.complaint(document, path, "named twice", name, "take one of them out")


def _check_outputs(config: Config, document: wire.Document) -> None:
    for i, event in enumerate(config.notify.events):
        if event not in NotifyConfig().events and event not in (known := _events_to_notify_of()):
            fix = f"those that can be asked for: {', '.join(known)}"
            raise wire.complaint(document, f"notify.events[{i}]", "no event to be notified of", event, fix)
    given = [name for name in ("entity", "name", "mode", "dir") if _value(config, f"wandb.{name}") is not None]
    if given and config.wandb.project is None:
        path, fix = f"wandb.{given[0]}", "name the run's project as wandb.project"
        raise wire.complaint(document, path, "there is no run without a project", _value(config, path), fix)


def _events_to_notify_of() -> tuple[str, ...]:
    from memwatch.outputs.messages import MANNERS

    return tuple(MANNERS)


def _check_pairs(config: Config, document: wire.Document) -> None:
    """Values that are right alone and wrong together."""
    targets = [
        name for name in ("pid", "pidfile", "unit", "cgroup", "match") if _value(config, f"target.{name}") is not None
    ]
    if len(targets) > 1 and (len(targets) > 2 or targets[0] in ("pid", "pidfile") or targets[1] != "match"):
        path, other = f"target.{targets[1]}", f"target.{targets[0]}"
        raise wire.complaint(
            document, path, f"{other} names the trainer already", _value(config, path), "keep one of the two"
        )
    policy, interval = config.policy, config.memory.interval_seconds
    if policy.kill and not policy.act:
        fix = "set policy.act to true, or leave policy.kill out"
        raise wire.complaint(document, "policy.kill", "policy.act is false, so nothing is ever signalled", True, fix)
    if policy.checkpoint_seconds is not None and interval > policy.checkpoint_seconds:
        path = "memory.interval_seconds"
        if path not in document.flags and "policy.checkpoint_seconds" in document.flags:
            path = "policy.checkpoint_seconds"
        raise wire.complaint(
            document,
            path,
            f"samples {interval:g} s apart are too rare for a checkpoint of {policy.checkpoint_seconds:g} s",
            _value(config, path),
            f"set the interval to {policy.checkpoint_seconds:g} or less",
        )
