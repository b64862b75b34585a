"""Rules that turn evidence into named causes of growth, with what to do. No finding without evidence."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from memwatch.core.examination import Driver, Finding
from memwatch.core.leaks import leak_causes
from memwatch.core.leaks.cause_rules import (
    EXPLAINS,
    FIGURE,
    of_arrays,
    of_gpus,
    of_rest,
)
from memwatch.core.leaks.examination_history import Evidence
from memwatch.core.leaks.growth_attribution import Holding, Situation, holdings
from memwatch.core.leaks.leak_causes import Cause
from memwatch.core.zz_census import TENSORS
from memwatch.core.zz_units import format_bytes

_ENVIRONMENT = re.compile(r"env(ironment)?s?$|^Env|VecEnv|Wrapper$|Simulator$|Gym", re.IGNORECASE)
_LOSS = re.compile(r"loss|grad|graph", re.IGNORECASE)
_MEMBER = re.compile(
    r"agent|individual|genome|policy|member|organism|population|actor|critic|net(work)?$|model$", re.IGNORECASE
)


def conclude(evidence: Evidence, situation: Situation) -> tuple[list[Finding], list[Driver]]:
    """What grows and why, the largest first; and what counts its items."""
    situation = replace(situation, threshold_bytes=situation.threshold_bytes / evidence.stride)
    memory, on_gpus = evidence.memory(), list(of_gpus(evidence, situation))
    if memory is None:
        return on_gpus, []
    held = list(holdings(evidence, situation, memory))
    findings = [found for one in held if (found := _of_holding(one, situation)) is not None]
    findings += of_arrays(evidence, situation, memory)
    in_attributes = sum(one.growth.per_unit for one in held)
    known = in_attributes + sum(one.per_unit for one in evidence.filled())
    held_once = evidence.held_since(memory.since) / (memory.after - memory.before)  # by one that is full by now, say
    if max(known / memory.per_unit, held_once) < EXPLAINS and memory.per_unit >= situation.threshold_bytes:
        findings += of_rest(evidence, situation, memory, memory.per_unit - known, in_attributes)
    findings.sort(key=lambda one: -one.growth.per_unit)
    return findings + on_gpus, [one.driver for one in held if one.driver is not None]


def _is_called(pattern: re.Pattern[str]) -> Callable[[Holding], bool]:
    return lambda one: bool(pattern.search(one.type.rpartition(".")[2]))


def _is_population(one: Holding) -> bool:
    """Of those that are in use, a part or all stays each time."""
    is_member = _MEMBER.search(one.type) or _MEMBER.search(one.way)
    return bool(is_member) and one.elsewhere >= 2 and 0.2 * one.elsewhere <= one.per_unit <= 1.5 * one.elsewhere


RULES: tuple[tuple[Cause, Callable[[Holding], bool]], ...] = (
    (leak_causes.FIGURES, _is_called(FIGURE)),
    (leak_causes.ENVIRONMENTS, _is_called(_ENVIRONMENT)),
    (leak_causes.LOSSES, lambda one: one.type in TENSORS or _is_called(_LOSS)(one)),
    (leak_causes.POPULATION, _is_population),
    (leak_causes.UNBOUNDED, lambda _: True),
)


def _of_holding(one: Holding, situation: Situation) -> Finding | None:
    """Why an attribute grows; None where it fills up to a capacity for which there is room."""
    if one.driver is not None and one.driver.capacity is not None:
        return _of_capacity(one, one.driver, situation)
    cause = next(cause for cause, fits in RULES if fits(one))
    return _finding(one, cause, cause.remedy.format(name=one.name, unit=situation.unit), situation)


def _of_capacity(one: Holding, by: Driver, situation: Situation) -> Finding | None:
    room = situation.headroom_bytes
    if room is None or by.full_bytes is None or by.limit_value is None or by.full_bytes - one.growth.after <= room:
        return None
    each, most = format_bytes(by.bytes_per_unit), f"{by.limit_value:,.0f}"
    remedy = (
        f"give {one.name} a capacity below {most}, or make its items smaller (each takes {each}): "
        "indices or views of shared data instead of copies, float16 or uint8"
    )
    facts = (
        f"{by.name}: {by.value:,.0f} of {by.capacity:,.0f}, {each} each",
        f"full it needs {format_bytes(by.full_bytes)}; the limit falls at about {most}",
    )
    return _finding(one, leak_causes.CANNOT_FIT, remedy, situation, facts)


def _finding(one: Holding, cause: Cause, remedy: str, situation: Situation, facts: Sequence[str] = ()) -> Finding:
    growth = one.growth
    sizes = f"{format_bytes(growth.before)} at {situation.unit} {growth.since:g}, {format_bytes(growth.after)} now"
    evidence = (*facts, f"{one.name} holds {sizes}", f"that is {one.share:.0%} of the growth of memory")
    counts = (one.before, one.after)
    return cause.finding(
        growth, one.phase, evidence, type_=one.type, counts=counts, holder=one.way, share=one.share, remedy=remedy
    )
