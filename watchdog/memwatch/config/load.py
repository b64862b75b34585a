"""Defaults, profile, file, environment and flags to one Config: what lies higher wins, and its origin is known.

Flags, and variables of the environment, as layers over a configuration file.

MEMWATCH_LISTEN=none                    listen
MEMWATCH_POLICY__CONFIDENCE=0.95        policy.confidence
MEMWATCH_SIGNALS__WANTED='[SIGTERM]'    what is neither text nor a number is written as in YAML
MEMWATCH_PORT_9877_TCP_ADDR=10.0.0.1    none of ours: Kubernetes tells of a Service called memwatch
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from memwatch.config import validation
from memwatch.config.settings import DEFAULT_PROFILE, FLAGS, PATH_KEYS, PROFILES, RANGES, Config, iter_values, key_types
from memwatch.errors import ConfigError
from memwatch.system import json_and_yaml, package_data
from memwatch.system.json_and_yaml import ValueProblem, YamlDocument

PREFIX, BETWEEN = "MEMWATCH_", "__"


def flags_layer(given: Mapping[str, object]) -> YamlDocument:
    """Those that are None, or set no key, count for nothing."""
    values = {FLAGS[name]: value for name, value in given.items() if name in FLAGS and value is not None}
    names = {FLAGS[name]: f"--{name.replace('_', '-')}" for name in given if FLAGS.get(name) in values}
    typed = {path: _number(value) if path in RANGES else value for path, value in values.items()}
    return YamlDocument("", _tree(typed), names=names)


def environment_layer(environ: Mapping[str, str]) -> tuple[YamlDocument, list[ConfigError]]:
    """Those that set a key, and what is wrong with others that were meant to. An empty one counts as none."""
    given = {name: text for name, text in environ.items() if name.startswith(PREFIX) and text}
    if not given:
        return YamlDocument("", {}), []
    types = key_types()
    paths = {variable_name(path): path for path in types}
    values: dict[str, object] = {}
    errors = []
    for name, text in given.items():
        try:
            if name in paths:
                values[paths[name]] = _typed(text, types[paths[name]], f"${name}")
            else:
                _refuse_unknown(name, list(paths))
        except ConfigError as error:
            errors.append(error)
    return YamlDocument("", _tree(values), names={path: f"${variable_name(path)}" for path in values}), errors


def variable_name(path: str) -> str:
    """`policy.kill` -> `MEMWATCH_POLICY__KILL`."""
    return PREFIX + path.replace(".", BETWEEN).upper()


def _refuse_unknown(name: str, known: list[str]) -> None:
    """ConfigError for what was meant for memwatch; others may have variables that begin with its name."""
    keys = [other for other in known if other.startswith(f"{name}{BETWEEN}")]
    if keys:
        raise ConfigError(f"${name}: a section is no value", f"name a key of it, as {keys[0]}")
    word = name.removeprefix(PREFIX)
    if BETWEEN in word:
        close = json_and_yaml.closest(word, (other.removeprefix(PREFIX) for other in known))
        fix = f"did you mean {PREFIX}{close}?" if close else "the keys are those of a configuration file"
        raise ConfigError(f"${name}: there is no such key", fix)


def _typed(text: str, type_: object, name: str) -> object:
    """What the text stands for, where a key has this type."""
    options = get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
    if str in options:
        return text
    number = _number(text) if {int, float} & set(options) else text
    return json_and_yaml.load_yaml(text, name) if isinstance(number, str) else number


def _number(value: object) -> object:
    """A number that comes as text; what is none is left for the check of types to refuse."""
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
    return value


def _tree(values: Mapping[str, object]) -> dict[str, Any]:
    """`policy.kill` to a key in a section."""
    data: dict[str, Any] = {}
    for path, value in values.items():
        *sections, key = path.split(".")
        section = data
        for name in sections:
            section = section.setdefault(name, {})
        section[key] = value
    return data


_SECTIONS = tuple(item.name for item in fields(Config) if is_dataclass(item.default_factory))


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration, and where each value in it is from that somebody has set."""

    config: Config
    origins: Mapping[str, str]  # "policy.kill" -> "m.yaml:3", "profile observe:4", "$MEMWATCH_POLICY__KILL", "--limit"


