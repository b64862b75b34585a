"""Files that travel with memwatch: in an installed wheel beside the code, in a checkout where people edit them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parent.parent
_SCRIPTS = {"bash": "memwatch.bash", "zsh": "_memwatch", "fish": "memwatch.fish"}


def preset_files() -> list[Path]:
    """The log presets."""
    return sorted(_where("markers", "configs/markers").glob("*.yaml"))


def profile_file(name: str) -> Path:
    """The settings of a profile, as a configuration file."""
    return _where(f"profiles/{name}.yaml", f"configs/profiles/{name}.yaml")


def example_config_file() -> Path:
    """Every key, with its default and what it means."""
    return _where("memwatch.yaml", "configs/memwatch.yaml")


def example_trainer() -> Path:
    """The leaking trainer of `memwatch demo`."""
    return _where("evolve.py", "examples/evolve.py")


def manual_file() -> Path:
    """The manual page."""
    return _where("manual/memwatch.1", "docs/manual/memwatch.1")


def completion_file(shell: str) -> Path:
    """The script that completes memwatch's command line in bash, zsh or fish."""
    return _where(f"manual/{_SCRIPTS[shell]}", f"docs/manual/{_SCRIPTS[shell]}")


def build() -> Mapping[str, str]:
    """The `commit` that was packaged and its `date`; empty in a checkout, or when git did not know."""
    path = PACKAGE / "data" / "build.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _where(installed: str, edited: str) -> Path:
    path = PACKAGE / "data" / installed
    return path if path.exists() else CHECKOUT / edited
