"""`memwatch replay`: run the engine over a recorded trace, or over a run of the history as it was watched."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from memwatch import __version__
from memwatch.app.load_and_replay_run import RejudgedWatch, find_run, rejudge, replay_until
from memwatch.cli.watch_serve_markers import config_from_flags
from memwatch.config.settings import MIN_INTERVAL_SECONDS, Config
from memwatch.core.engine.engine import Engine
from memwatch.core.engine.status_sentence import to_json_line, to_text_line
from memwatch.core.events import Notice, begin_t
from memwatch.core.snapshot import Snapshot
from memwatch.core.text_and_units import format_bytes, format_duration
from memwatch.errors import ConfigError, ExitCode
from memwatch.history.trace_files import read_batches, read_trace, replay_notices
from memwatch.outputs.terminal.command_progress import ProgressBar
from memwatch.outputs.terminal.plain_and_json_lines import NoticeFilter
from memwatch.system.json_and_yaml import to_shown_json

SQLITE_MAGIC = b"SQLite format 3\0"  # the first bytes of a history
HISTORY_FLAGS = {"file", "run_id", "json", "verbose", "config", "why"}  # flags that do not change what the engine does


def replay(flags: Mapping[str, Any]) -> int:
    """`memwatch replay FILE`: a trace, also drawn with `--plot`, or a run of a history."""
    path = Path(flags["file"])
    if _is_history(path):
        return _replay_history(path, flags)
    if "run_id" in flags:
        hint = "leave --run out, or name a history"
        raise ConfigError(f"{path}: not a history, from which --run selects a run", hint)
    # A trace has its own times of samples: the interval of a live watch must not refuse a short --checkpoint-time.
    config = config_from_flags(
        {"checkpoint_time": os.environ.get("MEMWATCH_CHECKPOINT_S"), **flags, "interval": MIN_INTERVAL_SECONDS}
    )
    if "why" in flags:
        engine, batches = Engine(config.policy), read_batches(path, config.memory.limit_bytes)
        if (first := next(batches, None)) is not None:
            engine.feed_until(chain([first], batches), _time(flags["why"], begin_t(first)))
        _print_why(engine, config)
    elif "plot" in flags:
        _plot_trace(path, Path(flags["plot"]), config)
    else:
        _print_trace(path, config)
    return ExitCode.ENDED


def _is_history(path: Path) -> bool:
    try:
        if not path.is_file():  # to look into a pipe would empty it
            return False
        with path.open("rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError:
        return False


def _print_notice(notice: Notice, time_text: str, config: Config, is_news: NoticeFilter) -> None:
    if config.json:
        print(to_json_line(notice))
    elif config.verbose or is_news(notice):
        print(f"{time_text} {to_text_line(notice)}")


# --- one decision ---------------------------------------------------------------------------------------------------


def _time(told: str, start_t: float) -> float:
    """The time that `--why` names: seconds from the start, or the `t` of an event."""
    try:
        seconds = float(told)
    except ValueError:
        seconds = math.nan
    if not 0.0 <= seconds < math.inf:
        raise ConfigError(f"--why: {told!r} is no time", "give seconds from the start, or the `t` of an event")
    return seconds if seconds >= start_t else start_t + seconds


def _print_why(engine: Engine, config: Config) -> None:
    """Print what the decision to interrupt stands on at the engine's latest sample, one resource after the other."""
    end = engine.snapshot()
    if not end.resources:
        raise ConfigError("--why: no sample was taken by then", "give a later time")
    for found in engine.explain():
        if config.json:
            print(to_shown_json({"event": "why", "t": round(end.t, 3), **found}))
            continue
        passed = 0.0 if end.started_t is None else end.t - end.started_t
        print(f"After {format_duration(passed)}: {end.sentence}.\n")
        print("\n".join(_why_lines(found)))


