"""The keys of the configuration, with their types, defaults and ranges: one frozen Config."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from memwatch.core.decision.policy import Policy
from memwatch.core.leaks.examination_schedule import DiagnosisPolicy
from memwatch.core.text_and_units import parse_size
from memwatch.core.trainer_rules import TrainerRule

NONE = "none"  # switches `listen` or `history` off
ADDRESS = r"(?:\[([0-9A-Fa-f:.]+(?:%\w+)?)\]|([^\s:\[\]/]+))"  # an IPv6 address in brackets, or another without :
DEFAULT_LISTEN = "127.0.0.1:9877"
MIN_INTERVAL_SECONDS = 0.05  # between samples: 20 a second, the most that the soak test covers
Profile = Literal["default", "observe", "aggressive"]  # the names of the files in configs/profiles
PROFILES: tuple[str, ...] = get_args(Profile)
DEFAULT_PROFILE: Profile = "default"  # has no file: it sets nothing
NodeLabel = Literal["namespace", "pod", "container", "job", "unit"]


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """Which process to watch: one of these, usually as a flag; `match` also beside the last two."""

    pid: int | None = None
    pidfile: str | None = None
    match: str | None = None  # a regular expression for the command line
    unit: str | None = None  # a systemd unit
    cgroup: str | None = None  # a path as in /proc/PID/cgroup; * and ? stand for anything

    @property
    def is_named(self) -> bool:
        return any(value is not None for _, value in iter_values(self))


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The trainer's log."""

    path: str | tuple[str, ...] | None = None  # files, patterns or -; None: its stdout, or what is found
    markers: str | None = None  # the name of a preset; None: memwatch selects it
    presets: tuple[str | dict[str, Any], ...] = ()  # the user's presets: files, folders, or the presets themselves

    @property
    def paths(self) -> tuple[str, ...]:
        """What `path` names; empty for None."""
        return (self.path,) if isinstance(self.path, str) else self.path or ()


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """How host memory is measured."""

    limit: str | int | None = None  # as 175GB
    force_limit: bool = False  # also where more is in use as the watch begins
    interval_seconds: float = 1.0
    sample_shared_pages: bool = True

    @property
    def limit_bytes(self) -> int | None:
        return None if self.limit is None else parse_size(str(self.limit))


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """Whether GPUs are measured: "auto" if there is a driver; True reports its absence as a failure."""

    enabled: bool | Literal["auto"] = "auto"


@dataclass(frozen=True, slots=True)
class SignalsConfig:
    """How the trainer is interrupted."""

    wanted: tuple[str, ...] = ("SIGINT", "SIGTERM")  # memwatch sends the first that the trainer handles
    torchrun: Literal["agent", "ranks"] = "agent"


@dataclass(frozen=True, slots=True)
class ActionsConfig:
    """What memwatch does on an interrupt besides the signal, or in its place."""

    hook: tuple[str, ...] | None = None  # a command as a list of words
    hook_seconds: float = 30.0  # the longest time that the hook may take
    hook_replaces_signal: bool = False  # the trainer is signalled only if the hook fails
    environment: tuple[str, ...] = ()  # the names of memwatch's own variables that the hook gets


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Run, node and rank of the trainer; None: from its environment."""

    id: str | None = None
    node: str | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """The files of checkpoints."""

    globs: tuple[str, ...] = ()  # as /runs/a/ckpt_*.pt


@dataclass(frozen=True, slots=True)
class DiagnosisConfig:
    """How memwatch looks for the causes of growth."""

    enabled: bool = True
    every_generations: int | None = None  # None: each of the first ten, then less and less often
    cpu_share: float = 0.05  # the share of a core that examinations may use in any minute
    memory: str | int = "256MiB"  # the most memory that an examination may use
    progress: bool = True  # read how far the program is from its memory, where its log does not tell it
    leak_threshold_mb: float = 5.0  # MB per generation, or per minute: slower growth is not reported as a leak


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """memwatch's own process."""

    lock_memory: bool = True  # if permitted
    realtime: bool = False  # True: run before all ordinary programs
    linger_seconds: float = 0.0  # how long to answer HTTP after the trainer's end
    end_page_seconds: float = 3600.0  # `memwatch --pid`: how long a process of its own answers after that
    wait_seconds: float = 2.0  # `memwatch serve`: time between two searches for a trainer


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """`memwatch serve`: every trainer of a node."""

    trainers: tuple[TrainerRule, ...] = ()  # the first rule that fits a process decides; none: one trainer, by `target`
    labels: tuple[NodeLabel, ...] = ("namespace", "pod", "container", "job")  # of each trainer's metrics, besides pid
    most_trainers: int = 256  # watched at the same time
    cpu_share: float = 0.04  # of a core: the watches keep within it together, until one comes near its limit


