"""Trackers and notices as a configuration wants them: what they need is looked for, their relays are made."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from memwatch.config.settings import Config
from memwatch.errors import ConfigError, SourceError
from memwatch.outputs.trackers.notification_messages import NotificationMessages
from memwatch.outputs.trackers.tracker_proxy import TrackerProxy, TrackerWorkerSpec, wait_until_idle
from memwatch.outputs.trackers.tracker_records import TrackerRecords

PACKAGES = {"wandb": "wandb", "tensorboard": "tensorboard", "notify": "apprise"}  # what each extra brings
PROBE_TIMEOUT_SECONDS = 60.0  # of one who tries it out
TEST = "This is a test: memwatch doctor --test-notify."
READABLE_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH


def check(config: Config) -> None:
    """ConfigError for what is wanted and cannot work: an extra that is not installed, a file that cannot be read."""
    for name in config.enabled_extras:
        check_extra(config, name)


def check_extra(config: Config, name: str) -> None:
    """As `check`, of one of them."""
    found, file = find_spec(PACKAGES[name]), config.notify.file
    if found is None or found.origin is None:  # a mere folder, as the one that wandb writes, has no origin
        fix = f"pip install 'memwatch[{name}]', into the same environment as memwatch"
        raise ConfigError(f"{name} is configured, and {PACKAGES[name]} is not installed", fix)
    if name == "notify" and file is not None and not os.access(file, os.R_OK):
        raise ConfigError(f"notify.file {file} cannot be read", "name a file with an address in each line")


def config_warnings(config: Config) -> Iterator[str]:
    """What the user should know of them."""
    file = config.notify.file
    with suppress(OSError):  # it cannot be read by now: its process will say so
        if file is not None and Path(file).stat().st_mode & READABLE_BY_OTHERS:
            yield f"notify.file {file} may be read by other users, and holds passwords: chmod 600 {file}"


def probe_extra(config: Config, name: str, send: bool = False) -> str:
    """What one of them would do; MemwatchError when it cannot. `send`: notify sends a message."""
    check_extra(config, name)
    if name == "wandb":
        return f"installed; a run in project {config.wandb.project} begins with the watch"
    if name == "tensorboard":
        return f"installed; writes to a folder for each run, in {config.tensorboard.dir}"
    relay = notifier(config)
    if send:
        relay.enqueue({"title": f"memwatch on {os.uname().nodename}: a test", "body": TEST, "kind": "info"})
    wait_until_idle(relay, PROBE_TIMEOUT_SECONDS)
    failure = relay.failure or ("" if relay.idle else f"no answer within {PROBE_TIMEOUT_SECONDS:g} s")
    relay.kill()
    if failure:
        raise SourceError(failure)
    return "a message was sent" if send else "its addresses are understood; --test-notify sends a message"


def make_proxies(config: Config, run_id: str, command: str) -> list[TrackerProxy]:
    """A sink for each; none has started anything yet."""
    run = run_id or uuid.uuid4().hex[:12]
    made = []
    for name in config.enabled_extras:
        if name == "notify":
            made.append(notifier(config, command))
        else:
            order = TrackerWorkerSpec(name, run, command, asdict(getattr(config, name)))
            made.append(TrackerProxy(order, TrackerRecords(config.track)))
    return made


def notifier(config: Config, command: str = "") -> TrackerProxy:
    """What sends messages, one at a time: none that has reached somebody is sent again."""
    settings = {"urls": config.notify.urls, "file": config.notify.file}
    messages = NotificationMessages(config.notify.events, os.uname().nodename)
    return TrackerProxy(TrackerWorkerSpec("notify", "", command, settings), messages, together=1)
