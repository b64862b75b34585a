"""Converts JSON and YAML into typed records and back: the only module that imports msgspec and yaml."""

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
MAX_JSON_NUMBER = 1e30  # a larger one may overflow in later arithmetic
_LONG_NUMBER = re.compile(rb"[0-9]{30}|[0-9.][eE]\+?[0-9]{2}")
_MAX_DEPTH = 32  # levels of lists and mappings in YAML
_AT = re.compile(r" - at `\$\.?(.*)`$")
_BEHIND_SCHEME = re.compile(r"://.*", re.DOTALL)
_TYPES = {  # of a value that does not fit: what it is not, and what to write
    "float": ("not a number", "write a number"),
    "int": ("not a whole number", "write a whole number"),
    "bool": ("neither true nor false", "write true or false"),
    "array": ("not a list", "write a list, as [a, b]"),
    "object": ("no keys and values", "write keys and values below it"),
    "str": ("not text", "write a text, in quotes"),
}
_TEXT = "tag:yaml.org,2002:str"
_COLLECTION_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq")}
_SCALAR_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "timestamp")}


class SerializationError(ValueError):
    """JSON is malformed or does not fit the expected type, or a value cannot be written as JSON."""


# --- JSON ---------------------------------------------------------------------------------------------------------


def to_json(obj: object) -> bytes:
    """Return records, mappings and scalars as one line of JSON, NaN and infinity as null; SerializationError."""
    try:
        return msgspec.json.encode(obj, enc_hook=_plain)
    except UnicodeEncodeError:  # a lone surrogate: a byte of a log or a command line that was never UTF-8
        return msgspec.json.encode(_encodable(msgspec.to_builtins(obj, enc_hook=_plain)))
    except (TypeError, OverflowError, RecursionError, NotImplementedError) as error:
        raise SerializationError(f"cannot be written as JSON: {error}") from error


def to_shown_json(obj: object) -> str:
    """Return `to_json` as text for a terminal: characters that cannot be shown are escaped."""
    return shown_json(to_json(obj).decode())


def from_json(data: bytes | str, type_: type[T]) -> T:
    """Return the record in `data`, without keys that `type_` lacks.

    SerializationError when it does not fit, or holds a number beyond MAX_JSON_NUMBER.
    """
    try:
        raw = data.encode() if isinstance(data, str) else data
        if _LONG_NUMBER.search(raw):  # it is rare that a number is long enough, or has such an exponent
            json.loads(raw, parse_int=_refuse_excess, parse_float=_refuse_excess)
        return msgspec.json.decode(data, type=type_)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SerializationError(str(error)) from error


def _refuse_excess(digits: str) -> None:
    if not -MAX_JSON_NUMBER <= float(digits) <= MAX_JSON_NUMBER:
        raise SerializationError(f"a number out of range: {digits[:40]}")


def from_data(data: object, type_: type[T]) -> T:
    """As `from_json`, for JSON that is parsed already."""
    try:
        return msgspec.convert(data, type=type_)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SerializationError(str(error)) from error


def to_msgpack(obj: object) -> bytes:
    """As `to_json`, in msgpack: half of its time, and infinity stays what it is."""
    try:
        return msgspec.msgpack.encode(obj, enc_hook=_plain)
    except UnicodeEncodeError:
        return msgspec.msgpack.encode(_encodable(msgspec.to_builtins(obj, enc_hook=_plain)))


