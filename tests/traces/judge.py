"""What a forecaster's lines are worth against a label: the rule of the shared scorer, and sums of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from traces.labels import STILL

NO_ANSWER = 2.0  # the error where nothing is said: 200 %
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One trace. Times in seconds; None where there is nothing to judge."""

    id: str
    family: str
    outcome: str  # saved, MISSED, FALSE INTERRUPT, quiet, or lost: nobody could have saved it
    interrupt_t: float | None
    oom_t: float | None
    waste: float | None = None  # share of the life that was given away
    waste_generations: float | None = None
    eta_errors: tuple[float, ...] = ()
    quarter_error: float | None = None  # at the first time of four
    late_errors: tuple[float, ...] = ()  # from half of the way on
    covered: tuple[bool, ...] = ()
    widths: tuple[float, ...] = ()  # of the intervals, in true remaining times
    verdicts: tuple[tuple[str, str | None, float], ...] = ()  # state, what was said, credit
    growth_errors: tuple[float, ...] = ()
    phantoms: tuple[bool, ...] = ()  # looks at which nothing grows: an end was said to be near
    rows: int = 0
    seconds: float = 0.0
    error: str = ""


def judge(label: Line, lines: Sequence[Line], **more: Any) -> Judgement:
    """The lines of one trace, in order."""
    lines = list(_in_time(lines))
    mine = [line for line in lines if line.get("resource", "host") == label["resource"]]
    interrupt_t = next((line["t"] for line in lines if line.get("action") == "interrupt"), None)
    oom_t = label["oom_t"]
    outcome, waste = _outcome(label, interrupt_t)
    errors, covered, widths = [], [], []
    for t in label["eta"] if oom_t is not None else []:
        line = _last(mine, t)
        errors.append(_eta_error(line, t, oom_t))
        if (interval := _interval(line, t, oom_t)) is not None:
            covered.append(interval[0])
            widths.append(interval[1])
    return Judgement(
        id=label["id"],
        family=label["family"],
        outcome=outcome,
        interrupt_t=interrupt_t,
        oom_t=oom_t,
        waste=waste,
        waste_generations=waste * _life(label, interrupt_t) / label["gen_s"] if waste and label["gen_s"] else None,
        eta_errors=tuple(errors),
        quarter_error=errors[0] if len(errors) == 4 else None,
        late_errors=tuple(errors[-3:]),
        covered=tuple(covered),
        widths=tuple(widths),
        verdicts=tuple(_verdict(look, _last(mine, look["t"])) for look in label["verdicts"]),
        growth_errors=tuple(_growth_error(label, look, _last(mine, look["t"])) for look in label["slopes"]),
        phantoms=_phantoms(label, mine),
        **more,
    )


def _in_time(lines: Iterable[Line]) -> Iterable[Line]:
    latest = -1.0
    for line in lines:
        latest = max(latest, float(line["t"]))
        yield {**line, "t": latest}


def _last(lines: Sequence[Line], t: float) -> Line | None:
    return next((line for line in reversed(lines) if line["t"] <= t + 1e-6), None)


def _number(line: Line | None, name: str) -> float | None:
    value = line.get(name) if line else None
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known and value is not None else None


def _start(label: Line, t: float) -> float:
    return float(label["t_start"]) if t >= label["t_start"] else 0.0


def _life(label: Line, interrupt_t: float) -> float:
    return float(label["oom_t"]) - _start(label, interrupt_t)


def _outcome(label: Line, interrupt_t: float | None) -> tuple[str, float | None]:
    oom_t, checkpoint = label["oom_t"], label["ckpt_s"]
    if oom_t is None:
        return ("quiet" if interrupt_t is None else "FALSE INTERRUPT"), None
    if interrupt_t is None or interrupt_t + checkpoint >= oom_t:
        return ("MISSED" if label["savable"] else "lost"), None
    return "saved", (oom_t - checkpoint - interrupt_t) / _life(label, interrupt_t)


