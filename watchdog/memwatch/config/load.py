"""Loads the configuration from its layers: defaults, profile, file, environment, flags. A later layer wins.

A variable of the environment sets one key:

MEMWATCH_LISTEN=none                    listen
MEMWATCH_POLICY__CONFIDENCE=0.95        policy.confidence
MEMWATCH_SIGNALS__WANTED='[SIGTERM]'    a value that is neither text nor a number is written as in YAML
MEMWATCH_PORT_9877_TCP_ADDR=10.0.0.1    is ignored: Kubernetes sets it for a Service called memwatch
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from memwatch.config import validation
from memwatch.config.settings import DEFAULT_PROFILE, FLAGS, PATH_KEYS, PROFILES, RANGES, Config, iter_values, key_types
from memwatch.errors import ConfigError
from memwatch.system import json_and_yaml, package_data
from memwatch.system.json_and_yaml import ValueProblem, YamlDocument

_PREFIX, _SEPARATOR = "MEMWATCH_", "__"  # of variables
_SECTIONS = {item.name for item in fields(Config) if is_dataclass(item.default_factory)}


def load_config(
    path: Path | None = None,
    text: str | None = None,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Load the file at `path`, or its `text`, which `path` then only names; flags that are None are ignored.

    The ConfigError names the place (file and line, variable or flag), the key, its value and the fix; its `others`
    are all other errors.
    """
    return load_with_origins(path, text, flags, environ)[0]


