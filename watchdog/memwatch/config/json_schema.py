"""The JSON Schema of the configuration file, for editors: types and ranges from settings, words from memwatch.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from memwatch.config.settings import ADDRESS, NONE, PLAIN_BYTES, RANGES, SIZE_KEYS, Config
from memwatch.config.validation import SIGNALS, VARIABLE_NAME, notifiable_events
from memwatch.system import json_and_yaml, package_data

DRAFT = "https://json-schema.org/draft/2020-12/schema"
SIZE = rf"^\s*({PLAIN_BYTES}|([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*([KkMmGgTtPp][Ii]?)?[Bb])\s*$"
MIN_PLAIN_BYTES = 1_000_000
MAX_SIZE_BYTES = 2**63 - 1
PORT = "([0-9]{1,4}|[0-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_COMMENTED = re.compile(r"[^#]*\s# (.+)")

Node = dict[str, Any]


def config_schema() -> Node:
    """What an editor needs to know of each key: its type, range and default, and what it means.

    It does not cover values that do not fit together, regular expressions, expectations, tracks and hooks.
    """
    return {"$schema": DRAFT, "title": "memwatch", **_SchemaBuilder().build()}


def comments(text: str) -> dict[str, str]:
    """`policy.act` -> the comment on its line of a configuration file."""
    lines = text.splitlines()
    commented = {
        path: _COMMENTED.fullmatch(lines[number - 1])
        for path, number in json_and_yaml.read_yaml(text, "memwatch.yaml").lines.items()
    }
    return {path: found[1] for path, found in commented.items() if found is not None}


class _SchemaBuilder:
    """Adds to msgspec's schema of Config what the types do not say."""

    def __init__(self) -> None:
        self._schema = json_and_yaml.json_schema(Config)
        self._comments = comments(package_data.example_config_file().read_text())
        self._forms: Mapping[str, Node] = {  # of text and lists; `[]` stands for the items of a list
            **{path: _pattern(SIZE, "write a number and a unit, as 175GB or 163GiB") for path in SIZE_KEYS},
            "listen": _pattern(f"^({NONE}|{ADDRESS}:{PORT})$", "write ADDRESS:PORT, as 127.0.0.1:9877, or none"),
            "actions.hook": {"minItems": 1},
            "actions.environment[]": _pattern(f"^{VARIABLE_NAME}$", "write names alone, as KUBECONFIG"),
            "signals.wanted": {"minItems": 1, "uniqueItems": True},
            "signals.wanted[]": {"enum": list(SIGNALS)},
            "notify.events[]": {"enum": list(notifiable_events())},
        }

    def build(self) -> Node:
        return self._node(self._schema, "")

    def _node(self, schema: Node, path: str) -> Node:
        """The schema of one key, or of one type that its value may have."""
        if "$ref" in schema:
            return self._section(self._schema["$defs"][schema["$ref"].rpartition("/")[2]], path)
        node = {key: value for key, value in schema.items() if key != "default"}
        if "anyOf" in schema:
            node = _any_of([self._node(option, path) for option in schema["anyOf"]])
        elif schema.get("type") == "array":
            node |= {"items": self._node(schema["items"], f"{path}[]"), **self._forms.get(path, {})}
        elif schema.get("type") == "string":
            node |= {"minLength": 1, **self._forms.get(path, {})}
        elif schema.get("type") in ("integer", "number"):
            low, high = (MIN_PLAIN_BYTES, MAX_SIZE_BYTES) if path in SIZE_KEYS else RANGES[path]
            node |= {"minimum": low, "maximum": high}
        if "default" in schema:
            default = schema["default"]
            node["default"] = list(default) if isinstance(default, tuple) else default
        return node

    def _section(self, schema: Node, path: str) -> Node:
        properties = {}
        for key, inner in schema["properties"].items():
            inner_path = f"{path}.{key}" if path else key
            properties[key] = self._node(inner, inner_path)
            if inner_path in self._comments:
                properties[key]["description"] = self._comments[inner_path]
        return {
            "description": schema["description"],
            "type": "object" if path.endswith("[]") else ["object", "null"],
            "properties": properties,
            "additionalProperties": False,
        }


def _pattern(pattern: str, advice: str) -> Node:
    return {"pattern": pattern, "patternErrorMessage": advice}  # the latter is for the YAML language server


def _any_of(options: Sequence[Node]) -> Node:
    """Join the types that a value may have into one node, if nothing else differs: editors explain that better."""
    if any("type" not in option for option in options):
        return {"anyOf": list(options)}
    types = [option["type"] for option in options]
    return {**{key: value for option in options for key, value in option.items()}, "type": types}
