"""The two text formats, read back by prometheus_client's own parsers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import Collector, CollectorRegistry

from memwatch.outputs.metrics.exposition import (
    OPENMETRICS,
    TEXT_CONTENT_TYPE,
    MetricSamples,
    as_openmetrics,
    as_text,
    negotiate,
)
from memwatch.outputs.metrics.metric_registry import MetricFamily

METRICS = [
    MetricSamples(
        MetricFamily("gauge", "m_bytes", "Memory.", ("path", "name")),
        ((("/a", 'say "\\n"\n'), 1.5e10), (("", "é\\"), -0.0)),
    ),
    MetricSamples(MetricFamily("gauge", "m_bare", "No labels."), (((), 3),)),
    MetricSamples(MetricFamily("counter", "m_ticks", "Turns."), (((), 7.0),)),
    MetricSamples(MetricFamily("info", "m_build", "The version.", ("version",)), ((("1.0",), 1.0),)),
]


class Theirs(Collector):
    def collect(self):
        for metric in METRICS:
            told = metric.family
            if told.kind == "counter":
                yield CounterMetricFamily(told.name, told.text, value=metric.series[0][1])
            elif told.kind == "info":
                family = InfoMetricFamily(told.name, told.text)
                family.add_metric((), dict(zip(told.labels, metric.series[0][0], strict=True)))
                yield family
            else:
                family = GaugeMetricFamily(told.name, told.text, labels=told.labels)
                for labels, value in metric.series:
                    family.add_metric(labels, value)
                yield family


def figures(families) -> list[tuple]:
    return [
        (family.name, family.type, family.documentation, [(s.name, s.labels, s.value) for s in family.samples])
        for family in families
    ]


@pytest.mark.parametrize(
    ("ours", "theirs", "parse"),
    [(as_text, generate_latest, parse_text), (as_openmetrics, generate_openmetrics, parse_openmetrics)],
)
def test_it_says_what_prometheus_client_says(ours, theirs, parse):
    registry = CollectorRegistry()
    registry.register(Theirs())
    expected = figures(parse(theirs(registry).decode()))
    assert len(expected) == len(METRICS)
    assert figures(parse(ours(METRICS).decode())) == expected


@given(st.text(), st.floats())
def test_any_label_and_value_come_back(label, value):
    metric = MetricSamples(MetricFamily("gauge", "m", "Any.", ("label",)), (((label,), value),))
    for encode, parse in ((as_text, parse_text), (as_openmetrics, parse_openmetrics)):
        [family] = parse(encode([metric]).decode())
        [sample] = family.samples
        assert sample.labels == {"label": label}
        assert sample.value == value or (math.isnan(sample.value) and math.isnan(value))


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", TEXT_CONTENT_TYPE),
        ("*/*", TEXT_CONTENT_TYPE),
        ("text/plain;version=0.0.4", TEXT_CONTENT_TYPE),
        ("application/openmetrics-text", OPENMETRICS),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2",
            OPENMETRICS,
        ),
        ("text/html, Application/OpenMetrics-Text ; version=0.0.1", OPENMETRICS),
        ("application/openmetrics-texts", TEXT_CONTENT_TYPE),
    ],
)
def test_the_format_is_the_one_that_is_asked_for(accept, kind):
    encode, content_type = negotiate(accept)
    assert content_type == kind
    assert encode([]) == (b"# EOF\n" if kind == OPENMETRICS else b"")
