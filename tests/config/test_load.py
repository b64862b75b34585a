"""Profile, file, environment and flags one upon the other: what wins, where it is from, and what a complaint names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.config.load import load_config, load_with_origins, variable_name
from memwatch.config.settings import DEFAULT_PROFILE, PATH_KEYS, PROFILES, Config, iter_values, key_types
from memwatch.errors import ConfigError
from memwatch.system import json_and_yaml, package_data

NAME = Path("m.yaml")
KUBERNETES = {  # what a pod finds where a Service is called memwatch
    "MEMWATCH_SERVICE_HOST": "10.0.0.7",
    "MEMWATCH_SERVICE_PORT": "9877",
    "MEMWATCH_PORT": "tcp://10.0.0.7:9877",
    "MEMWATCH_PORT_9877_TCP_ADDR": "10.0.0.7",
    "MEMWATCH_PASSWORD": "hunter2",
}


def refusals(text: str = "", environ: dict[str, str] | None = None, **flags: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(NAME, text, flags, environ)
    return [str(error) for error in (caught.value, *caught.value.others)]


# --- the environment ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("MEMWATCH_POLICY__CONFIDENCE", "0.95", "policy.confidence", 0.95),
        ("MEMWATCH_POLICY__ACT", "false", "policy.act", False),
        ("MEMWATCH_POLICY__CHECKPOINT_SECONDS", "null", "policy.checkpoint_seconds", None),
        ("MEMWATCH_TARGET__PID", "42", "target.pid", 42),
        ("MEMWATCH_TARGET__MATCH", "123", "target.match", "123"),
        ("MEMWATCH_MEMORY__LIMIT", "175GB", "memory.limit", "175GB"),
        ("MEMWATCH_GPU__ENABLED", "true", "gpu.enabled", True),
        ("MEMWATCH_GPU__ENABLED", "auto", "gpu.enabled", "auto"),
        ("MEMWATCH_SIGNALS__WANTED", "[SIGTERM]", "signals.wanted", ("SIGTERM",)),
        ("MEMWATCH_SIGNALS__TORCHRUN", "ranks", "signals.torchrun", "ranks"),
        ("MEMWATCH_NOTIFY__URLS", "[json://u:p@h, 'mailto://x:y@z?a=1#b']", "notify.urls", ("json://u:p@h", ...)),
        ("MEMWATCH_LISTEN", "0.0.0.0:9877", "listen", "0.0.0.0:9877"),
        ("MEMWATCH_LISTEN", "none", "listen", "none"),
        ("MEMWATCH_TRACK", "[Trainer.buffer]", "track", ("Trainer.buffer",)),
        ("MEMWATCH_LOG__PRESETS", "[{name: ours, rules: []}]", "log.presets", ({"name": "ours", "rules": []},)),
        ("MEMWATCH_DRY_RUN", "true", "dry_run", True),
        ("MEMWATCH_PROFILE", "observe", "profile", "observe"),
    ],
)
def test_a_variable_sets_its_key(name: str, text: str, key: str, value: object) -> None:
    found = dict(iter_values(load_config(environ={name: text})))[key]
    if isinstance(value, tuple) and value[-1] is ...:
        value = (*value[:-1], "mailto://x:y@z?a=1#b")
    assert (found, type(found)) == (value, type(value))


def test_the_order_is_profile_file_environment_flags() -> None:
    text = "profile: aggressive\npolicy: {confirmation_seconds: 3}\nmemory: {interval_seconds: 2, limit: 1GB}\n"
    environ = {"MEMWATCH_MEMORY__INTERVAL_SECONDS": "3", "MEMWATCH_MEMORY__LIMIT": "2GB"}
    made = load_config(NAME, text, {"limit": "3GB"}, environ)
    assert made.policy.confidence == 0.9999
    assert (made.policy.confirmation_seconds, made.memory.interval_seconds, made.memory.limit) == (3.0, 3.0, "3GB")
    assert load_config(NAME, text, {"profile": "default"}).policy.confidence == Config().policy.confidence


def test_what_others_set_or_nobody_does_is_left_alone() -> None:
    assert load_config(environ={**KUBERNETES, "MEMWATCH_LISTEN": "", "MEMWATCH_LISTN": "x", "HOME": "/"}) == Config()


def test_without_an_environment_none_is_heeded() -> None:
    code = "from memwatch.config.load import load_config; from memwatch.config.settings import Config; "
    code += "assert load_config() == Config()"
    environ = {"PYTHONPATH": str(Path(json_and_yaml.__file__).parents[2]), "MEMWATCH_VERBOSE": "true"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environ)


@pytest.mark.parametrize(
    ("name", "text", "said", "hint"),
    [
        ("MEMWATCH_POLICY__CONFIDENC", "1", "$MEMWATCH_POLICY__CONFIDENC: there is no such key", "__CONFIDENCE?"),
        ("MEMWATCH_X__Y", "1", "$MEMWATCH_X__Y: there is no such key", "those of a"),
        ("MEMWATCH_LOG", "a.log", "$MEMWATCH_LOG: a section has no value", "MEMWATCH_LOG__PATH"),
        ("MEMWATCH_POLICY__CONFIDENCE", "99", "$MEMWATCH_POLICY__CONFIDENCE: policy.confidence is 99.0: out", "0.9999"),
        ("MEMWATCH_POLICY__KILL", "soon", "$MEMWATCH_POLICY__KILL: policy.kill is 'soon'", "true or false"),
        (
            "MEMWATCH_SIGNALS__WANTED",
            "[SIGINT, INT]",
            "$MEMWATCH_SIGNALS__WANTED: signals.wanted[1] is 'INT'",
            "SIGINT",
        ),
        ("MEMWATCH_TRACK", "[a", "$MEMWATCH_TRACK:2: not YAML", "quote"),
        ("MEMWATCH_PROFILE", "obsrve", "$MEMWATCH_PROFILE: profile is 'obsrve'", "default, observe, aggressive"),
    ],
)
def test_a_variable_that_cannot_be_is_named(name: str, text: str, said: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(environ={name: text})
    assert str(caught.value).startswith(said)
    assert hint in caught.value.hint


@pytest.mark.parametrize("text", ["json://u:hunter2@h", "[json://u:hunter2@h, 3]", "{json://u:hunter2@h: 1}"])
def test_no_message_shows_a_password(text: str) -> None:
    for said in refusals(environ={"MEMWATCH_NOTIFY__URLS": text}):
        assert "notify.urls" in said and "hunter2" not in said


@given(st.dictionaries(st.text("ABELNOSTY_.19", max_size=12), st.text(max_size=12), max_size=4))
def test_any_environment_gives_a_configuration_or_says_what_is_wrong(given_: dict[str, str]) -> None:
    environ = {f"MEMWATCH_{name}": text for name, text in given_.items()}
    try:
        assert isinstance(load_config(environ=environ), Config)
    except ConfigError as error:
        assert all(str(one).startswith("$MEMWATCH_") and one.hint for one in (error, *error.others))


def test_each_key_has_a_variable_of_its_own() -> None:
    names = [variable_name(key) for key in key_types()]
    assert len(set(names)) == len(names) == len(dict(iter_values(Config())))


# --- targets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "environ", "flags", "named"),
    [
        ("target: {match: a}", {"MEMWATCH_TARGET__PIDFILE": "b"}, {}, {"pidfile": "b"}),
        ("target: {match: a}", {"MEMWATCH_TARGET__PIDFILE": "b"}, {"pid": 7}, {"pid": 7}),
        ("target: {match: a}", {}, {}, {"match": "a"}),
        ("target: {match: '('}", {"MEMWATCH_TARGET__PID": "7"}, {}, {"pid": 7}),
        ("target: {match: a, pid: 3}", {}, {"match": "c"}, {"match": "c"}),
    ],
)
def test_the_higher_target_replaces_the_lower(
    text: str, environ: dict[str, str], flags: dict[str, Any], named: dict[str, object]
) -> None:
    config, origins = load_with_origins(NAME, text, flags, environ)
    assert {key: value for key, value in iter_values(config.target) if value is not None} == named
    assert {key for key in origins if key.startswith("target.")} == {f"target.{key}" for key in named}


def test_two_targets_of_one_origin_are_refused() -> None:
    environ = {"MEMWATCH_TARGET__PID": "7", "MEMWATCH_TARGET__MATCH": "a"}
    assert refusals(environ=environ) == [
        "$MEMWATCH_TARGET__MATCH: target.match is 'a': target.pid names the trainer already"
    ]


# --- complaints -----------------------------------------------------------------------------------------------------


def test_all_that_is_wrong_is_told_in_the_order_of_the_file() -> None:
    text = (
        "listen: 5\nlog: {paht: x}\npolicy:\n  kill: soon\n  confidence: 7\nsignals: {wanted: [INT, SIGKILL, SIGINT]}\n"
    )
    told = refusals(text, {"MEMWATCH_GPU__ENABLED": "no way"}, limit="12 parsec")
    assert [said.split(" is ")[0].split(": there")[0] for said in told] == [
        *("m.yaml:1: listen", "m.yaml:2: log.paht", "m.yaml:4: policy.kill", "m.yaml:5: policy.confidence"),
        *("m.yaml:6: signals.wanted[0]", "m.yaml:6: signals.wanted[1]", "$MEMWATCH_GPU__ENABLED: gpu.enabled"),
        "--limit 12 parsec: not a size",
    ]


def test_of_a_pair_the_value_that_was_set_last_is_blamed_and_the_other_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(NAME, "policy:\n  kill: true", environ={"MEMWATCH_POLICY__ACT": "false"})
    assert str(caught.value).startswith("$MEMWATCH_POLICY__ACT: policy.act is false: memwatch sends no signal")
    assert caught.value.hint.endswith("policy.kill is from m.yaml:2")
    with pytest.raises(ConfigError) as caught:
        load_config(NAME, "policy:\n  kill: true", {"profile": "observe"})
    assert str(caught.value).startswith("m.yaml:2: policy.kill is true: ")
    assert "policy.act is from profile observe:" in caught.value.hint


def test_a_section_that_is_none_is_told_whatever_lies_above_or_below() -> None:
    [said] = refusals("profile: observe\npolicy: 5", {"MEMWATCH_POLICY__CONFIDENCE": "0.9"})
    assert said.startswith("m.yaml:2: policy is 5: no keys and values")


# --- profiles -------------------------------------------------------------------------------------------------------


def test_there_is_a_file_for_each_profile_but_the_default() -> None:
    folder = package_data.profile_file("observe").parent
    assert {path.stem for path in folder.glob("*.yaml")} == set(PROFILES) - {DEFAULT_PROFILE}


@pytest.mark.parametrize("name", sorted(set(PROFILES) - {DEFAULT_PROFILE}))
def test_a_profile_holds_policy_and_nothing_of_a_machine_or_run(name: str) -> None:
    path = package_data.profile_file(name)
    given_ = set(json_and_yaml.read_yaml(path.read_bytes(), name).lines)
    assert not given_ & {"profile", "target", "listen", "json", *PATH_KEYS}
    config, origins = load_with_origins(flags={"profile": name})
    changed = {
        key
        for (key, value), (_, usual) in zip(iter_values(config), iter_values(Config()), strict=True)
        if value != usual
    }
    assert changed == set(origins), "what a profile sets differs from the default"


def test_observe_never_signals_and_aggressive_acts() -> None:
    assert load_config(flags={"profile": "observe"}).policy.act is False
    usual, aggressive = Config().policy, load_config(flags={"profile": "aggressive"}).policy
    assert aggressive.act
    assert aggressive.confidence > usual.confidence and aggressive.confirmation_seconds < usual.confirmation_seconds


# --- origins --------------------------------------------------------------------------------------------------------


def test_each_value_that_is_set_has_its_origin() -> None:
    text = "# mine\npolicy:\n  act: true\nlisten: none\n"
    environ = {"MEMWATCH_VERBOSE": "true", "MEMWATCH_PROFILE": "observe"}
    _, origins = load_with_origins(NAME, text, {"limit": "5GB"}, environ)
    assert {origin.rpartition(":")[0] for key, origin in origins.items() if key.startswith("diagnosis.")} == {
        "profile observe"
    }
    assert {key: origin for key, origin in origins.items() if not key.startswith("diagnosis.")} == {
        "policy.act": "m.yaml:3",
        "listen": "m.yaml:4",
        "verbose": "$MEMWATCH_VERBOSE",
        "profile": "$MEMWATCH_PROFILE",
        "memory.limit": "--limit",
    }
