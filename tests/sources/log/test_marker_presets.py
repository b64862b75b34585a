"""Presets are data; what cannot be used is refused with the key, the value and the fix."""

from __future__ import annotations

from typing import Any

import pytest

from memwatch.errors import ConfigError
from memwatch.sources.log.marker_presets import Preset, load_presets
from memwatch.system import json_and_yaml, package_data
from support.presets import FOLDER, packaged_presets

GOOD = {"kind": "generation", "pattern": r"gen (?P<index>\d+)"}


def test_a_preset_is_made_from_plain_data() -> None:
    preset = Preset.from_mapping(
        {"name": "mine", "unit": "Epoch", "rules": [GOOD | {"at": "end"}]}, "mine.yaml", user=True
    )
    assert (preset.name, preset.unit, preset.user, preset.applies_to_all_logs) == ("mine", "epoch", True, False)
    assert preset.rules[0].at == "end"


def test_what_is_loaded_is_what_the_yaml_files_say() -> None:
    files = sorted(FOLDER.glob("*.yaml"))
    assert package_data.marker_presets() == {  # else run `make presets`
        file.stem: json_and_yaml.load_yaml(file.read_text(), file.name) for file in files
    }


def test_a_preset_without_generations_holds_for_every_log() -> None:
    rule = {"kind": "oom", "pattern": "boom", "contains": "BOOM"}
    (preset,) = load_presets([("x.yaml", {"rules": [rule]})])
    assert preset.applies_to_all_logs
    assert preset.name == "x.yaml"
    assert preset.rules[0].contains == ("boom",)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], r"x.yaml is \[\]"),
        ({"rule": []}, "unknown key 'rule'"),
        ({"rules": []}, r"rules is \[\]"),
        ({"rules": ["text"]}, r"rules\[0\] is 'text'"),
        ({"rules": [{"pattern": "x"}]}, "kind is None"),
        ({"rules": [{"kind": "epoch", "pattern": "x"}]}, "kind is 'epoch'"),
        ({"rules": [GOOD, {"kind": "oom"}]}, r"rules\[1\]: pattern is None"),
        ({"rules": [GOOD | {"pattern": "gen ("}]}, r"pattern is 'gen \('"),
        ({"rules": [GOOD | {"unless": "*"}]}, r"unless is '\*'"),
        ({"rules": [GOOD | {"pattern": "gen"}]}, "no group 'index'"),
        ({"rules": [GOOD | {"pattern": r"(?P<index>\d)(?P<foo>x)"}]}, "group 'foo'"),
        ({"rules": [GOOD | {"at": "middle"}]}, "at is 'middle'"),
        ({"rules": [GOOD | {"contains": [1]}]}, r"contains is \[1\]"),
        ({"rules": [GOOD | {"capacity": 3}]}, "unknown key 'capacity'"),
        ({"rules": [{"kind": "phase", "pattern": "x"}]}, "the phase has no name"),
        ({"unit": 3, "rules": [GOOD]}, "unit is 3"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_fix(document: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Preset.from_mapping(document, "x.yaml")
    assert "x.yaml" in str(caught.value)
    assert caught.value.hint


def test_every_packaged_preset_is_read_and_says_what_program_it_is_for() -> None:
    presets = packaged_presets()
    assert len({preset.name for preset in presets}) == len(presets) >= 8
    assert [preset.name for preset in presets if preset.applies_to_all_logs] == ["common", "out of memory"]
    assert all(rule.contains for preset in presets for rule in preset.rules), "a rule without words costs every line"
