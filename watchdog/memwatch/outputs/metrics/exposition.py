"""Metrics as text: the plain format of Prometheus (0.0.4) and OpenMetrics 1.0.

prometheus_client does the same, but imports TLS and a server of its own for it: 8 MiB of a watch of 25.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from memwatch.outputs.metrics.metric_registry import MetricFamily

TEXT_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

Series = tuple[tuple[str, ...], float]  # label values, value


@dataclass(frozen=True, slots=True)
class MetricSamples:
    """What is told of one family; no label set twice."""

    family: MetricFamily
    series: Sequence[Series]


def negotiate(accept: str) -> tuple[Callable[[Iterable[MetricSamples]], bytes], str]:
    """The encoder that suits an Accept header, and its content type: plain unless OpenMetrics is named."""
    kinds = (part.partition(";")[0].strip().lower() for part in accept.split(","))
    return (as_openmetrics, OPENMETRICS) if "application/openmetrics-text" in kinds else (as_text, TEXT_CONTENT_TYPE)


def as_text(metrics: Iterable[MetricSamples]) -> bytes:
    """The plain format: it has no infos, and a counter's family has the name of its sample."""
    lines: list[str] = []
    for metric in metrics:
        kind = metric.family.kind
        lines += _head(metric.family.sample_name, "gauge" if kind == "info" else kind, metric.family.text)
        lines += _samples(metric)
    return _encoded(lines)


def as_openmetrics(metrics: Iterable[MetricSamples]) -> bytes:
    """OpenMetrics, with its end."""
    lines: list[str] = []
    for metric in metrics:
        lines += _head(metric.family.name, metric.family.kind, metric.family.text)
        lines += _samples(metric)
    return _encoded([*lines, "# EOF"])


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _samples(metric: MetricSamples) -> Iterator[str]:
    name, labels = metric.family.sample_name, metric.family.labels
    for values, number in metric.series:
        yield f"{name}{_labelled(labels, values)} {float(number)!r}"


@lru_cache(maxsize=1024)  # of scrape after scrape the same
def _labelled(labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    pairs = sorted(zip(labels, values, strict=True))
    told = ",".join(f'{label}="{value.translate(_ESCAPED)}"' for label, value in pairs)
    return f"{{{told}}}" if told else ""


def _encoded(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
