"""Defaults, profile, file, environment and flags to one Config: what lies higher wins, and its origin is known."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from memwatch.config import validation, zz_overrides
from memwatch.config.settings import (
    DEFAULT_PROFILE,
    PATHS,
    PROFILES,
    Config,
    keys,
)
from memwatch.errors import ConfigError
from memwatch.system import package_data, serialization
from memwatch.system.serialization import Complaint, Document

_SECTIONS = tuple(item.name for item in fields(Config) if is_dataclass(item.default_factory))


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration, and where each value in it is from that somebody has set."""

    config: Config
    origins: Mapping[str, str]  # "policy.kill" -> "m.yaml:3", "profile observe:4", "$MEMWATCH_POLICY__KILL", "--limit"


def load(
    path: Path | None = None,
    text: str | None = None,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """The file at `path` (or its `text`, `path` then only names it) upon its profile, overridden by the variables of
    `environ` and those by the flags that are not None.

    ConfigError names file and line (or variable, or flag), the key, its value, and the fix; its `others` what else
    is wrong.
    """
    return settle(path, text, flags, environ).config


def settle(
    path: Path | None = None,
    text: str | None = None,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """As `load`, with the origins."""
    environment, errors = zz_overrides.variables(environ or {})
    layers = [_file(path, text), environment, zz_overrides.flags(flags or {})]
    layers = _with_one_target([_profile(layers), *layers])
    data = _with_home(_merged(layers))
    config, complaints = serialization.conform(data, Config)
    assert config is not None  # noqa: S101 - each key has a default
    complaints += validation.alone(config)
    if not complaints and not errors:
        complaints += validation.together(config)
    errors += _placed(complaints, layers, data)
    if errors:
        errors[0].others = tuple(errors[1:])
        raise errors[0]
    known = dict(keys(config))
    told = ((layer, key) for layer in layers for key in (*layer.lines, *layer.names) if key in known)
    return Settings(config, {key: layer.where(key) for layer, key in told})


# --- layers, the lowest first ---------------------------------------------------------------------------------------


def _file(path: Path | None, text: str | None) -> Document:
    if path is None and not text:
        return Document("", {})
    name = str(path) if path is not None else "configuration"
    document = serialization.read_yaml(_read(path) if text is None and path is not None else text or "", name)
    if document.data is None:
        return replace(document, data={})
    if not isinstance(document.data, dict):
        raise ConfigError(f"{name}:1: it holds no keys", "begin from configs/memwatch.yaml")
    sections = {key: value for key, value in document.data.items() if value is not None or key not in _SECTIONS}
    return replace(document, data=sections)  # `log:`, no more


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(serialization.MAX_YAML_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", "name a file that can be read with --config") from error


def _profile(layers: Sequence[Document]) -> Document:
    """The one that the highest of the layers names. The default one sets nothing."""
    name = next((layer.data["profile"] for layer in reversed(layers) if "profile" in layer.data), DEFAULT_PROFILE)
    if name == DEFAULT_PROFILE or name not in PROFILES:  # of one that is unknown the check of types complains
        return Document("", {})
    return replace(_file(package_data.profile(name), None), source=f"profile {name}")


# --- one upon the other ---------------------------------------------------------------------------------------------


def _with_one_target(layers: Sequence[Document]) -> list[Document]:
    """A trainer that is named higher up replaces any that is named below, however that is named."""
    naming = [i for i, layer in enumerate(layers) if _names_target(layer)]
    return [_without_target(layer) if naming and i < naming[-1] else layer for i, layer in enumerate(layers)]


def _names_target(layer: Document) -> bool:
    target = layer.data.get("target")
    return isinstance(target, dict) and any(value is not None for value in target.values())


def _without_target(layer: Document) -> Document:
    data = {key: value for key, value in layer.data.items() if key != "target"}
    return replace(layer, data=data, lines=_elsewhere(layer.lines), names=_elsewhere(layer.names))


def _elsewhere(places: Mapping[str, Any]) -> dict[str, Any]:
    return {path: place for path, place in places.items() if path.partition(".")[0] != "target"}


def _merged(layers: Sequence[Document]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for layer in layers:
        _lay(data, layer.data)
    return data


def _lay(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    """Key by key; what should be a section below and is none stays, to be complained of."""
    for key, value in above.items():
        if not isinstance(value, dict):
            below[key] = value
        elif isinstance(below.setdefault(key, {}), dict):
            _lay(below[key], value)


def _with_home(data: dict[str, Any]) -> dict[str, Any]:
    """`~` at the start of a path is the user's home folder; one of an unknown user stays as it is written."""
    for path in PATHS:
        *sections, key = path.split(".")
        section = serialization.at(data, ".".join(sections))
        if isinstance(section, dict) and key in section:
            value = section[key]
            section[key] = [_home(item) for item in value] if isinstance(value, list) else _home(value)
    return data


def _home(value: object) -> object:
    home = os.path.expanduser  # Path's own raises for an unknown user
    return home(value) if isinstance(value, str) else value


# --- whose value ----------------------------------------------------------------------------------------------------


def _placed(complaints: Sequence[Complaint], layers: Sequence[Document], data: object) -> list[ConfigError]:
    """Complaints as errors, in the order in which a reader meets the values."""
    found = [_error(complaint, layers, data) for complaint in complaints]
    return [error for _, error in sorted(found, key=lambda one: one[0])]


def _error(complaint: Complaint, layers: Sequence[Document], data: object) -> tuple[tuple[int, int], ConfigError]:
    """Its place, and the error. Of values that are wrong together the highest is blamed: it was set upon the others."""
    path = max((complaint.path, *complaint.others), key=lambda path: _height(path, layers))
    height = _height(path, layers)
    layer = layers[height] if height >= 0 else Document("", {})
    value = complaint.value if path == complaint.path else serialization.at(data, path)
    elsewhere = [
        f"{other} is from {layers[level].where(other)}"
        for other in (complaint.path, *complaint.others)
        if 0 <= (level := _height(other, layers)) != height
    ]
    hint = "; ".join(filter(None, (complaint.hint, *elsewhere)))
    return (height, layer.line(path)), serialization.complaint(layer, path, complaint.problem, value, hint)


def _height(path: str, layers: Sequence[Document]) -> int:
    """Which layer a value is from, -1: it is a default."""
    for way in serialization.ways_up(path):
        for height in reversed(range(len(layers))):
            if layers[height].tells(way):
                return height
    return -1
