"""Flags, and variables of the environment, as layers over a configuration file.

MEMWATCH_LISTEN=none                    listen
MEMWATCH_POLICY__CONFIDENCE=0.95        policy.confidence
MEMWATCH_SIGNALS__WANTED='[SIGTERM]'    what is neither text nor a number is written as in YAML
MEMWATCH_PORT_9877_TCP_ADDR=10.0.0.1    none of ours: Kubernetes tells of a Service called memwatch
"""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from memwatch.config.settings import FLAGS, RANGES, types_of_keys
from memwatch.errors import ConfigError
from memwatch.system import serialization
from memwatch.system.serialization import Document

PREFIX, BETWEEN = "MEMWATCH_", "__"


def flags(given: Mapping[str, object]) -> Document:
    """Those that are None, or set no key, count for nothing."""
    values = {FLAGS[name]: value for name, value in given.items() if name in FLAGS and value is not None}
    names = {FLAGS[name]: f"--{name.replace('_', '-')}" for name in given if FLAGS.get(name) in values}
    typed = {path: _number(value) if path in RANGES else value for path, value in values.items()}
    return Document("", _tree(typed), names=names)


def variables(environ: Mapping[str, str]) -> tuple[Document, list[ConfigError]]:
    """Those that set a key, and what is wrong with others that were meant to. An empty one counts as none."""
    given = {name: text for name, text in environ.items() if name.startswith(PREFIX) and text}
    if not given:
        return Document("", {}), []
    types = types_of_keys()
    paths = {variable(path): path for path in types}
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
    return Document("", _tree(values), names={path: f"${variable(path)}" for path in values}), errors


def variable(path: str) -> str:
    """`policy.kill` -> `MEMWATCH_POLICY__KILL`."""
    return PREFIX + path.replace(".", BETWEEN).upper()


def _refuse_unknown(name: str, known: list[str]) -> None:
    """ConfigError for what was meant for memwatch; others may have variables that begin with its name."""
    keys = [other for other in known if other.startswith(f"{name}{BETWEEN}")]
    if keys:
        raise ConfigError(f"${name}: a section is no value", f"name a key of it, as {keys[0]}")
    word = name.removeprefix(PREFIX)
    if BETWEEN in word:
        close = serialization.closest(word, (other.removeprefix(PREFIX) for other in known))
        fix = f"did you mean {PREFIX}{close}?" if close else "the keys are those of a configuration file"
        raise ConfigError(f"${name}: there is no such key", fix)


def _typed(text: str, type_: object, name: str) -> object:
    """What the text stands for, where a key has this type."""
    options = get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
    if str in options:
        return text
    number = _number(text) if {int, float} & set(options) else text
    return serialization.load_yaml(text, name) if isinstance(number, str) else number


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
