"""Figures as a run of Weights & Biases, in a process of its own. No other module imports wandb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import wandb

STEPS = {"generation": "memory/*", "minute": "memory_by_minute/*"}  # metrics drawn over each axis


class WandbRun:
    """A wandb run. Online it is resumed after a restart; offline each part has a folder, and all have the same id."""

    problem = ""

    def __init__(self, run: str, command: str, **options: Any) -> None:
        """`options` are those of wandb.init that the configuration has: project, entity, name, mode, dir."""
        self._run = wandb.init(
            **options,
            id=f"memwatch-{run}",
            resume="allow",
            job_type="memwatch",
            config={"command": command, "run": run},
            settings=wandb.Settings(
                silent=True, console="off", x_disable_stats=True, disable_git=True, disable_code=True
            ),
        )
        for step, tags in STEPS.items():
            self._run.define_metric(step)
            self._run.define_metric(tags, step_metric=step)

    def write_records(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Writes a row for each; wandb counts its steps itself, so a generation may be written again."""
        for one in records:
            self._run.log({one["axis"]: one["at"], **one["figures"]})

    def close(self) -> None:
        """Waits for the upload."""
        self._run.finish()
