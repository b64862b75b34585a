"""All that a user may set, as one frozen Config: its keys, their defaults, their ranges."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from memwatch.core.decision.policy import Policy
from memwatch.core.leaks.examination_schedule import DiagnosisPolicy
from memwatch.core.text_and_units import parse_size

NONE = "none"  # switches `listen` or `history` off
ADDRESS = r"(?:\[([0-9A-Fa-f:.]+(?:%\w+)?)\]|([^\s:\[\]/]+))"  # before the port
DEFAULT_LISTEN = "127.0.0.1:9877"
Profile = Literal["default", "observe", "aggressive"]  # settings that go together: configs/profiles
PROFILES: tuple[str, ...] = get_args(Profile)
DEFAULT_PROFILE: Profile = "default"  # sets nothing


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
class ActionsConfig:
    """What is done on an interrupt besides the signal, or in its place."""

    hook: tuple[str, ...] | None = None  # a command in words; None: there is none
    hook_seconds: float = 30.0  # that it may take
    signal: bool = True  # False: the hook stops the trainer, too, and a signal follows only where it fails
    environment: tuple[str, ...] = ()  # names in memwatch's own environment that the hook gets


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Which part of which run this is; None: as the trainer's environment says."""

    id: str | None = None
    node: str | None = None
    rank: int | None = None


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

    profile: Profile = DEFAULT_PROFILE
    target: TargetConfig = field(default_factory=TargetConfig)
    log: LogConfig = field(default_factory=LogConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    gpu: GpuConfig = field(default_factory=GpuConfig)
    policy: Policy = field(default_factory=Policy)
    signals: SignalsConfig = field(default_factory=SignalsConfig)
    actions: ActionsConfig = field(default_factory=ActionsConfig)
    run: RunConfig = field(default_factory=RunConfig)
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
    history_size: int | str = "500MB"  # that it may grow to: what is oldest goes
    dry_run: bool = False
    json: bool = False
    verbose: bool = False

    @property
    def diagnosis_policy(self) -> DiagnosisPolicy:
        """How the trainer is examined, for the engine."""
        set_, memory = self.diagnosis, parse_size(str(self.diagnosis.memory))
        threshold = set_.leak_threshold_mb * 1e6
        return DiagnosisPolicy(
            set_.enabled, set_.every_generations, set_.cpu_share, memory, threshold, tuple(self.track)
        )

    @property
    def enabled_extras(self) -> tuple[str, ...]:
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

    @property
    def history_bytes(self) -> int:
        """What the history may grow to."""
        return parse_size(str(self.history_size))

    def history_path(self, environ: Mapping[str, str]) -> Path | None:
        """Where the history is kept; None: nowhere."""
        if self.history == NONE:
            return None
        return Path(self.history) if self.history else default_history(environ)


FLAGS: Mapping[str, str] = {  # argparse's name -> the key that it overrides
    "profile": "profile",
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
RANGES: Mapping[str, tuple[float, float]] = {  # of numbers: from, to
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
    "actions.hook_seconds": (0.1, 600),
    "run.rank": (0, 1_000_000),
    "diagnosis.every_generations": (1, 1_000_000),
    "diagnosis.cpu_share": (0, 1),
    "diagnosis.leak_threshold_mb": (0, 1e9),
    "daemon.linger_seconds": (0, 3600),
    "daemon.wait_seconds": (0.1, 3600),
}
SIZE_KEYS = ("memory.limit", "diagnosis.memory", "history_size")  # as 175GB
PATH_KEYS = (  # `~` at their start is the user's home folder
    *(
        "target.pidfile",
        "log.path",
        "log.extra",
        "actions.hook",
        "checkpoint.globs",
        "wandb.dir",
        "tensorboard.dir",
        "notify.file",
    ),
    *("web_config", "history"),
)


def iter_values(record: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each key below a record, as `policy.kill`, with its value."""
    for item in fields(record):  # type: ignore[arg-type]
        value = getattr(record, item.name)
        if is_dataclass(value):
            yield from iter_values(value, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, value


def key_types(type_: type = Config, prefix: str = "") -> dict[str, Any]:
    """The type of each key, as `keys` names them."""
    found: dict[str, Any] = {}
    for name, inner in get_type_hints(type_).items():
        is_section = isinstance(inner, type) and is_dataclass(inner)
        found |= key_types(inner, f"{prefix}{name}.") if is_section else {prefix + name: inner}
    return found


def parse_listen(text: str) -> tuple[str, int] | None:
    """`127.0.0.1:9877`, `[::1]:9877`, `localhost:0` -> (address, port); `none` -> None; else ValueError."""
    if text == NONE:
        return None
    found = re.fullmatch(ADDRESS + ":([0-9]{1,5})", text)
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
