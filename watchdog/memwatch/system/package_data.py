"""Files that are shipped with memwatch: beside the code in an installed wheel, in their own folders in a checkout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parent.parent
_COMPLETION_FILES = {"bash": "memwatch.bash", "zsh": "_memwatch", "fish": "memwatch.fish"}  # by shell


def marker_presets() -> Mapping[str, object]:
    """Return the documents of configs/markers by name, from the JSON that `make presets` writes: YAML takes 1 MiB."""
    presets: dict[str, object] = json.loads(_find("markers/presets.json", "configs/markers/presets.json").read_text())
    return presets


def profile_file(name: str) -> Path:
    return _find(f"profiles/{name}.yaml", f"configs/profiles/{name}.yaml")


def example_config_file() -> Path:
    return _find("memwatch.yaml", "configs/memwatch.yaml")


def example_trainer() -> Path:
    """Return the leaking trainer of `memwatch demo`."""
    return _find("evolve.py", "examples/evolve.py")


def manual_file() -> Path:
    return _find("manual/memwatch.1", "docs/manual/memwatch.1")


def completion_file(shell: str) -> Path:
    name = _COMPLETION_FILES[shell]
    return _find(f"manual/{name}", f"docs/manual/{name}")


def build() -> Mapping[str, str]:
    """Return the `commit` that was packaged and its `date`; empty in a checkout, and where git did not know them."""
    path = PACKAGE / "data" / "build.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _find(installed: str, in_checkout: str) -> Path:
    path = PACKAGE / "data" / installed
    return path if path.exists() else CHECKOUT / in_checkout