def _eta_error(line: Line | None, t: float, oom_t: float) -> float:
    eta = _number(line, "eta_s")
    if line is None or eta is None:
        return NO_ANSWER
    return min(NO_ANSWER, abs(line["t"] + eta - oom_t) / (oom_t - t))


def _interval(line: Line | None, t: float, oom_t: float) -> tuple[bool, float] | None:
    low, high = _number(line, "eta_lo_s"), _number(line, "eta_hi_s")
    if line is None or (low is None and high is None):
        return None
    holds = (low is None or line["t"] + low <= oom_t) and (high is None or oom_t <= line["t"] + high)
    return holds, math.inf if high is None else (high - (low or 0.0)) / (oom_t - t)


def _verdict(look: Line, line: Line | None) -> tuple[str, str | None, float]:
    said = line.get("verdict") if line else None
    return look["state"], said, look["credit"].get(said, 0)


def _growth_error(label: Line, look: Line, line: Line | None) -> float:
    growth, true = _number(line, "growth_per_gen"), look["bytes_per_gen"]
    if growth is None:
        return NO_ANSWER
    return min(NO_ANSWER, abs(growth - true) / max(abs(true), 0.005 * label["limit"]))


def _phantoms(label: Line, lines: Sequence[Line]) -> tuple[bool, ...]:
    """An end is said to be nearer than as long again as was watched, where nothing grows and nothing dies."""
    if label["oom_t"] is not None:
        return ()
    phantoms = []
    for look in label["verdicts"]:
        if look["state"] in STILL:
            eta = _number(_last(lines, look["t"]), "eta_s")
            phantoms.append(eta is not None and eta < look["t"] - _start(label, look["t"]))
    return tuple(phantoms)


# --- sums -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figures:
    """Many traces together. Shares from 0 to 1; NaN where there was nothing to judge."""

    traces: int
    dying: int
    missed: int
    false: int
    missed_share: float  # of those that could be saved
    false_share: float  # of those that never die
    waste: float
    waste_median: float
    waste_generations: float
    eta: float
    eta_quarter: float
    eta_late: float
    coverage: float
    width: float
    verdict: float
    growth: float
    phantom: float
    errors: int
    seconds: float
    rows_per_second: float
    wrong: tuple[str, ...] = field(default=(), compare=False)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it: None for what is no finite number."""
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}


def figures(judged: Sequence[Judgement], wall_seconds: float | None = None) -> Figures:
    """The sum of some traces; the seconds are those of the forecaster alone unless they are given."""
    seconds = sum(j.seconds for j in judged) if wall_seconds is None else wall_seconds
    savable = [j for j in judged if j.oom_t is not None and j.outcome != "lost"]
    quiet = [j for j in judged if j.oom_t is None]
    missed = [j.id for j in judged if j.outcome == "MISSED"]
    false = [j.id for j in judged if j.outcome == "FALSE INTERRUPT"]
    wastes = [j.waste for j in judged if j.waste is not None]
    return Figures(
        traces=len(judged),
        dying=sum(j.oom_t is not None for j in judged),
        missed=len(missed),
        false=len(false),
        missed_share=len(missed) / len(savable) if savable else math.nan,
        false_share=len(false) / len(quiet) if quiet else math.nan,
        waste=_mean(wastes),
        waste_median=_median(wastes),
        waste_generations=_median([j.waste_generations for j in judged if j.waste_generations is not None]),
        eta=_median([e for j in judged for e in j.eta_errors]),
        eta_quarter=_median([j.quarter_error for j in judged if j.quarter_error is not None]),
        eta_late=_median([e for j in judged for e in j.late_errors]),
        coverage=_mean([float(c) for j in judged for c in j.covered]),
        width=_median([w for j in judged for w in j.widths]),
        verdict=_mean([c for j in judged for _, _, c in j.verdicts]),
        growth=_median([e for j in judged for e in j.growth_errors]),
        phantom=_mean([float(is_phantom) for j in judged for is_phantom in j.phantoms]),
        errors=sum(bool(j.error) for j in judged),
        seconds=seconds,
        rows_per_second=sum(j.rows for j in judged) / seconds if seconds else math.nan,
        wrong=(*missed, *false),
    )


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan
