"""Parts that several pages have: findings, generations, expectations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memwatch.core.engine import status_sentence as sentences
from memwatch.core.examination import Diagnosis
from memwatch.core.snapshot import Expectation, GenerationRow
from memwatch.core.zz_units import format_bytes, format_duration
from memwatch.outputs.html import html_document
from memwatch.outputs.html.html_document import Markup
from memwatch.outputs.text.examination_text import details
from memwatch.outputs.text.formatting import (
    format_index,
    largest_phases,
    phase_delta,
    phase_heads,
)

PHASES = 6  # that have a column of their own


def findings(known: Diagnosis | None) -> Iterator[Markup]:
    """Each cause of growth, with its evidence and what to do about it."""
    if known is not None:
        for one in known.findings:
            yield html_document.element(
                "h3", html_document.words(sentences.finding_headline(one, known.unit)), class_="bad"
            )
            yield html_document.items(filter(None, details(one)))


def generations(rows: Sequence[GenerationRow], unit: str) -> Markup:
    """A table: how memory changed in each, and in its phases."""
    phases = largest_phases(rows, PHASES) if rows else []
    heads = [f">{unit}", ">took", ">start", ">end", ">change", ">peak", *(f">{name}" for name in phase_heads(phases))]
    return html_document.wide_table(heads, (_generation(row, phases) for row in rows))


def _generation(row: GenerationRow, phases: Sequence[str]) -> list[str]:
    deltas = [phase_delta(row, phase) for phase in phases]
    again = f" (try {row.attempt + 1})" if row.attempt else ""
    took = "not ended" if row.end_t is None else format_duration(row.end_t - row.start_t)
    return [
        format_index(row.index) + again,
        took + (", in part" if row.partial else ""),
        format_bytes(row.start_bytes),
        format_bytes(row.end_bytes),
        format_bytes(row.delta_bytes, signed=True),
        format_bytes(row.peak_bytes),
        *("" if delta is None else format_bytes(delta, signed=True) for delta in deltas),
    ]


def expectations(known: Sequence[Expectation]) -> Markup:
    """A table: what was expected, and what came of it."""
    rows = []
    for one in known:
        met = "not looked at yet" if one.met is None else "so it is"
        if one.breaches:
            met = f"broken {one.breaches} times, first at {one.first}"
        rows.append([one.text, met, one.latest])
    return html_document.wide_table(["expected", "what came of it", "latest"], rows)
