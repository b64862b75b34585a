"""The commands on a running trainer, a log or a trace: each goes from flags to an exit code."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from memwatch.app.composition import TrainerWatch, check_extras, configured_presets, find_target
from memwatch.app.engine_settings import EngineSettings
from memwatch.app.watch_session import StopOnSignal, WatchSession, open_session
from memwatch.config.load import load_config
from memwatch.config.settings import Config
from memwatch.core.engine.status_sentence import to_json_line, to_text_line
from memwatch.core.events import Cause, Notice
from memwatch.core.snapshot import Snapshot
from memwatch.core.text_and_units import format_bytes, format_duration
from memwatch.errors import AttachError, ConfigError, ExitCode, SourceError
from memwatch.outputs.status_json import snapshot_to_dict
from memwatch.outputs.terminal.command_progress import ProgressBar
from memwatch.system import json_and_yaml
from memwatch.system.clock import SystemClock

if TYPE_CHECKING:
    from memwatch.diagnosis.heap.object_census import CensusOptions

EXIT_CODE_BY_CAUSE: Mapping[Cause, ExitCode] = {
    Cause.COMPLETED: ExitCode.ENDED,
    Cause.UNKNOWN: ExitCode.ENDED,
    Cause.SAVED: ExitCode.SAVED,
    Cause.UNSAVED: ExitCode.UNSAVED,
    Cause.OOM_CGROUP: ExitCode.OOM_KILLED,
    Cause.OOM_HOST: ExitCode.OOM_KILLED,
}  # every other cause: ExitCode.FAILED


def watch(flags: Mapping[str, object], once: bool) -> int:
    """`memwatch --pid ...`: watch a running trainer to its end; with -1, print one screen."""
    config = config_from_flags(flags)
    if once:
        return _watch_briefly(config)
    check_extras(config)
    facts = find_target(config)
    lifecycle = StopOnSignal(config.daemon.linger_seconds)
    with open_session(config) as session, TrainerWatch(session, lifecycle, facts) as trainer_watch:
        exited = trainer_watch.run()
    return ExitCode.STOPPED if exited is None else EXIT_CODE_BY_CAUSE.get(exited.cause, ExitCode.FAILED)


def _watch_briefly(config: Config) -> int:
    """Print one screen; nothing is kept, served, examined or sent."""
    quiet = replace(config, listen="none", dry_run=True, diagnosis=replace(config.diagnosis, enabled=False))
    engine = EngineSettings.from_config(quiet).make_engine()
    session = WatchSession(quiet, SystemClock(), engine, sys.stdout, frontend=None)
    with TrainerWatch(session, StopOnSignal(0.0), find_target(quiet)) as trainer_watch:
        trainer_watch.run()
        print_snapshot(engine.snapshot(), sys.stdout, config.json)
    return ExitCode.ENDED


def print_snapshot(snapshot: Snapshot, stream: TextIO, as_json: bool) -> None:
    """Print one screen, or the whole snapshot as JSON."""
    if as_json:
        print(json_and_yaml.to_shown_json(snapshot_to_dict(snapshot)), file=stream)
        return
    from memwatch.outputs.terminal.live_view_terminal import print_screen

    print_screen(stream, snapshot)


def serve(flags: Mapping[str, object]) -> int:
    """`memwatch serve --config FILE`: watch one trainer after the other, until told to stop."""
    from memwatch.app.serve_trainers import Service, check_config
    from memwatch.config.reload import ReloadableConfig
    from memwatch.outputs.systemd_notify import SystemdNotifier

    live = ReloadableConfig(lambda: check_config(config_from_flags(flags)), config_file(flags))
    with closing(Service(live, SystemdNotifier(os.environ))) as service:
        return service.serve()


# --- files ----------------------------------------------------------------------------------------------------------


def markers(log: Path, flags: Mapping[str, object]) -> int:
    """`memwatch markers LOG`: which markers are found in a log."""
    from memwatch.sources.log.whole_log_scan import format_scan, scan_json, scan_log

    config = config_from_flags(flags)
    try:
        with ProgressBar("reading the log"):
            found = scan_log(log, configured_presets(config))
    except SourceError as error:
        raise ConfigError(str(error).removesuffix(" (yet)"), "name a log file that can be read") from error
    print(json_and_yaml.to_shown_json(scan_json(found)) if config.json else format_scan(found))
    return ExitCode.ENDED


def replay_trace(trace: Path, flags: Mapping[str, object]) -> int:
    """`memwatch replay TRACE.csv`: the same engine over a recorded trace; with `--plot FILE` also drawn."""
    seconds = os.environ.get("MEMWATCH_CHECKPOINT_S")
    config = config_from_flags({"checkpoint_time": seconds, **{key: flags[key] for key in flags if key != "plot"}})
    if "plot" in flags:
        _plot_replay(trace, Path(str(flags["plot"])), config)
    else:
        _print_replay(trace, config)
    return ExitCode.ENDED


def _plot_replay(trace: Path, path: Path, config: Config) -> None:
    """Print a replay, and draw it into a file."""
    from memwatch.history.csv_trace import read_trace
    from memwatch.outputs.charts import run_data
    from memwatch.outputs.html import replay_page
    from memwatch.system import private_files

    if trace.exists() and not trace.is_file():
        raise ConfigError(f"{trace}: cannot be read twice, as --plot must", "save the trace to a file first")
    notices, limit = list[Notice](), config.memory.limit_bytes
    with private_files.atomic_writer(path, "--plot", replay_page.SUFFIXES) as write:
        end, conclusion = _print_replay(trace, config, notices.append)
        options = {} if limit is None else {"--limit": format_bytes(limit)}
        data = run_data.build_run_data(read_trace(trace, limit), notices, end)
        write(replay_page.render_replay(path.suffix, trace.name, data, conclusion, options))
    print(f"plot: {path}", file=sys.stderr if config.json else sys.stdout)


def _print_replay(
    trace: Path, config: Config, keep: Callable[[Notice], None] = lambda notice: None
) -> tuple[Snapshot, str]:
    """Print the notices as they come, and the conclusion; return the state at the end and the conclusion."""
    from memwatch.history.csv_trace import replay_notices
    from memwatch.outputs.terminal.plain_and_json_lines import NoticeFilter

    is_news, interrupt, ends, start = NoticeFilter(), None, list[Snapshot](), None

    def replayed(progress: ProgressBar) -> Iterator[Notice]:
        ends.append((yield from replay_notices(trace, config.policy, config.memory.limit_bytes, progress.update)))

    with ProgressBar("replaying") as progress:
        for notice in replayed(progress):
            keep(notice)
            start = notice.t if start is None else start
            elapsed = notice.t - start
            if config.json:
                print(to_json_line(notice))
            elif config.verbose or is_news(notice):
                print(f"{format_duration(elapsed) if elapsed >= 1 else '0 s':>10}  {to_text_line(notice)}")
            interrupt = interrupt or (notice if notice.event == "interrupt" else None)
    [end] = ends
    if end.started_t is None:
        raise ConfigError(f"{trace}: holds no samples", "a trace has a row for each sample below its header")
    conclusion = _conclusion(end, interrupt)
    if not config.json:
        print(f"\n{conclusion}")
    return end, conclusion


def _conclusion(end: Snapshot, interrupt: Notice | None) -> str:
    start = end.started_t or 0.0
    text = f"End after {format_duration(end.t - start)}: {end.sentence}."
    if interrupt is None:
        return f"{text}\nmemwatch would not have interrupted it."
    gen = interrupt.fields.get("gen")
    where = f", in {end.unit} {gen:g}" if gen is not None else ""
    return f"{text}\nmemwatch would have interrupted it after {format_duration(interrupt.t - start)}{where}."


# --- the rest -------------------------------------------------------------------------------------------------------


def top(url: str, once: bool, flags: Mapping[str, object]) -> int:
    """`memwatch top [URL]`: the live view of a watch that runs elsewhere."""
    from memwatch.cli.top import StatusClient, read_password, run_top

    if not url:
        address = config_from_flags(flags).listen_address
        if address is None:
            raise ConfigError("no address is named", "as in: memwatch top http://127.0.0.1:9877")
        host, port = address
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    ca_file, cert, key, password_file = (
        None if flags.get(name) is None else str(flags[name]) for name in ("ca_file", "cert", "key", "password_file")
    )
    password = read_password(password_file, os.environ.get("MEMWATCH_PASSWORD", ""))
    client = StatusClient(url if "://" in url else f"http://{url}", password, ca_file, cert, key)
    return run_top(client, once, bool(flags.get("json")))


def demo(flags: Mapping[str, object]) -> int:
    """`memwatch demo`: a leaking example trainer under a real limit, interrupted, saved, and resumed with the fix."""
    from memwatch.cli.demo import run_demo

    config = config_from_flags(flags)
    check_extras(config)
    return run_demo(config)


def doctor(flags: dict[str, object]) -> int:
    """`memwatch doctor`: what will and will not work here, and why."""
    from memwatch.cli.doctor import run_doctor

    test_notify = bool(flags.pop("test_notify", False))
    return run_doctor(config_from_flags(flags), test_notify)


def census(flags: dict[str, object]) -> int:
    """`memwatch census --pid PID`: the objects of a running Python by type."""
    from memwatch.diagnosis.heap.object_census import take_census
    from memwatch.outputs.text.examination_text import render_census
    from memwatch.system.process_priority import lower_priority

    options = replace(_census_options(flags), bytes=bool(flags.pop("bytes", False)))
    config = config_from_flags(flags)
    pid = find_target(config).target.pid
    lower_priority()
    try:
        with ProgressBar("counting objects"):
            found = take_census(pid, options)
    except SourceError as error:
        raise AttachError(str(error), error.hint) from error
    print(json_and_yaml.to_shown_json(found) if config.json else render_census(found))
    return ExitCode.ENDED


def profile(flags: dict[str, object]) -> int:
    """`memwatch profile --pid PID`: which lines of code raise its memory."""
    from memwatch.diagnosis.memory_growth_recorder import DEFAULT_RECORD_SECONDS, record_profile
    from memwatch.outputs.text.profile_formats import folded, render_profile, speedscope
    from memwatch.system.process_priority import lower_priority

    seconds, output = _seconds(flags.pop("seconds", DEFAULT_RECORD_SECONDS)), flags.pop("output", None)
    config = config_from_flags(flags)
    facts = find_target(config)
    lower_priority()
    with _new_file(output) as file:
        try:
            with ProgressBar(f"following memory for {format_duration(seconds)}"):
                found = record_profile(facts.target.pid, seconds)
        except SourceError as error:
            raise AttachError(str(error), error.hint) from error
        print(json_and_yaml.to_shown_json(found) if config.json else render_profile(found))
        if file is not None:
            is_speedscope = file.name.endswith(".json")
            stacks = found.credits
            file.write(speedscope(stacks, facts.command) if is_speedscope else folded(stacks))
            print(f"\nstacks: {file.name}", file=sys.stderr if config.json else sys.stdout)
    return ExitCode.ENDED


def _seconds(given: object) -> float:
    try:
        seconds = float(str(given))
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds <= 86400.0:
        raise ConfigError(f"--seconds {given}: not a length of time", "give seconds, as in --seconds 30")
    return seconds


@contextmanager
def _new_file(name: object) -> Iterator[TextIO | None]:
    """Create the file of -o, if one is named; ConfigError when it exists already."""
    if name is None:
        yield None
        return
    try:
        file = open(str(name), "x", encoding="utf-8")  # noqa: SIM115 - closed below
    except FileExistsError as error:
        raise ConfigError(f"{name} is there already", "name another file with -o") from error
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}", "name a file that can be written with -o") from error
    with file:
        yield file


def snapshot(flags: dict[str, object]) -> int:
    """`memwatch snapshot --pid PID --label NAME`: what a trainer holds at this moment, printed and kept in a file."""
    from memwatch.app.examination_worker import DEFAULT_TRACED_TYPES
    from memwatch.cli import examination_commands
    from memwatch.outputs.text.examination_text import render_snapshot
    from memwatch.system.process_priority import lower_priority

    options = replace(_census_options(flags), bytes=True, trace_most_frequent=DEFAULT_TRACED_TYPES)
    label = str(flags.pop("label", None) or time.strftime("%Y-%m-%d %H:%M:%S"))
    output = flags.pop("output", None)
    config = config_from_flags(flags)
    lower_priority()
    with ProgressBar("examining the trainer"):
        found = examination_commands.take_process_snapshot(config, label, options)
    path = examination_commands.save_process_snapshot(found, None if output is None else Path(str(output)), os.environ)
    print(json_and_yaml.to_shown_json(found) if config.json else f"{render_snapshot(found)}\n\nkept: {path}")
    return ExitCode.ENDED


def diff(flags: dict[str, object]) -> int:
    """`memwatch diff A B`: what is different between two snapshots."""
    from memwatch.cli import examination_commands
    from memwatch.core.leaks.process_snapshot import diff_process_snapshots
    from memwatch.outputs.text.examination_text import render_inspection_diff

    before, after = (
        examination_commands.load_process_snapshot(name, os.environ) for name in _listed(flags, "snapshots")
    )
    found = diff_process_snapshots(before, after)
    print(json_and_yaml.to_shown_json(found) if flags.get("json") else render_inspection_diff(found))
    return ExitCode.ENDED


def _census_options(flags: dict[str, object]) -> CensusOptions:
    from memwatch.diagnosis.heap.attribute_path_sizes import parse_attribute_path
    from memwatch.diagnosis.heap.object_census import CensusOptions

    return CensusOptions(
        traced_types=_listed(flags, "holders"),
        attribute_paths=tuple(parse_attribute_path(path) for path in _listed(flags, "track")),
    )


def _listed(flags: dict[str, object], name: str) -> tuple[str, ...]:
    """The values of a flag that may be given several times."""
    given = flags.pop(name, ())
    return tuple(given) if isinstance(given, list) else ()


def config_from_flags(flags: Mapping[str, object]) -> Config:
    """Load the configuration file, if one is named, overridden by the environment and the flags."""
    return load_config(config_file(flags), flags=flags, environ=os.environ)


def config_file(flags: Mapping[str, object]) -> Path | None:
    """Return the file that --config names, else $MEMWATCH_CONFIG."""
    name = flags.get("config", os.environ.get("MEMWATCH_CONFIG") or None)
    return None if name is None else Path(str(name))