def load_with_origins(
    path: Path | None = None,
    text: str | None = None,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[Config, dict[str, str]]:
    """As `load_config`; also return the origin of each value that is set, by its key.

    An origin is `m.yaml:3`, `profile observe:4`, `$MEMWATCH_POLICY__KILL` or `--limit`.
    """
    environment, errors = _environment_layer(environ or {})
    layers = [_file_layer(path, text), environment, _flags_layer(flags or {})]
    layers = _with_one_target([_profile_layer(layers), *layers])
    data: dict[str, Any] = {}
    for layer in layers:
        _merge(data, layer.data)
    _expand_home(data)
    config, problems = json_and_yaml.convert_with_problems(data, Config)
    assert config is not None  # noqa: S101 - each key has a default
    problems += validation.check_values(config)
    if not problems and not errors:
        problems += validation.check_combinations(config)
    errors += _located_errors(problems, layers, data)
    if errors:
        errors[0].others = tuple(errors[1:])
        raise errors[0]
    keys = {key for key, _ in iter_values(config)}
    origins = {key: layer.location(key) for layer in layers for key in (*layer.lines, *layer.names) if key in keys}
    return config, origins


# --- the layers -----------------------------------------------------------------------------------------------------


def _profile_layer(layers: Sequence[YamlDocument]) -> YamlDocument:
    """The profile that the last layer with one names. The default profile sets nothing."""
    name = next((layer.data["profile"] for layer in reversed(layers) if "profile" in layer.data), DEFAULT_PROFILE)
    if name == DEFAULT_PROFILE or name not in PROFILES:  # the check of types refuses an unknown one
        return YamlDocument("", {})
    return replace(_file_layer(package_data.profile_file(name), None), source=f"profile {name}")


def _file_layer(path: Path | None, text: str | None) -> YamlDocument:
    if path is None and not text:
        return YamlDocument("", {})
    name = str(path) if path is not None else "configuration"
    document = json_and_yaml.read_yaml(_read(path) if text is None and path is not None else text or "", name)
    if document.data is None:
        return replace(document, data={})
    if not isinstance(document.data, dict):
        raise ConfigError(f"{name}:1: it holds no keys", "begin from configs/memwatch.yaml")
    # `log:` without a key below it is an empty section, not a null
    data = {key: value for key, value in document.data.items() if value is not None or key not in _SECTIONS}
    return replace(document, data=data)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(json_and_yaml.MAX_YAML_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", "name a file that can be read with --config") from error


def _environment_layer(environ: Mapping[str, str]) -> tuple[YamlDocument, list[ConfigError]]:
    """The variables that set a key, and an error for each that was meant to. An empty variable counts as not set."""
    given = {name: text for name, text in environ.items() if name.startswith(_PREFIX) and text}
    if not given:
        return YamlDocument("", {}), []
    types = key_types()
    paths = {variable_name(path): path for path in types}
    values: dict[str, object] = {}
    errors = []
    for name, text in given.items():
        try:
            if name in paths:
                values[paths[name]] = _parse_variable(text, types[paths[name]], f"${name}")
            else:
                _refuse_misspelt(name, paths)
        except ConfigError as error:
            errors.append(error)
    return YamlDocument("", _nested(values), names={path: f"${variable_name(path)}" for path in values}), errors


def variable_name(path: str) -> str:
    """`policy.kill` -> `MEMWATCH_POLICY__KILL`."""
    return _PREFIX + path.replace(".", _SEPARATOR).upper()


def _parse_variable(text: str, type_: object, name: str) -> object:
    options = get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
    if str in options:
        return text
    number = _parse_number(text) if {int, float} & set(options) else text
    return json_and_yaml.load_yaml(text, name) if isinstance(number, str) else number


def _refuse_misspelt(name: str, known: Iterable[str]) -> None:
    """ConfigError for a variable that was meant for memwatch; other programs' may begin with MEMWATCH_ too."""
    keys = [other for other in known if other.startswith(f"{name}{_SEPARATOR}")]
    if keys:
        raise ConfigError(f"${name}: a section has no value", f"name a key of it, as {keys[0]}")
    word = name.removeprefix(_PREFIX)
    if _SEPARATOR in word:
        close = json_and_yaml.closest(word, (other.removeprefix(_PREFIX) for other in known))
        fix = f"did you mean {_PREFIX}{close}?" if close else "the keys are those of a configuration file"
        raise ConfigError(f"${name}: there is no such key", fix)


def _flags_layer(given: Mapping[str, object]) -> YamlDocument:
    """The flags that set a key and are not None."""
    values = {FLAGS[name]: value for name, value in given.items() if name in FLAGS and value is not None}
    names = {FLAGS[name]: f"--{name.replace('_', '-')}" for name in given if FLAGS.get(name) in values}
    typed = {path: _parse_number(value) if path in RANGES else value for path, value in values.items()}
    return YamlDocument("", _nested(typed), names=names)


def _parse_number(value: object) -> object:
    """The number that a text stands for; any other value stays as it is, for the check of types to refuse."""
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
    return value


def _nested(values: Mapping[str, object]) -> dict[str, Any]:
    """`{"policy.kill": True}` -> `{"policy": {"kill": True}}`."""
    data: dict[str, Any] = {}
    for path, value in values.items():
        *sections, key = path.split(".")
        section = data
        for name in sections:
            section = section.setdefault(name, {})
        section[key] = value
    return data


# --- merging --------------------------------------------------------------------------------------------------------


def _with_one_target(layers: Sequence[YamlDocument]) -> list[YamlDocument]:
    """Remove the target from all layers below the last one that names a trainer, in whatever way."""
    naming = [i for i, layer in enumerate(layers) if _names_target(layer)]
    return [_without_target(layer) if naming and i < naming[-1] else layer for i, layer in enumerate(layers)]


def _names_target(layer: YamlDocument) -> bool:
    target = layer.data.get("target")
    return isinstance(target, dict) and any(value is not None for value in target.values())


def _without_target(layer: YamlDocument) -> YamlDocument:
    def others(values: Mapping[str, Any]) -> dict[str, Any]:
        return {path: value for path, value in values.items() if path.partition(".")[0] != "target"}

    return replace(layer, data=others(layer.data), lines=others(layer.lines), names=others(layer.names))


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    """Set the values of `above` in `below`. A value below where a section should be stays, and is refused later."""
    for key, value in above.items():
        if not isinstance(value, dict):
            below[key] = value
        elif isinstance(below.setdefault(key, {}), dict):
            _merge(below[key], value)


def _expand_home(data: dict[str, Any]) -> None:
    """Replace `~` at the start of paths by the user's home folder; that of an unknown user stays as it is."""
    for path in PATH_KEYS:
        parent, _, key = path.rpartition(".")
        section = json_and_yaml.value_at(data, parent)
        if isinstance(section, dict) and key in section:
            value = section[key]
            section[key] = [_with_home(item) for item in value] if isinstance(value, list) else _with_home(value)


def _with_home(value: object) -> object:
    return os.path.expanduser(value) if isinstance(value, str) else value  # noqa: PTH111 - Path's raises for the unknown


# --- errors ---------------------------------------------------------------------------------------------------------


def _located_errors(
    problems: Sequence[ValueProblem], layers: Sequence[YamlDocument], data: object
) -> list[ConfigError]:
    """Turn problems into errors, in the order in which a reader comes upon the values."""
    located = [_located_error(problem, layers, data) for problem in problems]
    return [error for _, error in sorted(located, key=lambda one: one[0])]


def _located_error(
    problem: ValueProblem, layers: Sequence[YamlDocument], data: object
) -> tuple[tuple[int, int], ConfigError]:
    """Return its place, and the error. Of values that do not fit together the one of the last layer is to blame."""
    paths = (problem.path, *problem.related_paths)
    path = max(paths, key=lambda path: _layer_of(path, layers))
    number = _layer_of(path, layers)
    layer = layers[number] if number >= 0 else YamlDocument("", {})
    value = problem.value if path == problem.path else json_and_yaml.value_at(data, path)
    elsewhere = [
        f"{other} is from {layers[origin].location(other)}"
        for other in paths
        if 0 <= (origin := _layer_of(other, layers)) != number
    ]
    hint = "; ".join(filter(None, (problem.hint, *elsewhere)))
    return (number, layer.line(path)), json_and_yaml.config_error(layer, path, problem.problem, value, hint)


def _layer_of(path: str, layers: Sequence[YamlDocument]) -> int:
    """The number of the layer that a value is from; -1 for a default."""
    for key in json_and_yaml.path_and_parents(path):
        for number in reversed(range(len(layers))):
            if layers[number].has_key(key):
                return number
    return -1
