"""Checks whether the configured trackers and notifications can work, tries them out, and makes their proxies."""

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

PACKAGES = {
    "wandb": "wandb",
    "mlflow": "mlflow",
    "tensorboard": "tensorboard",
    "notify": "apprise",
}  # the package of each extra
PROBE_TIMEOUT_SECONDS = 60.0
TEST_MESSAGE = "This is a test: memwatch doctor --test-notify."
READABLE_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH


def check(config: Config) -> None:
    """Raise ConfigError when a configured extra is not installed or its file cannot be read."""
    for name in config.enabled_extras:
        check_extra(config, name)


def check_extra(config: Config, name: str) -> None:
    """As `check`, for one extra."""
    found, file = find_spec(PACKAGES[name]), config.notify.file
    if found is None or found.origin is None:  # a folder without code, such as the one that wandb writes, has no origin
        hint = f"pip install 'memwatch[{name}]', into the same environment as memwatch"
        raise ConfigError(f"{name} is configured, and {PACKAGES[name]} is not installed", hint)
    if name == "notify" and file is not None and not os.access(file, os.R_OK):
        raise ConfigError(f"notify.file {file} cannot be read", "name a file with an address in each line")


def config_warnings(config: Config) -> Iterator[str]:
    file = config.notify.file
    with suppress(OSError):  # the file is gone: the proxy's process will report that
        if file is not None and Path(file).stat().st_mode & READABLE_BY_OTHERS:
            yield f"notify.file {file} may be read by other users, and holds passwords: chmod 600 {file}"


def probe_extra(config: Config, name: str, send: bool = False) -> str:
    """Return what the extra would do; MemwatchError when it cannot work. With `send`, notify sends a test message."""
    check_extra(config, name)
    if name == "wandb":
        return f"installed; a run in project {config.wandb.project} begins with the watch"
    if name == "mlflow":
        return f"installed; a run in experiment {config.mlflow.experiment} begins with the watch"
    if name == "tensorboard":
        return f"installed; writes to a folder for each run, in {config.tensorboard.dir}"
    proxy = _make_notifier(config)
    if send:
        proxy.enqueue({"title": f"memwatch on {os.uname().nodename}: a test", "body": TEST_MESSAGE, "kind": "info"})
    wait_until_idle(proxy, PROBE_TIMEOUT_SECONDS)
    failure = proxy.failure or ("" if proxy.idle else f"no answer within {PROBE_TIMEOUT_SECONDS:g} s")
    proxy.kill()
    if failure:
        raise SourceError(failure)
    return "a message was sent" if send else "its addresses are understood; --test-notify sends a message"


def make_proxies(config: Config, run_id: str, command: str) -> list[TrackerProxy]:
    """Return a proxy for each enabled extra; its process is started later."""
    run = run_id or uuid.uuid4().hex[:12]
    proxies = []
    for name in config.enabled_extras:
        if name == "notify":
            proxies.append(_make_notifier(config, command))
        else:
            spec = TrackerWorkerSpec(name, run, command, asdict(getattr(config, name)))
            proxies.append(TrackerProxy(spec, TrackerRecords(config.track)))
    return proxies


def _make_notifier(config: Config, command: str = "") -> TrackerProxy:
    """Return a proxy that hands on one message at a time: a delivered message is never sent again."""
    settings = {"urls": config.notify.urls, "file": config.notify.file}
    messages = NotificationMessages(config.notify.events, os.uname().nodename)
    return TrackerProxy(TrackerWorkerSpec("notify", "", command, settings), messages, together=1)
