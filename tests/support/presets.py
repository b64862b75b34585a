"""The packaged presets, as the source tree has them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

from memwatch.sources.log.marker_presets import Preset, load_presets

FOLDER = Path(__file__).parents[2] / "configs" / "markers"


@cache
def packaged_presets() -> tuple[Preset, ...]:
    """Every preset of configs/markers."""
    return load_presets((path.stem, yaml.safe_load(path.read_text())) for path in sorted(FOLDER.glob("*.yaml")))
