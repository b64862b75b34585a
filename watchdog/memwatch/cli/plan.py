"""`memwatch plan`: what a run of another length or capacity would need, from recorded runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from memwatch.app import load_and_replay_run
from memwatch.app.planned_run import PlannedRun, plan_run
from memwatch.cli.watch_serve_markers import config_from_flags
from memwatch.core.engine.status_sentence import needed_text
from memwatch.core.measurements import HOST
from memwatch.core.text_and_units import format_bytes, index_text, printable
from memwatch.errors import ConfigError, ExitCode
from memwatch.system import json_and_yaml


def plan(flags: Mapping[str, Any]) -> int:
    """`memwatch plan [RUN ...]`: forecast what a changed run needs, from each named run or from the latest."""
    config = config_from_flags(flags)
    generations, capacities = _generations(flags), dict(map(_setting, flags.get("set", ())))
    planned = []
    for name in flags.get("plans", ()) or [""]:
        path, run = load_and_replay_run.find_named_run(config, os.environ, name)
        planned.append(plan_run(path, run, config, generations, capacities))
    if config.json:
        print(json_and_yaml.to_shown_json([_as_json(one) for one in planned]))
    else:
        print("\n\n".join("\n".join(_lines(one)) for one in planned))
        if len(planned) > 1:
            print(f"\n{_of_all(planned)}")
    return ExitCode.ENDED


def _generations(flags: Mapping[str, Any]) -> int | None:
    text = flags.get("generations")
    if text is not None and not (text.isdecimal() and int(text) > 0):
        raise ConfigError(f"--generations {text}: not a number of generations", "as in: --generations 40")
    return None if text is None else int(text)


def _setting(text: str) -> tuple[str, float]:
    name, separator, value = text.partition("=")
    try:
        capacity = float(value)
    except ValueError:
        capacity = 0.0
    if not (separator and name and capacity > 0.0):
        raise ConfigError(f"--set {text}: not a capacity", "as in: --set buffer=20000")
    return name, capacity


def _lines(one: PlannedRun) -> Sequence[str]:
    seen = "no generations" if one.seen is None else f"up to {one.unit} {index_text(one.seen)}"
    lines = [f"after run {one.run.run_id} ({seen}): {printable(one.run.command, 100)}"]
    for resource, needed, peak in one.needs:
        name = "" if resource == HOST else f"{resource}: "
        if needed is None:
            missing = "the log tells no end of it: --generations N" if one.total is None else "too little was recorded"
            lines.append(f"  {name}not known what it needs: {missing}; its peak was {format_bytes(peak)}")
            continue
        long = f" with {one.total} {one.unit}s" if one.total is not None else ""
        if one.is_measured:
            lines.append(f"  {name}needs {format_bytes(peak)} to finish{long}, as it was measured")
        else:
            lines.append(f"  {name}{needed_text(needed)}{long}; its peak so far was {format_bytes(peak)}")
    return lines


def _of_all(planned: Sequence[PlannedRun]) -> str:
    """The most that any of the runs leads to, of main memory."""
    known = [need for one in planned for resource, need, _ in one.needs if resource == HOST and need is not None]
    if not known:
        return "none of them tells what it needs"
    most = max(known, key=lambda need: need.high_bytes or need.bytes)
    return f"at most, of all of them: {needed_text(most)}"


def _as_json(one: PlannedRun) -> dict[str, Any]:
    needs = [
        {
            "resource": resource,
            "needed": needed and needed.bytes,
            "needed_lo": needed and needed.low_bytes,
            "needed_hi": needed and needed.high_bytes,
            "peak": peak,
        }
        for resource, needed, peak in one.needs
    ]
    return {"run_id": one.run.run_id, "unit": one.unit, "gen": one.seen, "total": one.total, "resources": needs}
