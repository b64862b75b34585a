from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.events import Attached, Cause, Exited, Notice
from memwatch.core.measurements import Target
from memwatch.errors import ConfigError
from memwatch.system import json_and_yaml


@dataclass(frozen=True, slots=True)
class Inner:
    count: int = 0
    mode: bool | Literal["auto"] = "auto"


@dataclass(frozen=True, slots=True)
class Outer:
    inner: Inner = field(default_factory=Inner)
    items: tuple[Inner, ...] = ()
    name: str | None = None


def refused(text: str | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        json_and_yaml.read_yaml(text, "a.yaml")
    return caught.value


# --- JSON ---


def test_a_record_comes_back_as_it_was() -> None:
    event = Exited(1.5, Cause.OOM_CGROUP, ("oom_kill 0 -> 1",), None, "SIGKILL")
    assert json_and_yaml.from_json(json_and_yaml.to_json(event), Exited) == event


@given(st.floats(-json_and_yaml.MAX_JSON_NUMBER, json_and_yaml.MAX_JSON_NUMBER))
def test_times_are_kept_to_the_last_bit(t: float) -> None:
    event = Attached(t, Target("b", 2, 3), "c")
    assert json_and_yaml.from_json(json_and_yaml.to_json(event), Attached).t.hex() == t.hex()


@pytest.mark.parametrize("number", ["1e31", "-1e31", "9" * 40, "9" * 5000, "1" * 25 + "." + "1" * 10 + "e+09", "1e309"])
def test_a_number_of_which_nothing_can_be_computed_is_refused(number: str) -> None:
    with pytest.raises(json_and_yaml.SerializationError, match="range"):
        json_and_yaml.from_json(f'{{"a":[{{"e12345":{number}}}]}}', dict)
    assert json_and_yaml.from_json(f'{{"a":"{number}","b":0.{"1" * 60},"c":1e-400}}', dict)["b"] == pytest.approx(1 / 9)


@given(st.text(st.characters()))  # lone surrogates too
def test_any_text_can_be_written_and_is_utf8(text: str) -> None:
    data = json_and_yaml.to_json({text: [text], "a": text})
    assert isinstance(json.loads(data.decode())["a"], str)


def test_what_json_has_no_word_for() -> None:
    fields = MappingProxyType({"eta_s": float("inf"), "x": float("nan"), "cause": Cause.SAVED})
    assert json.loads(json_and_yaml.to_json(Notice(1.0, "warn", "t", fields)))["fields"] == {
        "eta_s": None,
        "x": None,
        "cause": "interrupted_saved",
    }


@given(st.binary(max_size=60))
def test_from_json_gives_the_record_or_a_named_error(data: bytes) -> None:
    try:
        assert isinstance(json_and_yaml.from_json(data, Target), Target)
    except json_and_yaml.SerializationError as error:
        assert str(error)


def test_deeply_nested_json_is_refused_by_name() -> None:
    with pytest.raises(json_and_yaml.SerializationError):
        json_and_yaml.from_json(b"[" * 100_000, list)


# --- YAML ---


def test_lines_of_keys_and_items() -> None:
    document = json_and_yaml.read_yaml("a:\n  b: 1\n  c:\n    - x\n    - y\n", "a.yaml")
    assert document.data == {"a": {"b": 1, "c": ["x", "y"]}}
    assert document.location("a.b") == "a.yaml:2"
    assert document.location("a.c[1]") == "a.yaml:5"
    assert document.location("a.missing") == "a.yaml:1"


def test_a_key_given_twice() -> None:
    error = refused("a:\n  b: 1\n\n  b: 2\n")
    assert str(error) == "a.yaml:4: a.b is given twice, first in line 2"
    assert error.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &x [1]\nb: *x", "alias"),
        ("a: &a [*a]", "alias"),
        ("a: !!python/object/apply:os.system [true]", "tag"),
        ("a: !!python/name:os.system x", "tag"),
        ("a: !!binary aGk=", "tag"),
        ("? [a, b]\n: 1", "a key must be a word"),
        ("a: 1\n---\nb: 2", "single document"),
        ("[" * 40 + "]" * 40, "nested deeper"),
        ("[" * 5000, "not YAML"),
        ("a: ]", "a.yaml:1: not YAML"),
        ("a: \x00", "not YAML"),
        (b"\xff\xfe\xfa", "not YAML"),
        ("a" * (json_and_yaml.MAX_YAML_BYTES + 1), "bytes"),
    ],
)
def test_unsafe_or_malformed_yaml_is_refused(text: str | bytes, said: str) -> None:
    error = refused(text)
    assert said in str(error)
    assert str(error).startswith("a.yaml")
    assert error.hint


def test_a_billion_laughs() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40)]
    assert "alias" in str(refused("\n".join(lines)))


def test_yaml_1_1_surprises_are_text() -> None:
    assert json_and_yaml.load_yaml("a: 1:30\nb: 2020-01-01\nc: 127.0.0.1:9877", "a.yaml") == {
        "a": "1:30",  # YAML 1.1 says 90
        "b": "2020-01-01",
        "c": "127.0.0.1:9877",
    }


@given(st.one_of(st.binary(max_size=80), st.text(alphabet="ab:-[]{}&*!#\n \"'1.~<%@|>", max_size=60)))
def test_yaml_gives_plain_data_or_a_named_error(text: bytes | str) -> None:
    try:
        data = json_and_yaml.load_yaml(text, "a.yaml")
    except ConfigError as error:
        assert str(error).startswith("a.yaml")
    else:
        json.dumps(data)


# --- records ---


def problem(data: object) -> tuple[str, str]:
    with pytest.raises(ConfigError) as caught:
        json_and_yaml.convert(data, Outer)
    return str(caught.value), caught.value.hint


def test_convert() -> None:
    made = json_and_yaml.convert({"inner": {"count": 2}, "items": [{"mode": True}]}, Outer)
    assert made == Outer(Inner(2), (Inner(0, True),))


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        ({"iner": {}}, "iner: there is no such key", "did you mean inner?"),
        ({"zzz": {}}, "zzz: there is no such key", "the keys here are: inner, items, name"),
        ({"items": [{}, {"cuont": 1}]}, "items[1].cuont: there is no such key", "did you mean count?"),
        ({"inner": {"count": "x"}}, "inner.count is 'x': not a whole number", "write a whole number"),
        ({"items": {"a": 1}}, "items is {'a': 1}: not a list", "write a list, as [a, b]"),
        (
            {"inner": {"mode": "of"}},
            "inner.mode is 'of': not one of the words for it",
            "write one of auto, true, false",
        ),
    ],
)
def test_what_does_not_fit_is_named(data: object, message: str, hint: str) -> None:
    assert problem(data) == (message, hint)


def test_a_flag_is_named_in_place_of_a_line() -> None:
    document = json_and_yaml.YamlDocument("a.yaml", {"name": 3}, {"name": 7}, names={"name": "--name"})
    with pytest.raises(ConfigError, match=r"^--name 3: not text"):
        json_and_yaml.convert(document.data, Outer, document)
