"""Generations as the forecaster keeps them, written by hand."""

from __future__ import annotations

from collections.abc import Sequence

from memwatch.core.forecast.sample_summaries import GenerationSummary


def shape_from(
    ordinal: float, level: float, means: Sequence[float], highs: Sequence[float], seconds: float = 60.0
) -> GenerationSummary:
    """One complete generation of these bytes."""
    return GenerationSummary(
        ordinal=ordinal,
        middle_t=seconds * (ordinal + 0.5),
        count=1,
        seconds=seconds,
        baseline=level,
        slot_means=tuple(means),
        slot_maxima=tuple(highs),
    )
