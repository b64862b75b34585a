"""configs/memwatch.schema.json: as the code makes it, a schema, and of one mind with what refuses a configuration."""

from __future__ import annotations

import json
import re
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from memwatch.config.json_schema import comments, config_schema
from memwatch.config.load import load_config
from memwatch.config.settings import RANGES, Config, iter_values, key_types
from memwatch.errors import ConfigError
from memwatch.system import json_and_yaml

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "configs" / "memwatch.schema.json"
SHIPPED = [ROOT / "configs" / "memwatch.yaml", *sorted((ROOT / "configs" / "profiles").glob("*.yaml"))]
VALIDATOR = Draft202012Validator(config_schema())
BEYOND_A_SCHEMA = (  # of what is refused
    "not a regular expression",
    "not understood",  # an expectation
    "not the path of an attribute",
    "no executable file",  # a hook's program
    "write the program's whole path",
    "nothing is known as",  # its placeholders
    "a single brace",
    "there is no hook to stop",
    "not a size that memory can have",  # 0.0001, 99999999 PB
    "not a whole number",  # 5.0 for a whole number, which JSON takes for 5
    "is ever signalled",  # pairs
    "too rare for a checkpoint",
    "names the trainer already",
    "no run without a project",
)


def examples() -> list[str]:
    """The YAML of docs/configuration.md."""
    found = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "configuration.md").read_text(), re.M | re.S)
    assert found
    return found


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 knows a signal less")
def test_the_file_is_what_the_code_makes() -> None:
    assert json.loads(SCHEMA.read_text()) == config_schema(), "run `make config-schema`"


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(config_schema())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_it_accepts_what_is_shipped_and_is_named_there(path: Path) -> None:
    VALIDATOR.validate(json_and_yaml.load_yaml(path.read_text(), path.name))
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", path.read_text())
    assert named and (path.parent / named[1]).resolve() == SCHEMA


@pytest.mark.parametrize("text", examples())
def test_it_accepts_the_examples_of_the_documents(text: str) -> None:
    VALIDATOR.validate(json_and_yaml.load_yaml(text, "docs"))
    load_config(Path("docs"), text)


def test_each_key_is_explained_and_has_its_default() -> None:
    for path, value in iter_values(Config()):
        node: dict[str, Any] = config_schema()
        for name in path.split("."):
            node = node["properties"][name]
        assert node["description"] == comments(SHIPPED[0].read_text())[path]
        assert node["default"] == (list(value) if isinstance(value, tuple) else value)


# --- the two agree --------------------------------------------------------------------------------------------------

TEXTS = (
    *("175GB", "0 GB", "0.0001", "12 parsec", ".5TiB", "9e3", "99999999PB", " 7 kb "),
    *("none", "127.0.0.1:9877", "[::1]:0", "h:65536", "h:00080", "h", ":1", "[::g]:1"),
    *("SIGINT", "SIGKILL", "INT", "warn", "generation", "auto", "agent", "ranks", "online", "observe", "(", ""),
    *("growth < 5GB", "Trainer.buffer"),
)
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)
)
ANY = st.one_of(JUNK, st.sampled_from(TEXTS), st.lists(st.one_of(st.sampled_from(TEXTS), JUNK), max_size=3))
OWN = {  # of these keys the forms are tried more often
    "listen": st.builds(
        "{}:{}".format, st.sampled_from(["h", "127.0.0.1", "[::1]", "::1", ""]), st.integers(-1, 99999)
    ),
    "signals.wanted": st.lists(st.sampled_from(["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "INT"]), max_size=3),
    "notify.events": st.lists(st.sampled_from(["warn", "interrupt", "generation"]), max_size=3),
    "memory.limit": st.builds(
        "{}{}".format, st.sampled_from([0, 0.0, 7, ".5", "5."]), st.sampled_from(["GB", " Kib", "k", ""])
    ),
}
PATHS = (
    *3 * (*OWN,),
    *key_types(),
    *{path.partition(".")[0] for path in RANGES},
    "polcy",
    "policy.konfidence",
    "log.presets.a",
)
NEAR = sorted({near for bound in chain(*RANGES.values()) for near in (bound, bound - 0.01, bound + 1, int(bound))})


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Keys, right and wrong, with values, right and wrong."""
    data: dict[str, Any] = {}
    for path in draw(st.lists(st.one_of(st.sampled_from([*OWN]), st.sampled_from(PATHS)), max_size=2)):
        *sections, key = path.split(".")
        inner = data
        for name in sections:
            inner = inner[name] if isinstance(inner.setdefault(name, {}), dict) else {}
        more = st.sampled_from(NEAR) if path in RANGES else OWN.get(path, ANY)
        inner[key] = draw(more if draw(st.booleans()) else ANY)
    return data


def agree(document: object) -> None:
    """What the schema refuses is refused, and the other way round, but for what a schema cannot tell."""
    text = yaml.safe_dump(document)
    told = [error.message for error in VALIDATOR.iter_errors(json_and_yaml.load_yaml(text, "m.yaml"))]
    try:
        load_config(Path("m.yaml"), text)
        refused = []
    except ConfigError as error:
        refused = [f"{one}: {one.hint}" for one in (error, *error.others)]
    assert refused or not told, told
    assert told or all(any(words in said for words in BEYOND_A_SCHEMA) for said in refused), refused


@settings(max_examples=400, deadline=None)
@given(documents())
def test_what_one_refuses_the_other_does(document: dict[str, Any]) -> None:
    agree(document)


@pytest.mark.parametrize("path", RANGES)
def test_they_agree_at_the_ends_of_a_range(path: str) -> None:
    section, _, key = path.rpartition(".")
    for bound in RANGES[path]:
        for value in (bound, bound - 1, bound + 1, bound * 0.999, bound * 1.001):
            agree({section: {key: value}})


@pytest.mark.parametrize("path", [*OWN, "gpu.enabled", "wandb.mode", "profile", "history"])
def test_they_agree_on_texts(path: str) -> None:
    section, _, key = path.rpartition(".")
    ports = (f"h:{port}" for port in (0, 9, 9999, 59999, 65535, 66000, 70000))
    for value in (*TEXTS, *([text] for text in TEXTS), *ports):
        agree({section: {key: value}} if section else {key: value})


@pytest.mark.parametrize(
    "document", [5, [], "text", {"policy": []}, {"signals": {"wanted": []}}, {"log": {"path": ""}}]
)
def test_it_refuses(document: object) -> None:
    assert not VALIDATOR.is_valid(document)


@pytest.mark.parametrize("document", [None, {}, {"log": None, "policy": None}, {"memory": {"limit": 5_000_000}}])
def test_it_accepts(document: object) -> None:
    VALIDATOR.validate(document)