def load_config(
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
    return load_with_origins(path, text, flags, environ).config


def load_with_origins(
    path: Path | None = None,
    text: str | None = None,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> LoadedConfig:
    """As `load`, with the origins."""
    environment, errors = environment_layer(environ or {})
    layers = [_file(path, text), environment, flags_layer(flags or {})]
    layers = _with_one_target([_profile(layers), *layers])
    data = _with_home(_merged(layers))
    config, complaints = json_and_yaml.convert_with_problems(data, Config)
    assert config is not None  # noqa: S101 - each key has a default
    complaints += validation.check_values(config)
    if not complaints and not errors:
        complaints += validation.check_combinations(config)
    errors += _placed(complaints, layers, data)
    if errors:
        errors[0].others = tuple(errors[1:])
        raise errors[0]
    known = dict(iter_values(config))
    told = ((layer, key) for layer in layers for key in (*layer.lines, *layer.names) if key in known)
    return LoadedConfig(config, {key: layer.location(key) for layer, key in told})


# --- layers, the lowest first ---------------------------------------------------------------------------------------


def _file(path: Path | None, text: str | None) -> YamlDocument:
    if path is None and not text:
        return YamlDocument("", {})
    name = str(path) if path is not None else "configuration"
    document = json_and_yaml.read_yaml(_read(path) if text is None and path is not None else text or "", name)
    if document.data is None:
        return replace(document, data={})
    if not isinstance(document.data, dict):
        raise ConfigError(f"{name}:1: it holds no keys", "begin from configs/memwatch.yaml")
    sections = {key: value for key, value in document.data.items() if value is not None or key not in _SECTIONS}
    return replace(document, data=sections)  # `log:`, no more


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(json_and_yaml.MAX_YAML_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", "name a file that can be read with --config") from error


def _profile(layers: Sequence[YamlDocument]) -> YamlDocument:
    """The one that the highest of the layers names. The default one sets nothing."""
    name = next((layer.data["profile"] for layer in reversed(layers) if "profile" in layer.data), DEFAULT_PROFILE)
    if name == DEFAULT_PROFILE or name not in PROFILES:  # of one that is unknown the check of types complains
        return YamlDocument("", {})
    return replace(_file(package_data.profile_file(name), None), source=f"profile {name}")


# --- one upon the other ---------------------------------------------------------------------------------------------


def _with_one_target(layers: Sequence[YamlDocument]) -> list[YamlDocument]:
    """A trainer that is named higher up replaces any that is named below, however that is named."""
    naming = [i for i, layer in enumerate(layers) if _names_target(layer)]
    return [_without_target(layer) if naming and i < naming[-1] else layer for i, layer in enumerate(layers)]


def _names_target(layer: YamlDocument) -> bool:
    target = layer.data.get("target")
    return isinstance(target, dict) and any(value is not None for value in target.values())


def _without_target(layer: YamlDocument) -> YamlDocument:
    data = {key: value for key, value in layer.data.items() if key != "target"}
    return replace(layer, data=data, lines=_elsewhere(layer.lines), names=_elsewhere(layer.names))


def _elsewhere(places: Mapping[str, Any]) -> dict[str, Any]:
    return {path: place for path, place in places.items() if path.partition(".")[0] != "target"}


def _merged(layers: Sequence[YamlDocument]) -> dict[str, Any]:
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
    for path in PATH_KEYS:
        *sections, key = path.split(".")
        section = json_and_yaml.value_at(data, ".".join(sections))
        if isinstance(section, dict) and key in section:
            value = section[key]
            section[key] = [_home(item) for item in value] if isinstance(value, list) else _home(value)
    return data


def _home(value: object) -> object:
    home = os.path.expanduser  # Path's own raises for an unknown user
    return home(value) if isinstance(value, str) else value


# --- whose value ----------------------------------------------------------------------------------------------------


def _placed(complaints: Sequence[ValueProblem], layers: Sequence[YamlDocument], data: object) -> list[ConfigError]:
    """Complaints as errors, in the order in which a reader meets the values."""
    found = [_error(complaint, layers, data) for complaint in complaints]
    return [error for _, error in sorted(found, key=lambda one: one[0])]


def _error(
    complaint: ValueProblem, layers: Sequence[YamlDocument], data: object
) -> tuple[tuple[int, int], ConfigError]:
    """Its place, and the error. Of values that are wrong together the highest is blamed: it was set upon the others."""
    path = max((complaint.path, *complaint.related_paths), key=lambda path: _height(path, layers))
    height = _height(path, layers)
    layer = layers[height] if height >= 0 else YamlDocument("", {})
    value = complaint.value if path == complaint.path else json_and_yaml.value_at(data, path)
    elsewhere = [
        f"{other} is from {layers[level].location(other)}"
        for other in (complaint.path, *complaint.related_paths)
        if 0 <= (level := _height(other, layers)) != height
    ]
    hint = "; ".join(filter(None, (complaint.hint, *elsewhere)))
    return (height, layer.line(path)), json_and_yaml.config_error(layer, path, complaint.problem, value, hint)


def _height(path: str, layers: Sequence[YamlDocument]) -> int:
    """Which layer a value is from, -1: it is a default."""
    for way in json_and_yaml.path_and_parents(path):
        for height in reversed(range(len(layers))):
            if layers[height].has_key(way):
                return height
    return -1
