"""Bytes and text from outside, and typed records inside: the one room that knows msgspec and yaml."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from memwatch.core.text_and_units import encodable, shown_json
from memwatch.errors import ConfigError

T = TypeVar("T")

MAX_YAML_BYTES = 1_000_000
MAX_JSON_NUMBER = 1e30  # of a number in JSON
_LONG_NUMBER = re.compile(rb"[0-9]{30}|[0-9.][eE]\+?[0-9]{2}")
_MAX_DEPTH = 32
_AT = re.compile(r" - at `\$\.?(.*)`$")
_BEHIND_SCHEME = re.compile(r"://.*", re.DOTALL)
_TYPE_HINTS = {
    "float": "write a number",
    "int": "write a whole number",
    "bool": "write true or false",
    "array": "write a list, as [a, b]",
    "object": "write keys and values below it",
    "str": "write a text, in quotes",
}
_TEXT = "tag:yaml.org,2002:str"
_COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_SCALARS = {f"tag:yaml.org,2002:{kind}": kind for kind in ("null", "bool", "int", "float", "str", "timestamp")}


class SerializationError(ValueError):
    """JSON that is not what was expected."""


# --- JSON ---------------------------------------------------------------------------------------------------------


def to_json(obj: object) -> bytes:
    """One line of JSON of records, mappings and scalars, NaN and infinity as null; SerializationError if impossible."""
    try:
        return msgspec.json.encode(obj, enc_hook=_plain)
    except UnicodeEncodeError:  # a lone surrogate: a byte of a log or a command line that was never UTF-8
        return msgspec.json.encode(_encodable(msgspec.to_builtins(obj, enc_hook=_plain)))
    except (TypeError, OverflowError, RecursionError, NotImplementedError) as error:
        raise SerializationError(f"cannot be written as JSON: {error}") from error


def to_shown_json(obj: object) -> str:
    """The same as text that may stand on a terminal: characters that cannot be shown are escaped."""
    return shown_json(to_json(obj).decode())


def from_json(data: bytes | str, type_: type[T]) -> T:
    """The record in `data`, without keys that `type_` lacks; SerializationError when it is another.

    Or a number so large that what is computed of it may be none.
    """
    try:
        _refuse_excess(data)
        return msgspec.json.decode(data, type=type_)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SerializationError(str(error)) from error


def _refuse_excess(data: bytes | str) -> None:
    """Seldom is there a number that must be looked at: one that is that long, or has such an exponent."""
    raw = data.encode() if isinstance(data, str) else data
    if _LONG_NUMBER.search(raw):
        json.loads(raw, parse_int=_bounded, parse_float=_bounded)


def _bounded(digits: str) -> None:
    if not -MAX_JSON_NUMBER <= float(digits) <= MAX_JSON_NUMBER:
        raise SerializationError(f"a number out of range: {digits[:40]}")


def from_data(data: object, type_: type[T]) -> T:
    """As `from_json`, of what JSON was read into."""
    try:
        return msgspec.convert(data, type=type_)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SerializationError(str(error)) from error


def json_schema(type_: type) -> dict[str, Any]:
    """As msgspec tells it: a reference to one of its `$defs`, of which each record is one."""
    return msgspec.json.schema(type_)


def _plain(obj: object) -> object:
    if isinstance(obj, Mapping):
        return dict(obj)
    return str(obj)


def _encodable(obj: object) -> object:
    if isinstance(obj, str):
        return encodable(obj)
    if isinstance(obj, dict):
        return {_encodable(key): _encodable(value) for key, value in obj.items()}
    if isinstance(obj, list):
        return [_encodable(value) for value in obj]
    return obj


# --- YAML ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """What a YAML file says, and on which line it says it."""

    source: str  # the file's name, for messages
    data: Any  # dict, list, str, int, float, bool or None
    lines: Mapping[str, int] = field(default_factory=dict)  # "policy.kill" or "a.b[0]" -> line, counted from 1
    names: Mapping[str, str] = field(default_factory=dict)  # "target.pid" -> "--pid": where it is no file's

    def has_key(self, path: str) -> bool:
        """There is such a key."""
        return path in self.lines or path in self.names

    def line(self, path: str) -> int:
        """Of a key, or of the nearest thing around it that the file has; 0: of none."""
        return next((self.lines[way] for way in path_and_parents(path) if way in self.lines), self.lines.get("", 0))

    def location(self, path: str) -> str:
        """`FILE:LINE` of a key, or of the nearest thing around it that the file has."""
        name = next((self.names[way] for way in path_and_parents(path) if way in self.names), "")
        line = self.line(path)
        return name or (f"{self.source}:{line}" if line else self.source)


def path_and_parents(path: str) -> Iterator[str]:
    """`a.b[0].c` -> itself, `a.b[0]`, `a.b`, `a`."""
    while path:
        yield path
        path = path[: max(path.rfind("."), path.rfind("["), 0)]


def load_yaml(text: str | bytes, source: str) -> Any:
    """What the YAML `text` says, as plain data; ConfigError, naming `source`, for anything unsafe or malformed."""
    return read_yaml(text, source).data


def read_yaml(text: str | bytes, source: str) -> YamlDocument:
    """As `load_yaml`, with the line of every key."""
    import yaml

    if len(text) > MAX_YAML_BYTES:
        raise ConfigError(
            f"{source}: {len(text)} bytes, more than the {MAX_YAML_BYTES} that are read", "split the file"
        )
    try:
        kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        _refuse_depth(source, yaml.parse(text, kind))
        loader = kind(text)
        try:
            return _Composer(source, loader).document(loader.get_single_node())
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"{source}{line}: not YAML: {problem}", "quote values with : # [ ] { } in them") from error
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise ConfigError(f"{source}: not YAML: {error}", "save the file as UTF-8 text") from error


def _refuse_depth(source: str, events: Iterable[Any]) -> None:
    """libyaml composes by recursion and crashes on a hundred thousand `[`: depth is counted before."""
    depth = 0
    for event in events:
        depth += hasattr(event, "implicit") and hasattr(event, "flow_style")
        depth -= type(event).__name__ in ("SequenceEndEvent", "MappingEndEvent")
        if depth > 2 * _MAX_DEPTH:
            raise ConfigError(f"{source}:{event.start_mark.line + 1}: not YAML: nested too deeply", "write it flatter")


def to_yaml(value: object) -> str:
    """Plain data in one line, which `load_yaml` reads as the same."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar(_TEXT, value, None if value.isprintable() else '"')

    Dumper.add_representer(str, text)
    Dumper.add_representer(tuple, Dumper.represent_list)
    dumped = yaml.dump([value], Dumper=Dumper, default_flow_style=True, allow_unicode=True, width=math.inf)
    return dumped.strip()[1:-1]