def _why_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The questions of the rule in order, each with its answer and its numbers; the first alone where nothing grows."""
    reason = found["reason"]
    yield f"{found['resource']}: {'no interrupt' if reason is None else f'interrupt ({reason})'}"
    yield _answer("Does it grow to the limit before the run ends?", found["is_growth"], f"verdict {found['verdict']}")
    if not found["is_growth"] or "is_believed" not in found:
        return
    left, seen = (format_duration(max(0.0, found[name])) for name in ("left_s", "growth_seen_s"))
    yield _answer(
        "Is the limit likelier reached than not?",
        found["is_believed"],
        f"probability {found['p_limit_reached']:.2f}: growth seen {seen} (less while it loaded), left {left}",
    )
    if "waits" in found:
        lead = format_duration(found["lead_s"])
        yield f"    never {found['p_never']:.2f}; within the lead time of {lead} {found['p_within_lead']:.2f}"
    yield _answer(
        "Does each wait cost more than it is worth?",
        found["is_last_chance"],
        f"memory for a checkpoint: {'yes' if found['is_checkpoint_room'] else 'no'}",
    )
    if "waits" in found:
        now, later, cycle = found["p_fails_now"], found["p_fails_after_cycle"], format_duration(found["cycle_s"])
        yield f"    a checkpoint fails: asked for now {now:.3f}, after a cycle of {cycle} {later:.3f}"
        risk, left = (format_duration(found[name]) for name in ("work_at_risk_s", "work_left_s"))
        yield f"    work at risk {risk}; expected until the limit {left}"
        for one in found["waits"]:
            wait, cost, worth = (format_duration(max(0.0, one[name])) for name in ("wait_s", "cost_s", "worth_s"))
            yield f"    wait {wait}: fails {one['p_fails']:.3f}, costs {cost}, is worth {worth}"
    headroom, most = format_bytes(found["headroom"]), format_bytes(found["most_within_lead"])
    yield _answer(
        "Could what is left be used up within the lead time?",
        found["headroom"] <= found["most_within_lead"],
        f"{headroom} left; twice the greatest rise, or a checkpoint: {most}",
    )
    rates = (format_bytes(found[name]) for name in ("rate", "climb_rate"))
    yield "  A burst? It grows {}/s now, and has climbed steadily by {}/s.".format(*rates)


def _answer(question: str, answer: bool, why: str) -> str:
    return f"  {question} {'yes' if answer else 'no'}\n    {why}"


# --- a trace --------------------------------------------------------------------------------------------------------


def _plot_trace(trace: Path, path: Path, config: Config) -> None:
    """Print the replay, and draw it into the file at `path`."""
    from memwatch.outputs.charts import run_data
    from memwatch.outputs.html import replay_page
    from memwatch.system import private_files

    if trace.exists() and not trace.is_file():
        raise ConfigError(f"{trace}: cannot be read twice, as --plot must", "save the trace to a file first")
    notices, limit = list[Notice](), config.memory.limit_bytes
    with private_files.atomic_writer(path, "--plot", replay_page.SUFFIXES) as write:
        end, conclusion = _print_trace(trace, config, notices.append)
        options = {} if limit is None else {"--limit": format_bytes(limit)}
        data = run_data.build_run_data(read_trace(trace, limit), notices, end)
        write(replay_page.render_replay(path.suffix, trace.name, data, conclusion, options))
    print(f"plot: {path}", file=sys.stderr if config.json else sys.stdout)


def _print_trace(
    trace: Path, config: Config, keep: Callable[[Notice], None] = lambda notice: None
) -> tuple[Snapshot, str]:
    """Print the notices as they come, then the conclusion; return the state at the end and the conclusion."""
    is_news, interrupt, ends, start_t = NoticeFilter(), None, list[Snapshot](), None

    def replayed(progress: ProgressBar) -> Iterator[Notice]:
        ends.append((yield from replay_notices(trace, config.policy, config.memory.limit_bytes, progress.update)))

    with ProgressBar("replaying") as progress:
        for notice in replayed(progress):
            keep(notice)
            start_t = notice.t if start_t is None else start_t
            elapsed = notice.t - start_t
            _print_notice(notice, f"{format_duration(elapsed) if elapsed >= 1 else '0 s':>10} ", config, is_news)
            interrupt = interrupt or (notice if notice.event == "interrupt" else None)
    [end] = ends
    if end.started_t is None:
        raise ConfigError(f"{trace}: holds no samples", "a trace has a row for each sample below its header")
    conclusion = _conclude_trace(end, end.started_t, interrupt)
    if not config.json:
        print(f"\n{conclusion}")
    return end, conclusion


def _conclude_trace(end: Snapshot, start_t: float, interrupt: Notice | None) -> str:
    text = f"End after {format_duration(end.t - start_t)}: {end.sentence}."
    checkpoint = f"a checkpoint takes {format_duration(end.checkpoint_seconds)} ({end.checkpoint_origin})"
    if interrupt is None:
        return f"{text}\nmemwatch would not have interrupted it; {checkpoint}."
    generation = interrupt.fields.get("gen")
    where = f", in {end.unit} {generation:g}" if generation is not None else ""
    after = format_duration(interrupt.t - start_t)
    return f"{text}\nmemwatch would have interrupted it after {after}{where}; {checkpoint}."


# --- a run of the history -------------------------------------------------------------------------------------------


def _replay_history(path: Path, flags: Mapping[str, Any]) -> int:
    """Replay a run with the settings of its watches; INTERNAL when any notice differs from the recorded one."""
    if set(flags) - HISTORY_FLAGS:
        raise ConfigError(
            f"{path}: a run of the history is replayed with the limits and settings that it was watched with",
            "to replay it with others, export it as a trace: memwatch export HISTORY -o trace.csv",
        )
    config = config_from_flags(flags)
    run = find_run(path, flags.get("run_id"))
    if "why" in flags:
        _print_why(replay_until(path, run, _time(flags["why"], run.begun_t)), config)
        return ExitCode.ENDED
    with ProgressBar("replaying the run") as progress:
        watches = list(rejudge(path, run, progress.update))
    is_news = NoticeFilter()
    for notice in (notice for watch in watches for notice in watch.recomputed):
        _print_notice(notice, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(notice.t)), config, is_news)
    print(_conclude_history(watches), file=sys.stderr if config.json else sys.stdout)
    return ExitCode.INTERNAL if any(watch.difference for watch in watches) else ExitCode.ENDED


def _conclude_history(watches: Sequence[RejudgedWatch]) -> str:
    for i, one in enumerate(watches, 1):
        if one.difference is not None:
            then, now = (to_json_line(notice) if notice is not None else "nothing" for notice in one.difference)
            which = f"watch {i} of {len(watches)}, by memwatch {one.watch.version}; this is {__version__}"
            return f"\nthe replay differs from what was reported ({which}):\n  then {then}\n  now  {now}"
    count = "1 watch" if len(watches) == 1 else f"{len(watches)} watches"
    notices = sum(len(watch.recomputed) for watch in watches)
    return f"\nreplayed {count}: each of {notices} events as it was reported, bit for bit"
