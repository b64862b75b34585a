"""What each command does, from flags to exit code."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from memwatch import wire
from memwatch.app import Watch, find_target, presets, run_log
from memwatch.config import Config, load
from memwatch.core.model import Cause, Exited
from memwatch.errors import AttachError, ConfigError, ExitCode, SourceError
from memwatch.sources.target import describe, identify
from memwatch.supervisor import Child, Passthrough, shell_status

EXIT_CODES: Mapping[Cause, ExitCode] = {
    Cause.COMPLETED: ExitCode.ENDED,
    Cause.UNKNOWN: ExitCode.ENDED,
    Cause.SAVED: ExitCode.SAVED,
    Cause.UNSAVED: ExitCode.UNSAVED,
    Cause.OOM_CGROUP: ExitCode.OOM_KILLED,
    Cause.OOM_HOST: ExitCode.OOM_KILLED,
}  # every other cause: ExitCode.FAILED


def watch(flags: Mapping[str, object]) -> int:
    """`memwatch --pid ...`: watch a running trainer to its end."""
    config = configure(flags)
    exited = Watch(config, find_target(config)).run()
    return ExitCode.STOPPED if exited is None else EXIT_CODES.get(exited.cause, ExitCode.FAILED)


def run(command: Sequence[str], flags: Mapping[str, object]) -> int:
    """`memwatch run -- ...`: start a trainer and watch it; its own exit status."""
    config = configure(flags)
    presets(config)  # a broken one is told before anything is started
    child = Child(command, run_log(os.environ))
    supervise(config, child, output=2 if config.json else 1)
    return shell_status(child.status())


def supervise(config: Config, child: Child, output: int | None) -> Exited | None:
    """Watch a child to its end: its output goes to the descriptor `output`, signals to memwatch go to it.

    None when it ended before it could be watched: its status says the rest.
    """
    passthrough = Passthrough(child.log, output) if output is not None else None
    try:
        return Watch(config, describe(identify(child.pid)), child, whole_terminal=False).run()
    except (AttachError, SourceError):
        return None
    finally:
        child.status()
        if passthrough is not None:
            passthrough.close()


def markers(log: Path, flags: Mapping[str, object]) -> int:
    """`memwatch markers LOG`: which markers are found in a log."""
    from memwatch.sources.logsource import render, scan, scan_json

    config = load(config_file(flags))
    try:
        found = scan(log, presets(config))
    except SourceError as error:
        raise ConfigError(str(error), error.hint or "name a log file that can be read") from error
    print(wire.to_json(scan_json(found)).decode() if flags.get("json") else render(found))
    return ExitCode.ENDED


def replay(trace: Path, flags: Mapping[str, object]) -> int:
    """`memwatch replay TRACE.csv`: the same engine over a recorded trace."""
    from memwatch.backtest import replay as backtest
    from memwatch.core.sentence import render, to_json_line

    given = {"checkpoint_time": flags.get("checkpoint_time") or os.environ.get("MEMWATCH_CHECKPOINT_S")}
    config = load(config_file(flags), flags=given)
    for notice in backtest.replay(trace, config.policy):
        print(to_json_line(notice) if flags.get("json") else render(notice))
    return ExitCode.ENDED


def demo(flags: Mapping[str, object]) -> int:
    """`memwatch demo`: a leaking example trainer under a real limit, interrupted, saved, and resumed with the fix."""
    from memwatch.demo import demonstrate

    return demonstrate(configure(flags))


def doctor(flags: Mapping[str, object]) -> int:
    """`memwatch doctor`: what will and will not work here, and why."""
    from memwatch.doctor import examine

    return examine(configure(flags))


def configure(flags: Mapping[str, object]) -> Config:
    """The configuration file, if one is named, overridden by the flags."""
    return load(config_file(flags), flags=flags)


def config_file(flags: Mapping[str, object]) -> Path | None:
    """The file that --config names."""
    return Path(str(flags["config"])) if "config" in flags else None
