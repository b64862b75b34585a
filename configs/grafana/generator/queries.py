"""Expressions of PromQL over the registry of metrics: a metric or a label that is not in it cannot be asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from memwatch.outputs.metrics import metric_registry as f
from memwatch.outputs.metrics.metric_registry import FAMILIES, MetricFamily

FLEET = 'job=~"$job",instance=~"$instance"'  # matchers of the dashboard of all runs
RUN = 'job="$job",instance="$instance"'  # of that of one
RESOURCE = 'resource=~"$resource"'

Selector = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Line:
    """One query of a panel; `style` says how its series are drawn (panels.STYLES)."""

    expr: str
    legend: str = ""
    style: str = ""


def selector(scope: str) -> Selector:
    """select(family, label="value"): the series of a family within a dashboard's variables, and with these labels."""

    def select(family: MetricFamily, **labels: str) -> str:
        unknown = labels.keys() - set(family.labels)
        if unknown:
            raise ValueError(f"{family.sample_name} has no label {', '.join(sorted(unknown))}")
        matchers = [scope, *(f'{name}="{value}"' for name, value in labels.items())]
        if "resource" in family.labels and "resource" not in labels and scope == RUN:
            matchers.append(RESOURCE)
        return f"{family.sample_name}{{{','.join(matchers)}}}"

    return select


def code(select: Selector, family: MetricFamily, values: Iterable[str], by: str, **labels: str) -> str:
    """Of a family that is 1 for one of the values of its last label: the index of that value."""
    name = family.labels[-1]
    parts = [f"{i} * ({select(family, **labels, **{name: value})} == 1)" for i, value in enumerate(values)]
    return f"max by ({by}) ({' or '.join(parts)})"


def filled(select: Selector, **labels: str) -> str:
    """The share of the limit that is gone. What counts is the room that is left: limits count different things."""
    headroom, limit = select(f.MEMORY_HEADROOM, **labels), select(f.MEMORY_LIMIT, **labels)
    return f"1 - {headroom} / on (job, instance, resource) max by (job, instance, resource) ({limit})"


def families_in(expr: str) -> list[MetricFamily]:
    """The metrics of the registry that an expression asks for, in its order."""
    names = {one.sample_name: one for one in FAMILIES}
    asked = dict.fromkeys(re.findall(r"[a-z_][a-z0-9_]*", re.sub(r'"[^"]*"', "", expr)))
    return [names[name] for name in asked if name in names]