def from_msgpack(data: bytes, type_: type[T]) -> T:
    """Return the record in `data`; SerializationError when it does not fit."""
    try:
        return msgspec.msgpack.decode(data, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SerializationError(str(error)) from error


def json_schema(type_: type) -> dict[str, Any]:
    """Return msgspec's schema: a reference to one of its `$defs`, which has one for each record."""
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
    """The data of a YAML file, and the line of each key."""

    source: str  # the file's name, for messages
    data: Any  # dict, list, str, int, float, bool or None
    lines: Mapping[str, int] = field(default_factory=dict)  # "policy.kill" or "a.b[0]" -> line, counted from 1
    names: Mapping[str, str] = field(default_factory=dict)  # "target.pid" -> "--pid": keys of no file

    def has_key(self, path: str) -> bool:
        return path in self.lines or path in self.names

    def line(self, path: str) -> int:
        """Return the line of a key, or of the nearest key around it; 0 when the file has neither."""
        return next((self.lines[key] for key in path_and_parents(path) if key in self.lines), self.lines.get("", 0))

    def location(self, path: str) -> str:
        """Return `FILE:LINE` of a key, or of the nearest key around it; for a key of no file its name."""
        name = next((self.names[key] for key in path_and_parents(path) if key in self.names), "")
        line = self.line(path)
        return name or (f"{self.source}:{line}" if line else self.source)


def path_and_parents(path: str) -> Iterator[str]:
    """`a.b[0].c` -> itself, `a.b[0]`, `a.b`, `a`."""
    while path:
        yield path
        path = path[: max(path.rfind("."), path.rfind("["), 0)]


def load_yaml(text: str | bytes, source: str) -> Any:
    """Return the YAML `text` as plain data; ConfigError, naming `source`, for anything unsafe or malformed."""
    return read_yaml(text, source).data


def read_yaml(text: str | bytes, source: str) -> YamlDocument:
    """As `load_yaml`, with the line of every key."""
    import yaml

    if len(text) > MAX_YAML_BYTES:
        raise ConfigError(
            f"{source}: {len(text)} bytes, more than the {MAX_YAML_BYTES} that are read", "split the file"
        )
    try:
        loader_type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        _refuse_depth(source, yaml.parse(text, loader_type))
        loader = loader_type(text)
        try:
            composer = _Composer(source, loader)
            node = loader.get_single_node()
            return YamlDocument(source, None if node is None else composer.value(node, ""), composer.lines)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"{source}{line}: not YAML: {problem}", "quote values with : # [ ] { } in them") from error
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise ConfigError(f"{source}: not YAML: {error}", "save the file as UTF-8 text") from error


def _refuse_depth(source: str, events: Iterable[Any]) -> None:
    """Refuse deep nesting before libyaml composes: it does so by recursion and crashes on a hundred thousand `[`."""
    import yaml

    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            problem = f"not YAML: nested deeper than {_MAX_DEPTH} levels"
            raise ConfigError(f"{source}:{event.start_mark.line + 1}: {problem}", "flatten it")


