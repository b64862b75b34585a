from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.config import settings
from memwatch.config.load import load_config
from memwatch.config.settings import Config, iter_values, key_types
from memwatch.core.decision.policy import Policy
from memwatch.errors import ConfigError, ExitCode
from memwatch.system import json_and_yaml

EXAMPLE = Path(__file__).parents[2] / "configs" / "memwatch.yaml"
NAME = Path("m.yaml")


def refused(text: str, **flags: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(NAME, text, flags)
    assert caught.value.exit_code is ExitCode.USAGE
    return caught.value


def test_nothing_given_is_all_defaults() -> None:
    assert load_config() == load_config(NAME, "") == load_config(NAME, "# nothing\n") == Config()
    assert Config().policy == Policy()


def test_the_example_file_has_every_key_with_its_default() -> None:
    def lists(value: object) -> object:
        if isinstance(value, dict):
            return {key: lists(inner) for key, inner in value.items()}
        return list(value) if isinstance(value, tuple) else value

    assert json_and_yaml.load_yaml(EXAMPLE.read_text(), "example") == lists(asdict(Config()))
    assert load_config(EXAMPLE) == Config()


def test_every_key_in_the_example_file_is_explained() -> None:
    for line in EXAMPLE.read_text().splitlines():
        words = line.split("#")[0].strip()
        if words and not words.endswith(":"):
            assert "#" in line, line


def test_flags_override_the_file_and_none_does_not() -> None:
    text = "memory: {limit: 1GB, interval_seconds: 2}\nlisten: none\nverbose: true"
    made = load_config(NAME, text, {"limit": "2GiB", "interval": None, "dry_run": True, "config": "m.yaml"})
    assert made.memory.limit_bytes == 2 * 2**30
    assert made.memory.interval_seconds == 2.0
    assert made.dry_run and made.verbose
    assert made.listen_address is None


def test_a_target_flag_replaces_the_target_of_the_file() -> None:
    made = load_config(NAME, "target: {match: train}", {"pid": 42})
    assert (made.target.pid, made.target.match) == (42, None)


def test_numbers_of_flags_may_be_text() -> None:
    assert load_config(flags={"interval": "0.5", "pid": "77"}).memory.interval_seconds == 0.5
    assert str(refused("", interval="soon")).startswith("--interval soon: not a number")


def test_an_empty_section_is_no_section() -> None:
    assert load_config(NAME, "log:\npolicy:\n") == Config()
    assert load_config(NAME, "listen:\n").listen_address == ("127.0.0.1", 9877)


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("polcy: {}", "m.yaml:1: polcy: there is no such key", "policy"),
        ("policy:\n  act: true\n  chekpoint_seconds: 3", "m.yaml:3: policy.chekpoint_seconds", "checkpoint_seconds"),
        ("policy:\n  kill: soon", "m.yaml:2: policy.kill is 'soon'", "true or false"),
        ("target: {pid: true}", "target.pid is true", "whole number"),
        ("target: {pid: 0}", "target.pid is 0: out of range", "1 to 4194304"),
        ("target: {match: '('}", "target.match is '(': not a regular expression", "unterminated"),
        ("target: {match: ''}", "target.match is '': empty", "leave the key out"),
        ("target:\n  pid: 5\n  match: x", "m.yaml:3: target.match is 'x': target.pid names the trainer", "one of"),
        ("target: {pid: 5, pidfile: a}", "target.pidfile is 'a'", "one of"),
        ("memory: {limit: 12 parsec}", "memory.limit is '12 parsec': not a size", "175GB"),
        ("memory: {limit: 0}", "memory.limit is 0: not a size", "0"),
        ("memory:\n\n  interval_seconds: 0.01", "m.yaml:3: memory.interval_seconds is 0.01: out of range", "0.05"),
        ("memory: {interval_seconds: .nan}", "interval_seconds is nan", "0.05"),
        ("memory: {interval_seconds: 1:30}", "'1:30'", "number"),
        ("gpu: {enabled: maybe}", "gpu.enabled is 'maybe'", "auto, true, false"),
        ("policy: {confidence: 99}", "policy.confidence is 99.0: out of range", "0.5 to 0.9999"),
        ("policy: {headroom_guard: 2}", "policy.headroom_guard is 2.0: out of range", "0 to 0.5"),
        ("policy: {kill: true, act: false}", "policy.kill is true", "policy.act"),
        (
            "policy: {checkpoint_seconds: 3}\nmemory:\n  interval_seconds: 9",
            "m.yaml:3: memory.interval_seconds is 9.0",
            "3 or less",
        ),
        ("signals:\n  wanted:\n  - SIGINT\n  - SIGKILL", "m.yaml:4: signals.wanted[1] is 'SIGKILL'", "policy.kill"),
        ("signals: {wanted: [SIGSTOP]}", "no trainer can catch it", "take it out"),
        ("signals: {wanted: [INT]}", "signals.wanted[0] is 'INT': not a signal", "SIGINT"),
        ("signals: {wanted: [SIGINT, SIGINT]}", "named twice", "take"),
        ("signals: {wanted: []}", "nothing to interrupt with", "policy.act"),
        (
            "actions:\n  hook: [sh, -c]\n  hook_seconds: 0",
            "m.yaml:3: actions.hook_seconds is 0.0: out of range",
            "0.1 to",
        ),
        ("actions: {hook: scancel 7}", "actions.hook is 'scancel 7': not a list", "[a, b]"),
        ("actions: {hook: []}", "actions.hook is []: no command", "leave the key out"),
        ("actions: {hook: [no-such-program]}", "actions.hook[0] is 'no-such-program'", "whole path"),
        ("actions: {hook: [/etc/passwd]}", "actions.hook[0] is '/etc/passwd': no executable file", "whole path"),
        (
            "actions:\n  hook:\n  - sh\n  - '{user}'",
            "m.yaml:4: actions.hook[1] is '{user}': nothing is known",
            "run_id",
        ),
        ("actions: {hook: [sh, 'a{']}", "actions.hook[1] is 'a{': a single brace", "{{ and }}"),
        (
            "actions: {hook_replaces_signal: true}",
            "actions.hook_replaces_signal is true: there is no hook",
            "policy.act",
        ),
        ("actions: {environment: [HOME=/root]}", "actions.environment[0] is 'HOME=/root'", "names alone"),
        ("run: {id: ''}", "run.id is '': empty", "leave the key out"),
        ("run: {rank: -1}", "run.rank is -1: out of range", "0 to"),
        ("signals: {torchrun: all}", "signals.torchrun is 'all'", "agent, ranks"),
        (
            "notify: {events: [warn, generation]}",
            "notify.events[1] is 'generation': not an event to be notified",
            "cleared",
        ),
        ("notify: {urls: 'json://u:hunter2@h'}", "notify.urls is 'json://…: not a list", "[a, b]"),
        ("notify: {file: ''}", "notify.file is '': empty", "leave the key out"),
        ("wandb: {mode: dryrun, project: p}", "wandb.mode is 'dryrun'", "online, offline"),
        ("wandb:\n  name: a", "m.yaml:2: wandb.name is 'a': there is no run without a project", "wandb.project"),
        ("tensorboard: {folder: a}", "tensorboard.folder: there is no such key", "dir"),
        ("listen: 127.0.0.1", "listen is '127.0.0.1': not an address to listen on", "ADDRESS:PORT"),
        ("listen: 127.0.0.1:65536", "listen is '127.0.0.1:65536'", "65535"),
        ("listen: '::1:9877'", "listen is '::1:9877'", "[::1]:9877"),
        ("listen: [::1]:9877", "m.yaml:1: not YAML", "quote"),
        ("log: {presets: [3]}", "log.presets[0] is 3", "write"),
        ("track: [Trainer]", "track[0] is 'Trainer': not the path of an attribute", "Trainer.replay_buffer"),
        ("expectations: [growth is 5]", "expectations[0] is 'growth is 5': not understood", "growth < 5GB/generation"),
        ("diagnosis: {memory: much}", "diagnosis.memory is 'much': not a size", "write"),
        ("diagnosis: {cpu_share: 2}", "diagnosis.cpu_share is 2.0: out of range", "0 to 1"),
        ("- a", "m.yaml:1: it holds no keys", "configs/memwatch.yaml"),
        ("verbose: true\nverbose: false", "m.yaml:2: verbose is given twice", "remove"),
    ],
)
def test_what_cannot_work_is_refused_with_place_value_and_fix(text: str, said: str, hint: str) -> None:
    error = refused(text)
    assert said in str(error)
    assert hint in error.hint


