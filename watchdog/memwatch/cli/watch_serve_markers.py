"""`memwatch --pid`, `memwatch serve` and `memwatch markers`, and what several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from memwatch.app.composition import TrainerWatch, check_extras, configured_presets, find_target
from memwatch.app.engine_settings import EngineSettings
from memwatch.app.watch_session import StopOnSignal, WatchSession, open_session
from memwatch.config.load import load_config
from memwatch.config.settings import Config
from memwatch.core.events import Cause
from memwatch.core.snapshot import Snapshot
from memwatch.core.text_and_units import printable
from memwatch.errors import ConfigError, ExitCode, SourceError
from memwatch.outputs.status_json import snapshot_to_dict
from memwatch.outputs.terminal.command_progress import ProgressBar
from memwatch.system import json_and_yaml
from memwatch.system.clock import SystemClock

EXIT_CODE_BY_CAUSE: Mapping[Cause, ExitCode] = {
    Cause.COMPLETED: ExitCode.ENDED,
    Cause.UNKNOWN: ExitCode.ENDED,
    Cause.SAVED: ExitCode.SAVED,
    Cause.UNSAVED: ExitCode.UNSAVED,
    Cause.OOM_CGROUP: ExitCode.OOM_KILLED,
    Cause.OOM_HOST: ExitCode.OOM_KILLED,
    Cause.OOM_SCHEDULER: ExitCode.OOM_KILLED,
}  # every other cause: ExitCode.FAILED


def watch(flags: Mapping[str, Any]) -> int:
    """`memwatch --pid ...`: watch a running trainer to its end; with --once, print one screen."""
    config = config_from_flags(flags)
    if not config.target.is_named:
        from memwatch.cli.pick_trainer import pick_trainer

        return pick_trainer()
    if "once" in flags:
        return _print_one_screen(config)
    check_extras(config)
    facts = find_target(config)
    lifecycle = StopOnSignal(config.daemon.linger_seconds, config.daemon.end_page_seconds)
    with open_session(config) as session, TrainerWatch(session, lifecycle, facts) as trainer_watch:
        exited = trainer_watch.run()
    return ExitCode.STOPPED if exited is None else EXIT_CODE_BY_CAUSE.get(exited.cause, ExitCode.FAILED)


def _print_one_screen(config: Config) -> int:
    """Watch for one sample; nothing is stored, served, examined or sent."""
    quiet = replace(config, listen="none", dry_run=True, diagnosis=replace(config.diagnosis, enabled=False))
    engine = EngineSettings.from_config(quiet).make_engine()
    session = WatchSession(quiet, SystemClock(), engine, sys.stdout, frontend=None)
    with TrainerWatch(session, StopOnSignal(0.0), find_target(quiet)) as trainer_watch:
        trainer_watch.run()
        print_snapshot(engine.snapshot(), sys.stdout, config.json)
    return ExitCode.ENDED


def serve(flags: Mapping[str, Any]) -> int:
    """`memwatch serve --config FILE`: watch the trainers of this node, until a signal stops it."""
    from memwatch.config.reload import ReloadableConfig
    from memwatch.outputs.systemd_notify import SystemdNotifier

    if config_from_flags(flags).node.trainers:
        from memwatch.app.node.node_service import NodeService as Service
        from memwatch.app.node.node_service import check_node_config as check_config
    else:
        from memwatch.app.serve_one_at_a_time import Service, check_config  # type: ignore[assignment]

    live = ReloadableConfig(lambda: check_config(config_from_flags(flags)), config_file(flags))
    with closing(Service(live, SystemdNotifier(os.environ))) as service:
        return service.serve()


def markers(flags: Mapping[str, Any]) -> int:
    """`memwatch markers LOG`: show the markers that are found in a log."""
    from memwatch.sources.log.log_choice import is_coarse_log, require_one_log
    from memwatch.sources.log.whole_log_scan import format_scan, scan_json, scan_log

    config = config_from_flags(flags)
    try:
        require_one_log((flags["file"],))
        if is_coarse_log(flags["file"]):
            hint = "memwatch doctor --pid PID --log FILE shows its latest step"
            raise ConfigError(f"{printable(flags['file'])} is no text", hint)
        with ProgressBar("reading the log"):
            found = scan_log(Path(flags["file"]), configured_presets(config))
    except SourceError as error:
        raise ConfigError(str(error).removesuffix(" (yet)"), "name a log file that can be read") from error
    print(json_and_yaml.to_shown_json(scan_json(found)) if config.json else format_scan(found))
    return ExitCode.ENDED


# --- what other commands share --------------------------------------------------------------------------------------


def config_from_flags(flags: Mapping[str, object]) -> Config:
    """Load the configuration file, if one is named, overridden by the environment and the flags."""
    return load_config(config_file(flags), flags=flags, environ=os.environ)


def config_file(flags: Mapping[str, object]) -> Path | None:
    """Return the file that --config names, else $MEMWATCH_CONFIG."""
    name = flags.get("config", os.environ.get("MEMWATCH_CONFIG") or None)
    return None if name is None else Path(str(name))


def print_snapshot(snapshot: Snapshot, stream: TextIO, as_json: bool) -> None:
    """Print one screen, or the whole snapshot as JSON."""
    if as_json:
        print(json_and_yaml.to_shown_json(snapshot_to_dict(snapshot)), file=stream)
        return
    from memwatch.outputs.terminal.live_view_terminal import print_screen

    print_screen(stream, snapshot)