class _Composer:
    """Turns YAML nodes into plain data: no tags, no aliases, no duplicate keys, no deep nesting."""

    def __init__(self, source: str, loader: Any) -> None:
        self._source, self._loader = source, loader
        self._lines: dict[str, int] = {}
        self._seen: set[int] = set()

    def document(self, node: Any) -> YamlDocument:
        data = None if node is None else self._value(node, "", 0)
        return YamlDocument(self._source, data, self._lines)

    def _refuse(self, node: Any, problem: str, hint: str) -> ConfigError:
        return ConfigError(f"{self._source}:{node.start_mark.line + 1}: {problem}", hint)

    def _value(self, node: Any, path: str, depth: int) -> Any:
        self._lines.setdefault(path, node.start_mark.line + 1)
        if id(node) in self._seen:
            raise self._refuse(node, f"{path}: an alias (*name) is not accepted", "write the value out")
        self._seen.add(id(node))
        if depth > _MAX_DEPTH:
            raise self._refuse(node, f"nested deeper than {_MAX_DEPTH} levels", "flatten it")
        if node.id != "scalar" and node.tag not in _COLLECTIONS:
            raise self._refuse(node, f"{path}: the tag {node.tag} is not accepted", "write plain values")
        if node.id == "mapping":
            return self._mapping(node, path, depth)
        if node.id == "sequence":
            return [self._value(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: Any, path: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.id != "scalar":
                raise self._refuse(key_node, "a key must be a word", "quote it if it has [ ] { } in it")
            key = key_node.value
            inner = f"{path}.{key}" if path else key
            if key in found:
                first = self._lines[inner]
                raise self._refuse(key_node, f"{inner} is given twice, first in line {first}", "remove one of them")
            self._lines[inner] = key_node.start_mark.line + 1
            found[key] = self._value(value_node, inner, depth + 1)
        return found

    def _scalar(self, node: Any, path: str) -> Any:
        kind = _SCALARS.get(node.tag)
        if kind is None:
            raise self._refuse(node, f"{path}: the tag {node.tag} is not accepted", "write plain values")
        if kind in ("str", "timestamp") or ":" in node.value:  # YAML 1.1 reads 1:30 as 90
            return node.value
        try:
            return self._loader.construct_object(node)
        except ValueError as error:
            raise self._refuse(node, f"{path}: {error}", "quote it if it is text") from error


# --- plain data -> records ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ValueProblem:
    """What is wrong with a value, and how to mend it."""

    path: str  # of the key
    problem: str
    value: object = ...  # ...: it has none
    hint: str = ""
    related_paths: tuple[str, ...] = ()  # keys whose values are wrong together with this one


def convert(data: object, type_: type[T], document: YamlDocument | None = None) -> T:
    """`data` as the dataclass `type_`, strictly: unknown keys and wrong types are a ConfigError that says where.

    `document` gives the lines; without it only the path of the key is named.
    """
    made, complaints = convert_with_problems(data, type_)
    if made is None or complaints:
        first = complaints[0]
        raise config_error(document or YamlDocument("", data), first.path, first.problem, first.value, first.hint)
    return made


def convert_with_problems(data: object, type_: type[T]) -> tuple[T | None, list[ValueProblem]]:
    """`data` as the dataclass `type_`, without the keys that do not fit, and what is wrong with each of those.

    None where it would not be one even without them.
    """
    complaints = list(_unknown_keys(data, type_, ""))
    while True:
        try:
            return msgspec.convert(data, type=type_), complaints
        except msgspec.ValidationError as error:
            problem, path = _split(str(error))
            hint = _choices(type_, path) or _type_hint(problem.split(", got")[0])
            complaints.append(ValueProblem(path, problem, value_at(data, path), hint))
            rest = _without(data, path.partition("[")[0])
            if rest == data:
                return None, complaints
            data = rest


def _without(data: object, path: str) -> object:
    """The same without the key at `path`."""
    key, _, inner = path.partition(".")
    if not isinstance(data, Mapping) or key not in data:
        return data
    rest = {name: value for name, value in data.items() if name != key}
    return {**rest, key: _without(data[key], inner)} if inner else rest


def config_error(document: YamlDocument, path: str, problem: str, value: object = ..., hint: str = "") -> ConfigError:
    """A ConfigError that names `FILE:LINE`, the path of the key, its value, what is wrong and how to mend it."""
    if document.names.get(path, "").startswith("--"):
        return ConfigError(f"{document.names[path]} {value}: {problem}", hint)
    where = document.location(path)
    shown = "" if value is ... else f" is {_shown(value)}"
    start = f"{where}: " if where else ""
    return ConfigError(f"{start}{path or 'the whole'}{shown}: {problem}", hint)


def mask_url_rest(text: str) -> str:
    """Without what is behind ://, where an address may hold a password."""
    return _BEHIND_SCHEME.sub("://…", text) if "://" in text else "…"


def _shown(value: object) -> str:
    if isinstance(value, (bool, type(None))):
        return {True: "true", False: "false", None: "null"}[value]
    text = _BEHIND_SCHEME.sub("://…", repr(value))  # it may be an address, and hold a password
    return text if len(text) <= 60 else text[:57] + "..."


def _split(message: str) -> tuple[str, str]:
    """`Expected `float`, got `str` - at `$.policy.x`` -> (what is wrong, `policy.x`)."""
    found = _AT.search(message)
    problem = message[: found.start()] if found else message
    return problem[:1].lower() + problem[1:], found[1] if found else ""


def value_at(data: object, path: str) -> object:
    """What stands at `a.b[0]`; ... where nothing does."""
    for key in re.findall(r"[^.\[\]]+", path):
        if isinstance(data, Mapping) and key in data:
            data = data[key]
        elif isinstance(data, list) and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        else:
            return ...
    return data


def _unknown_keys(data: object, type_: object, path: str) -> Iterator[ValueProblem]:
    """msgspec ignores what a dataclass does not have; a misspelt key must not be ignored."""
    if is_dataclass(type_) and isinstance(type_, type) and isinstance(data, Mapping):
        hints = get_type_hints(type_)
        names = [f.name for f in fields(type_) if f.init]
        for key, value in data.items():
            inner = f"{path}.{key}" if path else str(key)
            if key not in names:
                yield ValueProblem(inner, "there is no such key", hint=_did_you_mean(str(key), names))
            else:
                yield from _unknown_keys(value, hints[key], inner)
    elif get_origin(type_) in (Union, UnionType):
        for option in get_args(type_):
            yield from _unknown_keys(data, option, path)
    elif get_origin(type_) in (list, tuple) and isinstance(data, list):
        for i, item in enumerate(data):
            yield from _unknown_keys(item, get_args(type_)[0], f"{path}[{i}]")
    elif get_origin(type_) is dict and isinstance(data, Mapping):
        for key, value in data.items():
            yield from _unknown_keys(value, get_args(type_)[1], f"{path}.{key}")


def _type_hint(expected: str) -> str:
    return next((hint for word, hint in _TYPE_HINTS.items() if word in expected), "")


def _choices(type_: object, path: str) -> str:
    """`write one of auto, true, false`, when the key takes only some words."""
    for name in path.split("."):
        if not isinstance(type_, type) or not is_dataclass(type_):
            return ""
        type_ = get_type_hints(type_).get(name)
    options = get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
    words = [word for option in options if get_origin(option) is Literal for word in get_args(option)]
    words += ["true", "false"] if words and bool in options else []
    return f"write one of {', '.join(words)}" if words else ""


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    known = list(known)
    close = closest(word, known)
    return f"did you mean {close}?" if close else f"the keys here are: {', '.join(known)}"


def closest(word: str, known: Iterable[str]) -> str:
    """Of what is known, what the word may have meant; empty when it is like none."""
    import difflib

    return next(iter(difflib.get_close_matches(word, known, n=1)), "")