def test_pairs_of_flag_and_file_name_the_flag() -> None:
    error = refused("memory: {interval_seconds: 9}", checkpoint_time=3)
    assert str(error).startswith("--checkpoint-time 3: ")
    assert error.hint.endswith("memory.interval_seconds is from m.yaml:1")
    assert str(refused("", pid=5, match="x")).startswith("--match x: ")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "missing.yaml")
    with pytest.raises(ConfigError, match="Is a directory"):
        load_config(tmp_path)
    with pytest.raises(ConfigError, match="bytes"):
        load_config(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9877", ("127.0.0.1", 9877)),
        ("[::1]:0", ("::1", 0)),
        ("[fe80::1%eth0]:80", ("fe80::1%eth0", 80)),
        ("localhost:65535", ("localhost", 65535)),
        ("none", None),
    ],
)
def test_listen(text: str, address: tuple[str, int] | None) -> None:
    assert load_config(flags={"listen": text}).listen_address == address


@given(st.text(alphabet="0123456789abc.:[]%- ", max_size=24))
def test_listen_gives_an_address_or_says_why(text: str) -> None:
    try:
        found = settings.parse_listen(text)
    except ValueError as error:
        assert str(error)
    else:
        assert found is not None and found[0] and 0 <= found[1] <= 65535