def to_yaml(value: object) -> str:
    """Return plain data as one line, from which `load_yaml` reads the same data."""
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
    """Turns YAML nodes into plain data: no tags, no aliases, no duplicate keys."""

    def __init__(self, source: str, loader: Any) -> None:
        self._source, self._loader = source, loader
        self.lines: dict[str, int] = {}
        self._seen: set[int] = set()

    def _refuse(self, node: Any, problem: str, hint: str) -> ConfigError:
        return ConfigError(f"{self._source}:{node.start_mark.line + 1}: {problem}", hint)

    def value(self, node: Any, path: str) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if id(node) in self._seen:
            raise self._refuse(node, f"{path}: an alias (*name) is not accepted", "write the value out")
        self._seen.add(id(node))
        if node.tag not in (_SCALAR_TAGS if node.id == "scalar" else _COLLECTION_TAGS):
            raise self._refuse(node, f"{path}: the tag {node.tag} is not accepted", "write plain values")
        if node.id == "mapping":
            return self._mapping(node, path)
        if node.id == "sequence":
            return [self.value(item, f"{path}[{i}]") for i, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: Any, path: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.id != "scalar":
                raise self._refuse(key_node, "a key must be a word", "quote it if it has [ ] { } in it")
            key = key_node.value
            inner = f"{path}.{key}" if path else key
            if key in found:
                first = self.lines[inner]
                raise self._refuse(key_node, f"{inner} is given twice, first in line {first}", "remove one of them")
            self.lines[inner] = key_node.start_mark.line + 1
            found[key] = self.value(value_node, inner)
        return found

    def _scalar(self, node: Any, path: str) -> Any:
        if node.tag.endswith((":str", ":timestamp")) or ":" in node.value:  # YAML 1.1 reads 1:30 as 90
            return node.value
        try:
            return self._loader.construct_object(node)
        except ValueError as error:
            raise self._refuse(node, f"{path}: {error}", "quote it if it is text") from error


# --- plain data -> records ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ValueProblem:
    """What is wrong with the value of a key, and how to mend it."""

    path: str
    problem: str
    value: object = ...  # ...: there is none
    hint: str = ""
    related_paths: tuple[str, ...] = ()  # keys whose values are wrong together with this one


def convert(data: object, type_: type[T], document: YamlDocument | None = None) -> T:
    """Return `data` as the dataclass `type_`; ConfigError names the first unknown key or wrong type.

    The error has the line when `document` is given, else only the path of the key.
    """
    made, problems = convert_with_problems(data, type_)
    if made is None or problems:
        first = problems[0]
        raise config_error(document or YamlDocument("", data), first.path, first.problem, first.value, first.hint)
    return made


def convert_with_problems(data: object, type_: type[T]) -> tuple[T | None, list[ValueProblem]]:
    """Return `data` as the dataclass `type_` without the keys that do not fit, and what is wrong with each of them.

    The dataclass is None when `data` does not fit even without them.
    """
    problems = list(_unknown_keys(data, type_, ""))
    while True:
        try:
            return msgspec.convert(data, type=type_), problems
        except msgspec.ValidationError as error:
            problem, path = _split_message(str(error))
            expected = problem.split(", got")[0]
            what, type_hint = next((both for word, both in _TYPES.items() if word in expected), (problem, ""))
            what = "not one of the words for it" if problem.startswith("invalid enum value") else what
            problems.append(ValueProblem(path, what, value_at(data, path), _choices(type_, path) or type_hint))
            rest = _without(data, path.partition("[")[0])
            if rest == data:
                return None, problems
            data = rest


def _without(data: object, path: str) -> object:
    """Return a copy of `data` without the key at `path`."""
    key, _, inner = path.partition(".")
    if not isinstance(data, Mapping) or key not in data:
        return data
    rest = {name: value for name, value in data.items() if name != key}
    return {**rest, key: _without(data[key], inner)} if inner else rest


def config_error(document: YamlDocument, path: str, problem: str, value: object = ..., hint: str = "") -> ConfigError:
    """Return an error that names `FILE:LINE`, the path of the key, its value, what is wrong and how to mend it."""
    if document.names.get(path, "").startswith("--"):
        return ConfigError(f"{document.names[path]} {value}: {problem}", hint)
    where = document.location(path)
    shown = "" if value is ... else f" is {_shown(value)}"
    start = f"{where}: " if where else ""
    return ConfigError(f"{start}{path or 'the whole'}{shown}: {problem}", hint)


def mask_url_rest(text: str) -> str:
    """Return the text without what follows ://, where an address may hold a password."""
    return _BEHIND_SCHEME.sub("://…", text) if "://" in text else "…"


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = _BEHIND_SCHEME.sub("://…", repr(value))  # it may be an address, and hold a password
    return text if len(text) <= 60 else text[:57] + "..."


# Expected `float`, got `str` - at `$.policy.x`
def _split_message(message: str) -> tuple[str, str]:
    """Split msgspec's message into the problem and the path of the key."""
    found = _AT.search(message)
    problem = message[: found.start()] if found else message
    return problem[:1].lower() + problem[1:], found[1] if found else ""


def value_at(data: object, path: str) -> object:
    """Return the value at a path as `a.b[0]`; `...` where there is none."""
    for key in re.findall(r"[^.\[\]]+", path):
        if isinstance(data, Mapping) and key in data:
            data = data[key]
        elif isinstance(data, list) and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        else:
            return ...
    return data


def _unknown_keys(data: object, type_: object, path: str) -> Iterator[ValueProblem]:
    """Yield the keys that a dataclass does not have, which msgspec ignores: one may be misspelt."""
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


def _choices(type_: object, path: str) -> str:
    """Return `write one of auto, true, false` when the key takes certain words only, else an empty text."""
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
    """Return the known word that `word` may have meant; empty when it resembles none."""
    import difflib

    return next(iter(difflib.get_close_matches(word, known, n=1)), "")
