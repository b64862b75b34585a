"""The JSON Schema of the configuration file, for editors: types and ranges of the records, words of memwatch.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from memwatch.config.settings import ADDRESS, NONE, RANGES, SIZE_KEYS, Config
from memwatch.config.validation import SIGNALS, VARIABLE, events_to_notify_of
from memwatch.system import json_and_yaml, package_data

DRAFT = "https://json-schema.org/draft/2020-12/schema"
SIZE = r"^\s*([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*(([KkMmGgTtPp][Ii]?)?[Bb])?\s*$"
LARGEST_BYTES = 2**63 - 1
PORT = "([0-9]{1,4}|[0-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_COMMENTED = re.compile(r"( *)(\w+):(?: [^#]*)?\s# (.+)")

Node = dict[str, Any]


def config_schema() -> Node:
    """What an editor needs to know of each key: its type, range and default, and what it means.

    It cannot tell of values that are wrong together, nor of regular expressions, expectations, tracks and hooks.
    """
    return {"$schema": DRAFT, "title": "memwatch", **_Schema().whole()}


def comments(text: str) -> dict[str, str]:
    """`policy.act` -> the comment on its line of a configuration file."""
    found: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        match = re.match(r"( *)(\w+):", line)
        if match is None:
            continue
        path = f"{section}.{match[2]}" if match[1] else match[2]
        section = section if match[1] else match[2]
        if commented := _COMMENTED.fullmatch(line):
            found[path] = commented[3]
    return found


class _Schema:
    """What msgspec makes of the records, with what their types do not say."""

    def __init__(self) -> None:
        self._made = json_and_yaml.json_schema(Config)
        self._comments = comments(package_data.example_config_file().read_text())

    def whole(self) -> Node:
        return self._node(self._made, "")

    @cached_property
    def _forms(self) -> Mapping[str, Node]:
        """Of texts and lists; `[]` are the items of one."""
        return {
            **{path: _pattern(SIZE, "write a number and a unit, as 175GB or 163GiB") for path in SIZE_KEYS},
            "listen": _pattern(f"^({NONE}|{ADDRESS}:{PORT})$", "write ADDRESS:PORT, as 127.0.0.1:9877, or none"),
            "actions.hook": {"minItems": 1},
            "actions.environment[]": _pattern(f"^{VARIABLE}$", "write names alone, as KUBECONFIG"),
            "signals.wanted": {"minItems": 1, "uniqueItems": True},
            "signals.wanted[]": {"enum": list(SIGNALS)},
            "notify.events[]": {"enum": list(events_to_notify_of())},
        }

    def _node(self, made: Node, path: str) -> Node:
        """One key, or one of the forms that its value may have."""
        if "$ref" in made:
            return self._section(self._made["$defs"][made["$ref"].rpartition("/")[2]], path)
        node = {key: value for key, value in made.items() if key != "default"}
        if "anyOf" in made:
            node = _one_of([self._node(form, path) for form in made["anyOf"]])
        elif made.get("type") == "array":
            node |= {"items": self._node(made["items"], f"{path}[]"), **self._forms.get(path, {})}
        elif made.get("type") == "string":
            node |= {"minLength": 1, **self._forms.get(path, {})}
        elif made.get("type") in ("integer", "number"):
            low, high = (1, LARGEST_BYTES) if path in SIZE_KEYS else RANGES[path]
            node |= {"minimum": low, "maximum": high}
        if "default" in made:
            node["default"] = list(made["default"]) if isinstance(made["default"], tuple) else made["default"]
        return node

    def _section(self, made: Node, path: str) -> Node:
        inner = {key: f"{path}.{key}" if path else key for key in made["properties"]}
        properties = {
            key: self._described(self._node(made["properties"][key], inner[key]), inner[key]) for key in inner
        }
        return {
            "description": made["description"],
            "type": ["object", "null"],
            "properties": properties,
            "additionalProperties": False,
        }

    def _described(self, node: Node, path: str) -> Node:
        """The comment of the example comes before what a record says of itself."""
        return {**node, "description": self._comments[path]} if path in self._comments else node


def _pattern(pattern: str, advice: str) -> Node:
    return {"pattern": pattern, "patternErrorMessage": advice}  # the latter is for the YAML language server


def _one_of(forms: Sequence[Node]) -> Node:
    """Forms of one value; those that differ in type alone are told as one, which editors explain better."""
    if any("type" not in form for form in forms):
        return {"anyOf": list(forms)}
    types = [form["type"] for form in forms]
    return {**{key: value for form in forms for key, value in form.items()}, "type": types}
