"""`memwatch config`: what is right and what is wrong, what comes of it here, the schema."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from memwatch.cli.config_commands import _yaml_lines
from memwatch.cli.main import main
from memwatch.config.load import load_config, load_with_origins
from memwatch.config.settings import Config
from memwatch.errors import ExitCode
from memwatch.system import json_and_yaml

EXAMPLE = Path(__file__).parents[2] / "configs" / "memwatch.yaml"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, list[str]]:
    """Exit code, stdout, and the lines of stderr."""
    code = main(arguments)
    output = capsys.readouterr()
    return code, output.out, output.err.splitlines()


def memwatch(*arguments: str, given_: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """As a program, with variables of its own."""
    env = {**os.environ, "PYTHONPATH": str(Path(json_and_yaml.__file__).parents[2]), **environ}
    command = [sys.executable, "-m", "memwatch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, input=given_, env=env, check=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "m.yaml"


# --- check ----------------------------------------------------------------------------------------------------------


def test_files_that_are_right_have_a_line_each(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text("profile: observe\nlisten: none\nhistory: none\n")
    code, out, err = said(capsys, "config", "check", str(file), str(EXAMPLE))
    assert (code, err) == (ExitCode.ENDED, [])
    first, second = out.splitlines()
    assert (
        first == f"{file}: valid: profile observe: never signals, as policy.act says; serves nothing; stores no history"
    )
    assert second.startswith(f"{EXAMPLE}: valid: interrupts with SIGINT or SIGTERM; listens at 127.0.0.1:9877; stores ")


def test_all_that_is_wrong_is_told_of_each_file(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text("listen: 5\npolicy:\n  confidence: 7\n")
    other = file.with_name("n.yaml")
    other.write_text("a: ]\n")
    code, out, err = said(capsys, "config", "check", str(file), str(EXAMPLE), str(other))
    assert code == ExitCode.USAGE
    assert [line.split(": ")[0] for line in out.splitlines()] == [str(EXAMPLE)]
    told = [line for line in err if line.startswith("memwatch: ")]
    assert [line.split(": ")[1] for line in told] == [f"{file}:1", f"{file}:3", f"{other}:1"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("log: {markers: nonsuch}", "log.markers: no preset is called 'nonsuch'"),
        ("log: {presets: [/nowhere.yaml]}", "/nowhere.yaml: "),
        ("log: {presets: [{rules: 5}]}", "log.presets[0]"),
        ("web_config: /nowhere.yml", "/nowhere.yml: No such file"),
        ("notify: {file: /nowhere}", "not"),  # installed, or readable
    ],
)
def test_what_a_watch_would_refuse_later_is_told_too(
    capsys: pytest.CaptureFixture[str], file: Path, text: str, told: str
) -> None:
    file.write_text(f"{text}\n")
    code, out, err = said(capsys, "config", "check", str(file))
    assert (code, out) == (ExitCode.USAGE, "")
    assert err[0].startswith(f"memwatch: {file}: ") and told in err[0]


def test_a_file_is_checked_as_it_would_be_used_here(file: Path) -> None:
    file.write_text("policy:\n  kill: true\n")
    assert memwatch("config", "check", MEMWATCH_CONFIG=str(file)).returncode == 0
    refused = memwatch("config", "check", str(file), MEMWATCH_POLICY__ACT="false")
    assert refused.returncode == ExitCode.USAGE
    assert refused.stderr.startswith("memwatch: $MEMWATCH_POLICY__ACT: policy.act is false")
    assert memwatch("config", "check", MEMWATCH_CONFIG="/nowhere").returncode == ExitCode.USAGE


# --- show -----------------------------------------------------------------------------------------------------------


def test_what_is_shown_is_right_and_says_where_it_is_from(file: Path) -> None:
    file.write_text("policy:\n  headroom_guard: 0.2\n")
    asked = ("config", "show", "--config", str(file), "--profile", "aggressive", "--match", 'a: "b" #c')
    shown = memwatch(*asked, MEMWATCH_MEMORY__LIMIT="175GB").stdout
    lines = {line.split(":")[0].strip(): line.partition(" # ")[2] for line in shown.splitlines() if " # " in line}
    assert lines["headroom_guard"] == f"{file}:2"
    assert lines["confidence"].startswith("profile aggressive:")
    assert (lines["limit"], lines["profile"]) == ("$MEMWATCH_MEMORY__LIMIT", "--profile")
    checked = memwatch("config", "check", "/dev/stdin", given_=shown)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout.startswith("/dev/stdin: valid: profile aggressive")
    assert load_config(None, shown).target.match == 'a: "b" #c'


def test_it_is_shown_as_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "config", "show", "--limit", "5GB", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["origins"], found["config"]["json"]) == ({"memory.limit": "--limit"}, False)
    assert load_config(None, yaml.safe_dump(found["config"])).memory.limit == "5GB"


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_no_password_is_shown(capsys: pytest.CaptureFixture[str], file: Path, form: tuple[str, ...]) -> None:
    file.write_text("notify: {urls: ['json://u:hunter2@h', hunter2]}\n")
    _, out, _ = said(capsys, "config", "show", "--config", str(file), *form)
    assert "hunter2" not in out
    assert "json://…" in out
    assert form or "cannot be used as it is" in out


@given(
    st.builds(
        lambda match, globs, limit, interval: {
            "target": {"match": match} if match else {},
            "checkpoint": {"globs": globs},
            "memory": {"limit": limit, "interval_seconds": interval},
            "log": {"presets": [{"name": glob, "rules": [1, None, 2.5, True]} for glob in globs]},
        },
        st.from_regex(r"[\w \n\t:#'\",\[\]~*&!|>%@-]{0,12}").filter(lambda text: text.count("[") == 0),
        st.lists(st.text(min_size=1, max_size=8), max_size=3),
        st.one_of(st.none(), st.integers(1, 2**62), st.just("175 GB")),
        st.floats(0.05, 3600),
    )
)
def test_what_is_shown_can_be_fed_back(data: dict[str, object]) -> None:
    text = yaml.safe_dump(data)
    try:
        config, origins = load_with_origins(None, text)
    except Exception:  # not a regular expression
        return
    assert load_config(None, "\n".join(_yaml_lines(config, origins))) == config


def test_the_defaults_are_shown_as_the_example_has_them() -> None:
    assert json_and_yaml.load_yaml("\n".join(_yaml_lines(Config(), {})), "shown") == json_and_yaml.load_yaml(
        EXAMPLE.read_text(), "example"
    )


# --- schema ---------------------------------------------------------------------------------------------------------


def test_the_schema_is_the_published_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "config", "schema")
    assert code == 0
    assert out == (EXAMPLE.parent / "memwatch.schema.json").read_text()


def test_only_the_command_pays_for_the_schema() -> None:
    code = (
        "import sys; from memwatch.cli import watch_serve_markers; watch_serve_markers.config_from_flags({'pid': 5}); "
    )
    code += "sys.exit(bool({'memwatch.config.json_schema', 'memwatch.cli.config_commands', 'yaml'} & {*sys.modules}))"
    environ = {"PYTHONPATH": str(Path(json_and_yaml.__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environ)


# --- in a watch -----------------------------------------------------------------------------------------------------


def test_a_watch_says_that_it_will_not_signal() -> None:
    options = ("--profile", "observe", "--listen", "none", "--history", "none")
    watched = memwatch("run", *options, "--", sys.executable, "-c", "import time; time.sleep(0.3)")
    assert (watched.returncode, "profile observe: never signals" in watched.stderr) == (0, True)
