"""Files that travel with memwatch: in an installed wheel beside the code, in a checkout where people edit them."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent


def markers() -> list[Path]:
    """The log presets."""
    folder = _PACKAGE / "data" / "markers"
    return sorted((folder if folder.is_dir() else _CHECKOUT / "configs" / "markers").glob("*.yaml"))


def profile(name: str) -> Path:
    """The settings of a profile, as a configuration file."""
    path = _PACKAGE / "data" / "profiles" / f"{name}.yaml"
    return path if path.is_file() else _CHECKOUT / "configs" / "profiles" / f"{name}.yaml"


def example_configuration() -> Path:
    """Every key, with its default and what it means."""
    path = _PACKAGE / "data" / "memwatch.yaml"
    return path if path.is_file() else _CHECKOUT / "configs" / "memwatch.yaml"


def example_trainer() -> Path:
    """The leaking trainer of `memwatch demo`."""
    path = _PACKAGE / "data" / "evolve.py"
    return path if path.is_file() else _CHECKOUT / "examples" / "evolve.py"
