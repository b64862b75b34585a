"""Presets: rules that describe a program's log lines, parsed from configs/markers/*.yaml or a user's own YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from memwatch.errors import ConfigError

PATTERN_BYTES = 4096  # of a segment, its beginning, that patterns are applied to
RECORD_BYTES = 16_384  # as above, of a record in JSON: DETR's have 4 to 10 KB, with the epoch at their end (seen)
_AT = ("start", "end", "progress")


@dataclass(frozen=True, slots=True)
class RuleKind:
    """The keys that a rule of one kind may have beside those of all rules, and the groups that it needs."""

    keys: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()


RULE_KINDS: Mapping[str, RuleKind] = {
    "generation": RuleKind(frozenset({"at"}), frozenset({"index"})),  # or `done`: how many are done, with a fraction
    "total": RuleKind(frozenset({"unit"}), frozenset({"total"})),
    "phase": RuleKind(frozenset({"at", "phase"})),
    "gauge": RuleKind(frozenset({"name"}), frozenset({"value"})),
    "checkpoint_writing": RuleKind(),
    "checkpoint_saved": RuleKind(),
    "oom": RuleKind(frozenset({"name"})),
    "skip_next": RuleKind(),  # the line after this one repeats earlier values
}
_RULE_KEYS = frozenset({"kind", "pattern", "contains", "unless"})
_GROUPS = frozenset({"index", "done", "total", "last", "unit", "phase", "value", "capacity", "name"})
_PRESET_KEYS = frozenset({"name", "program", "unit", "rules"})


@dataclass(frozen=True, slots=True)
class MarkerRule:
    """A rule for one kind of line; `contains`: lower-case words of which the line must have one, with any digits."""

    kind: str
    pattern: re.Pattern[str]
    unless: re.Pattern[str] | None = None
    contains: tuple[str, ...] = ()
    at: str = "start"
    unit: str = ""
    name: str = ""  # of the phase, the gauge or the failure, when no group has it
    location: str = ""  # in its file: `ours.yaml: rules[2]`


@dataclass(frozen=True, slots=True)
class Preset:
    """The rules for one program's log; without a rule for generations it applies to all logs."""

    name: str
    unit: str
    rules: tuple[MarkerRule, ...]
    user: bool = False  # written by the user, so preferred to all others
    applies_to_all_logs: bool = field(init=False)

    def __post_init__(self) -> None:
        has_clock = any(rule.kind == "generation" for rule in self.rules)
        object.__setattr__(self, "applies_to_all_logs", not has_clock)

    @classmethod
    def from_mapping(cls, mapping: object, source: str, user: bool = False) -> Preset:
        """Make a preset from parsed YAML; ConfigError names the key, its value and the fix."""
        document = _mapping(mapping, source)
        _refuse_unknown_keys(document, _PRESET_KEYS, source)
        unit = _text(document, "unit", source, "generation").lower()
        rules = document.get("rules")
        if not isinstance(rules, list) or not rules:
            raise ConfigError(f"{source}: rules is {rules!r}", "write a list of rules, each with a kind and a pattern")
        made = tuple(_rule(rule, unit, f"{source}: rules[{i}]") for i, rule in enumerate(rules))
        return cls(_text(document, "name", source, source), unit, made, user)


def load_presets(documents: Iterable[tuple[str, object]], user: bool = False) -> tuple[Preset, ...]:
    """Make presets from (source, parsed YAML) pairs; one without a `name` has its source as name."""
    return tuple(Preset.from_mapping(mapping, source, user) for source, mapping in documents)


def _rule(value: object, unit: str, where: str) -> MarkerRule:
    mapping = _mapping(value, where)
    kind_name = _text(mapping, "kind", where)
    kind = RULE_KINDS.get(kind_name)
    if kind is None:
        raise ConfigError(f"{where}: kind is {kind_name!r}", f"use one of {', '.join(RULE_KINDS)}")
    _refuse_unknown_keys(mapping, _RULE_KEYS | kind.keys, where)
    pattern = _pattern(_text(mapping, "pattern", where), f"{where}: pattern")
    _check_groups(pattern, kind_name, kind.groups, where)
    unless = _text(mapping, "unless", where, "")
    at = _text(mapping, "at", where, "start")
    if at not in _AT:
        raise ConfigError(f"{where}: at is {at!r}", f"use one of {', '.join(_AT)}")
    name = _text(mapping, "phase" if kind_name == "phase" else "name", where, "")
    if kind_name == "phase" and not name and "phase" not in pattern.groupindex:
        raise ConfigError(f"{where}: the phase has no name", "add `phase: evaluate`, or a group (?P<phase>...)")
    stop = _pattern(unless, f"{where}: unless") if unless else None
    words, unit = _words(mapping.get("contains"), where), _text(mapping, "unit", where, unit).lower()
    return MarkerRule(kind_name, pattern, stop, words, at, unit, name, where)


def _pattern(text: str, where: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{where} is {text!r}: {error}", "write a regular expression of Python's re") from error


def _check_groups(pattern: re.Pattern[str], kind: str, needed: frozenset[str], where: str) -> None:
    groups = frozenset(pattern.groupindex)
    if missing := needed - groups - ({"index"} if "done" in groups else set()):
        group = sorted(missing)[0]
        raise ConfigError(f"{where}: pattern {pattern.pattern!r} has no group {group!r}",
                          f"a {kind} rule needs (?P<{group}>...) around the number")  # fmt: skip
    if unknown := groups - _GROUPS:
        raise ConfigError(f"{where}: pattern has the group {sorted(unknown)[0]!r}",
                          f"the groups are {', '.join(sorted(_GROUPS))}")  # fmt: skip


def _words(value: object, where: str) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    if words is None:
        return ()
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise ConfigError(f"{where}: contains is {value!r}", "write a word or a list of words")
    return tuple(word.lower() for word in words)


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} is {value!r}", "write keys and values")
    return value


def _refuse_unknown_keys(mapping: Mapping[str, Any], keys: frozenset[str], where: str) -> None:
    for key in mapping:
        if key not in keys:
            hint = f"the keys are {', '.join(sorted(keys))}"
            raise ConfigError(f"{where}: unknown key {key!r} = {mapping[key]!r}", hint)


def _text(mapping: Mapping[str, Any], key: str, where: str, default: str | None = None) -> str:
    value = mapping.get(key, default)
    if not isinstance(value, str) or (default is None and not value):
        raise ConfigError(f"{where}: {key} is {value!r}", f"give `{key}` a text")
    return value