@dataclass(frozen=True, slots=True)
class WandbConfig:
    """Reports to a run of Weights & Biases."""

    project: str | None = None  # None: nothing is reported
    entity: str | None = None
    name: str | None = None
    mode: Literal["online", "offline"] | None = None  # None: the value of WANDB_MODE
    dir: str | None = None  # None: the value of WANDB_DIR


@dataclass(frozen=True, slots=True)
class MlflowConfig:
    """Reports to a run of MLflow."""

    experiment: str | None = None  # None: nothing is reported
    tracking_uri: str | None = None  # None: the value of MLFLOW_TRACKING_URI


@dataclass(frozen=True, slots=True)
class TensorboardConfig:
    """Reports to a TensorBoard event file."""

    dir: str | None = None  # None: nothing is written


@dataclass(frozen=True, slots=True)
class NotifyConfig:
    """Messages to people. The addresses contain passwords."""

    urls: tuple[str, ...] = ()
    file: str | None = None  # a file with one address per line
    events: tuple[str, ...] = ("warn", "interrupt", "saved", "escalated", "failed", "exited", "gave_up")


@dataclass(frozen=True, slots=True)
class Config:
    """All keys that a user may set."""

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
    track: tuple[str, ...] = ()  # attributes whose size is reported, as Trainer.replay_buffer
    expectations: tuple[str, ...] = ()  # conditions that the run must meet, as growth < 5GB/generation
    wandb: WandbConfig = field(default_factory=WandbConfig)
    mlflow: MlflowConfig = field(default_factory=MlflowConfig)
    tensorboard: TensorboardConfig = field(default_factory=TensorboardConfig)
    notify: NotifyConfig = field(default_factory=NotifyConfig)
    daemon: DaemonConfig = field(default_factory=DaemonConfig)
    node: NodeConfig = field(default_factory=NodeConfig)
    listen: str | None = None  # None: DEFAULT_LISTEN, if it is free
    web_config: str | None = None  # a file with TLS, client certificates and passwords; None: anybody may read
    history: str | None = None  # None: in the state folder
    history_size: int | str = "500MB"  # its largest size: the oldest runs are deleted first
    dry_run: bool = False
    json: bool = False
    verbose: bool = False

    @property
    def diagnosis_policy(self) -> DiagnosisPolicy:
        """What the engine needs to know of `diagnosis` and `track`."""
        keys, memory_bytes = self.diagnosis, parse_size(str(self.diagnosis.memory))
        threshold_bytes = keys.leak_threshold_mb * 1e6
        return DiagnosisPolicy(
            keys.enabled, keys.every_generations, keys.cpu_share, memory_bytes, threshold_bytes, self.track
        )

    @property
    def enabled_extras(self) -> tuple[str, ...]:
        """The extras of the optional outputs that are configured."""
        found = {
            "wandb": self.wandb.project,
            "mlflow": self.mlflow.experiment,
            "tensorboard": self.tensorboard.dir,
            "notify": self.notify.urls or self.notify.file,
        }
        return tuple(name for name, key in found.items() if key)

    @property
    def listen_address(self) -> tuple[str, int] | None:
        """(address without brackets, port); None: nothing is served."""
        return parse_listen(self.listen or DEFAULT_LISTEN)

    @property
    def history_bytes(self) -> int:
        return parse_size(str(self.history_size))

    def history_path(self, environ: Mapping[str, str]) -> Path | None:
        """The file of the history; None: nothing is stored."""
        if self.history == NONE:
            return None
        return Path(self.history) if self.history else default_history(environ)


