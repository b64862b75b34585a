"""`memwatch demo`: the main job from beginning to end, on the example trainer, under a real limit."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from memwatch import packaged
from memwatch.app import Watch
from memwatch.config import Config
from memwatch.confine import Confinement, confine
from memwatch.core.model import Cause, Exited
from memwatch.core.units import format_bytes
from memwatch.errors import ConfigError, ExitCode
from memwatch.sources.target import describe, identify
from memwatch.supervisor import Child

LIMIT_BYTES = 512_000_000
LEAKING = ("--leak", "buffer", "--seconds", "2.5")
MENDED = ("--leak", "none", "--seconds", "1.5", "--resume")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def demonstrate(config: Config) -> int:
    """Watch the leaking trainer to its interrupt, then the mended one, resumed, to its end."""
    if importlib.util.find_spec("numpy") is None:
        raise ConfigError("the example trainer needs numpy", "pip install 'memwatch[demo]'")
    folder = Path(tempfile.mkdtemp(prefix="memwatch-demo-"))
    shutil.copy(packaged.example_trainer(), folder / "evolve.py")
    memory = replace(config.memory, interval_seconds=min(0.25, config.memory.interval_seconds))
    config = replace(config, memory=memory, history=config.history or str(folder / "history.db"))
    confinement = confine(LIMIT_BYTES)
    try:
        return _demonstrate(config, folder, confinement)
    finally:
        confinement.close()


def _demonstrate(config: Config, folder: Path, confinement: Confinement) -> int:
    limit = format_bytes(LIMIT_BYTES)
    _say(
        config,
        f"An evolutionary trainer whose replay buffer can never fit, under a real limit ({confinement.description}).",
        f"Alone it dies at generation 15 of 25. Its source, log and checkpoints: {folder}",
    )
    exited = _watch(config, folder, "leaking", LEAKING, confinement)
    if exited is None or exited.cause is not Cause.SAVED:
        _say(config, "The leaking trainer was not interrupted and saved: see the evidence above.")
        return ExitCode.FAILED
    _say(config, "", f"Saved before {limit} were full. The buffer is mended, the trainer resumes under the same limit.")
    exited = _watch(config, folder, "resumed", MENDED, confinement)
    done = exited is not None and exited.cause is Cause.COMPLETED
    _say(config, "", "It ran to its last generation." if done else "The resumed trainer did not end well: see above.")
    return ExitCode.ENDED if done else ExitCode.FAILED


def _watch(config: Config, folder: Path, name: str, options: Sequence[str], confinement: Confinement) -> Exited | None:
    command = (sys.executable, "evolve.py", *options)
    child = Child((*confinement.prefix, *command), folder / f"{name}.log", ONE_THREAD, confinement.before_exec, folder)
    try:
        return Watch(config, describe(identify(child.pid)), child).run()
    finally:
        child.end()


def _say(config: Config, *lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr if config.json else sys.stdout, flush=True)
