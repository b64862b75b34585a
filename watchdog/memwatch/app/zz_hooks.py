"""What a configuration wants to be run on an interrupt, and which part of which run it is told of."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from memwatch.config.settings import Config
from memwatch.core.measurements import RunIdentity
from memwatch.errors import ConfigError
from memwatch.sources.target.launcher_environment import identify_run
from memwatch.sources.target.process_identity import is_torchrun

if TYPE_CHECKING:
    from memwatch.actions.interrupt_hook import Hook


def identify_part(config: Config, environ: Mapping[str, str], argv: Sequence[str], run_id: str) -> RunIdentity:
    """Which part of which run a trainer is: by the configuration, its launcher, or the history (`run_id`)."""
    given, agent = config.run, is_torchrun(argv)
    found = identify_run(environ, argv, agent=agent, host=os.uname().nodename, run_id=run_id)
    rank = found.rank if given.rank is None else given.rank
    return replace(found, run_id=given.id or found.run_id, node=given.node or found.node, rank=rank)


def make_hook(
    config: Config, environ: Mapping[str, str], run: RunIdentity | None, now: Callable[[], float]
) -> Hook | None:
    """What is run on an interrupt; ConfigError when it wants what is not known of the trainer with this `environ`."""
    actions = config.actions
    if actions.hook is None:
        return None
    from memwatch.actions.interrupt_hook import Hook, hook_environ

    own = hook_environ(actions.environment, os.environ)
    hook = Hook(actions.hook, own, environ, seconds=actions.hook_seconds, now=now)
    known = {"run_id": run is not None and run.run_id != "", "rank": run is not None and run.rank is not None}
    for name, key in (("run_id", "run.id"), ("rank", "run.rank")):
        if name in hook.facts and not known[name]:
            hint = f"set {key}, or take it out of actions.hook"
            raise ConfigError(f"the hook wants {{{name}}}, and nothing says what that is", hint)
    return hook


def check_hook(config: Config, environ: Mapping[str, str], argv: Sequence[str]) -> None:
    """ConfigError when the hook wants what will not be known of a trainer that is started so."""
    make_hook(config, environ, identify_part(config, environ, argv, "of the history"), time.monotonic)