FLAGS: Mapping[str, str] = {  # argparse's name of a flag -> the key that it sets
    "profile": "profile",
    "pid": "target.pid",
    "pidfile": "target.pidfile",
    "match": "target.match",
    "unit": "target.unit",
    "cgroup": "target.cgroup",
    "log": "log.path",
    "limit": "memory.limit",
    "force_limit": "memory.force_limit",
    "interval": "memory.interval_seconds",
    "checkpoint_time": "policy.checkpoint_seconds",
    "listen": "listen",
    "web_config": "web_config",
    "history": "history",
    "dry_run": "dry_run",
    "json": "json",
    "verbose": "verbose",
}
RANGES: Mapping[str, tuple[float, float]] = {  # the least and the greatest value of each number
    "target.pid": (1, 2**22),
    "memory.interval_seconds": (MIN_INTERVAL_SECONDS, 3600),
    "policy.checkpoint_seconds": (0.1, 86_400),
    "policy.warn_horizon_seconds": (0, 31_536_000),
    "policy.warn_horizon_generations": (0, 1_000_000),
    "policy.confidence": (0.5, 0.9999),
    "policy.headroom_guard": (0, 0.5),
    "policy.own_limit_grace_seconds": (0, 3600),
    "policy.confirmation_seconds": (0, 3600),
    "policy.cooldown_seconds": (0, 604_800),
    "policy.save_timeout_seconds": (1, 86_400),
    "policy.kill_after_seconds": (1, 86_400),
    "actions.hook_seconds": (0.1, 600),
    "run.rank": (0, 1_000_000),
    "diagnosis.every_generations": (1, 1_000_000),
    "diagnosis.cpu_share": (0, 1),
    "diagnosis.leak_threshold_mb": (0, 1e9),
    "daemon.linger_seconds": (0, 3600),
    "daemon.end_page_seconds": (0, 7 * 86400),
    "daemon.wait_seconds": (0.1, 3600),
    "node.most_trainers": (1, 10_000),
    "node.cpu_share": (0.001, 1),
}
SIZE_KEYS = ("memory.limit", "diagnosis.memory", "history_size")  # values as 175GB
PLAIN_BYTES = "[1-9][0-9]{6,}"  # without a unit: bytes, from 1 MB on, as Kubernetes writes a limit; below it, a mistake
PATH_KEYS = (  # `~` at the start of a value is the user's home folder
    *("target.pidfile", "log.path", "log.presets", "actions.hook", "checkpoint.globs"),
    *("wandb.dir", "tensorboard.dir", "notify.file", "web_config", "history"),
)


def iter_values(record: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path of each key in a record, as `policy.kill`, with its value."""
    for item in fields(record):  # type: ignore[arg-type]
        value = getattr(record, item.name)
        if is_dataclass(value):
            yield from iter_values(value, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, value


def key_types(type_: type = Config, prefix: str = "") -> dict[str, Any]:
    """The type of each key, by its path."""
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
        raise ValueError("write a port from 0 (any free one) to 65535")
    return found[1] or found[2], int(found[3])


def default_history(environ: Mapping[str, str]) -> Path:
    """`memwatch/history.db` in the XDG state folder. A relative XDG_STATE_HOME is ignored, as the XDG standard asks."""
    state = environ.get("XDG_STATE_HOME", "")
    home = environ.get("HOME") or "~"
    folder = Path(state) if state.startswith("/") else Path(home).expanduser() / ".local/state"
    return folder / "memwatch" / "history.db"