def test_where_the_history_is() -> None:
    home = {"HOME": "/home/u"}
    assert Config().history_path(home) == Path("/home/u/.local/state/memwatch/history.db")
    assert Config().history_path({**home, "XDG_STATE_HOME": "/s"}) == Path("/s/memwatch/history.db")
    assert Config().history_path({**home, "XDG_STATE_HOME": "rel"}) == Path("/home/u/.local/state/memwatch/history.db")
    assert load_config(flags={"history": "none"}).history_path(home) is None
    assert load_config(flags={"history": "h.db"}).history_path(home) == Path("h.db")


def test_home_is_filled_in() -> None:
    made = load_config(NAME, "log: {path: ~/a.log, presets: [~/m, {rules: []}]}\ncheckpoint: {globs: ['~/c/*.pt']}")
    home = str(Path.home())
    assert made.log.path == f"{home}/a.log"
    assert made.log.presets == (f"{home}/m", {"rules": []})
    assert made.checkpoint.globs == (f"{home}/c/*.pt",)


def test_each_flag_names_a_key() -> None:
    assert set(settings.FLAGS.values()) <= set(dict(iter_values(Config())))


def test_each_number_has_a_range_and_the_tables_name_keys() -> None:
    def is_number(type_: object) -> bool:
        return bool({int, float} & {type_, *get_args(type_)})

    numbers = {path for path, type_ in key_types().items() if is_number(type_)}
    assert numbers - set(settings.SIZE_KEYS) == set(settings.RANGES)
    assert {*settings.SIZE_KEYS, *settings.PATH_KEYS} <= set(dict(iter_values(Config())))


def test_yaml_is_not_imported_without_a_file() -> None:
    import subprocess

    code = "import sys; from memwatch.config.load import load_config; load_config(flags={'pid': 5}); "
    code += "sys.exit('yaml' in sys.modules)"
    source = str(Path(settings.__file__).parents[2])
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": source})
