"""The documents say what is true: links, commands, events, exit codes, causes, keys and rooms are those of the code."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from memwatch.actions.interrupt_hook import fill_placeholders
from memwatch.cli import main
from memwatch.cli.watch_serve_markers import EXIT_CODE_BY_CAUSE
from memwatch.config.load import load_config
from memwatch.config.settings import Config
from memwatch.core import events
from memwatch.core.decision.interrupt_rule import InterruptDecision
from memwatch.core.decision.policy import Policy
from memwatch.core.engine import notices
from memwatch.core.engine.resource_state import MonitoredResource
from memwatch.core.engine.status_sentence import forecast_fields
from memwatch.core.events import Cause
from memwatch.core.forecast.forecaster import Forecaster
from memwatch.core.forecast.outlook import Outlook
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.measurements import Limit, Usage
from memwatch.core.snapshot import PlannedInterrupt, Verdict
from memwatch.errors import ConfigError, ExitCode
from memwatch.sources.log.marker_presets import _PRESET_KEYS, _RULE_KEYS, RULE_KINDS
from support.markdown import rows, section, words

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "watchdog" / "memwatch"
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(page for name in ("docs", "examples", "configs", "systemd") for page in (ROOT / name).rglob("*.md")),
    ]
)
IN_EVERY_EVENT = {"event", "t", "text"}

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def text_of(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def without_code(text: str) -> str:
    """Prose alone: what looks like a link in a block of code is none."""
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^ {4,}.*$", "", text, flags=re.MULTILINE)


# --- links and paths ------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    titles = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@every_page
def test_every_relative_link_resolves(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            broken.append(target)
    assert not broken


def test_the_readme_links_to_each_page_once() -> None:
    linked = re.findall(r"\]\(([^)\s#]+)", without_code((ROOT / "README.md").read_text()))
    assert sorted(linked) == sorted(set(linked))


def test_every_document_can_be_reached_from_the_readme() -> None:
    reached, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)\s:]+)\)", without_code(page.read_text()))
        queue += [(page.parent / link.partition("#")[0]).resolve() for link in links]
    assert not set(PAGES) - reached


@every_page
def test_no_machine_is_named(page: Path) -> None:
    foreign = re.findall(
        r"(?<![\w.])/(?:root|work|home/\w+|Users/\w+|tmp/\w{8,})\b[\w/.-]*|\.pyenv|process_api", page.read_text()
    )
    assert not foreign
    assert str(ROOT) not in page.read_text()


# --- commands -------------------------------------------------------------------------------------------------------


def typed(console: str) -> str:
    return "\n".join(line for line in console.splitlines() if line.startswith(("$ ", "```")))


def command_lines(text: str) -> Iterator[str]:
    """Every `memwatch ...` in a line of code or in backticks; what a console prints below its `$` is none."""
    text = re.sub(r"^```console$.*?^```$", lambda block: typed(block[0]), text, flags=re.MULTILINE | re.DOTALL)
    for line in re.findall(r"^ *(?:\$ )?(memwatch(?: .*)?)$", re.sub(r"\\\n\s*", " ", text), re.MULTILINE):
        if line in without_code(text).splitlines():
            continue  # a line of prose
        yield line
    yield from re.findall(r"`(memwatch(?: [^`\n]*)?)`", text)


def own_words(line: str) -> list[str]:
    """A command line's words as its shell hands them to memwatch."""
    lexer = shlex.shlex(line.replace("$!", "1234"), posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    found = []
    for word in lexer:
        if set(word) <= set("|&;<>"):
            break
        found.append(word)
    return found[1:]


def is_only_a_name(arguments: list[str]) -> bool:
    """`memwatch markers` in a sentence is the name of a command."""
    return arguments in (["markers"], ["replay"], ["run"])


@every_page
def test_every_command_line_is_understood(page: Path) -> None:
    for line in command_lines(page.read_text()):
        arguments = own_words(line)
        if is_only_a_name(arguments) or arguments in (["--help"], ["--version"]):
            continue
        if "--" not in arguments and arguments[:1] == ["run"]:
            arguments += ["--", "true"]  # shortened in a sentence: `memwatch run --json`
        try:
            main._parse(arguments)
        except ConfigError as error:
            pytest.fail(f"{line!r}: {error}")


def test_the_check_of_command_lines_finds_what_is_wrong() -> None:
    text = "    memwatch --no-such-flag 1\n\nand `memwatch launch x` in a sentence, memwatch itself not\n"
    text += "\n```console\n$ memwatch fly\nmemwatch 0.1.0\n```\n"
    assert list(command_lines(text)) == ["memwatch --no-such-flag 1", "memwatch fly", "memwatch launch x"]
    for line in command_lines(text):
        with pytest.raises(ConfigError):
            main._parse(own_words(line))
    assert own_words("memwatch run -- python 'a b.py' > main.log 2>&1 & # c") == ["run", "--", "python", "a b.py"]


# --- events ---------------------------------------------------------------------------------------------------------


@cache
def emitted() -> dict[str, set[str]]:
    """The events that the core tells and the fields of each, read from its calls of Notice()."""
    found: dict[str, set[str]] = {}
    for path in sorted((PACKAGE / "core").rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and called(call) == "Notice":
                    for name in possible_texts(call.args[1], function):
                        found.setdefault(name, set()).update(fields_of(call, function))
    return found


def called(call: ast.Call) -> str:
    return getattr(call.func, "id", "") or getattr(call.func, "attr", "")


def possible_texts(node: ast.expr, function: ast.FunctionDef) -> list[str]:
    """The values of an expression that is a text, a choice of two, or a local name for one."""
    if isinstance(node, ast.Constant):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return possible_texts(node.body, function) + possible_texts(node.orelse, function)
    assert isinstance(node, ast.Name), f"the name of an event in {function.name} cannot be read: {ast.unparse(node)}"
    given = [
        one.value
        for one in ast.walk(function)
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == node.id
    ]
    assert given, f"the name of an event in {function.name} comes from elsewhere: {node.id}"
    return [text for value in given for text in possible_texts(value, function)]


def fields_of(call: ast.Call, function: ast.FunctionDef) -> set[str]:
    return keys_of(call.args[3], function) if len(call.args) > 3 else set()


def keys_of(node: ast.expr, function: ast.FunctionDef) -> set[str]:
    """The keys of a dict, or of a local name for one, or of a call that makes one."""
    if isinstance(node, ast.Call) and called(node) == "_fields":
        return outlook_fields()
    if isinstance(node, ast.Call) and called(node) == "_event_fields":
        event = next(ast.unparse(one.annotation) for one in function.args.args if one.arg == "event" and one.annotation)
        return {field.name for field in fields(getattr(events, event.rpartition(".")[2]))} - IN_EVERY_EVENT
    if isinstance(node, ast.Name) and node.id == "decided":
        return {"kind", "samples", "threshold"}
    if isinstance(node, ast.Name):
        assigned = (one for one in ast.walk(function) if isinstance(one, ast.Assign))
        node = next(one.value for one in assigned if ast.unparse(one.targets[0]) == node.id)
    assert isinstance(node, ast.Dict), ast.unparse(node)
    named = {key.value for key in node.keys if isinstance(key, ast.Constant)}
    spread = [keys_of(value, function) for key, value in zip(node.keys, node.values, strict=True) if key is None]
    return named.union(*spread)


def outlook_fields() -> set[str]:
    return set(forecast_fields(Usage("host", 1, None), None, Outlook(Verdict.STABLE, None, None)))


@cache
def documented() -> dict[str, set[str]]:
    """The table of events; "outlook" stands for the fields of the table below it."""
    table = {}
    for name, _, cell in (row for row in rows(section(text_of("events.md"), "Events")) if len(row) == 3):
        listed = set(words(cell))
        if re.match(r"outlook\b", cell):
            listed |= outlook_fields()
        table[words(name)[0]] = listed
    return table


def test_the_events_of_the_table_are_those_that_the_code_tells() -> None:
    assert set(documented()) == set(emitted())


@pytest.mark.parametrize("event", sorted(emitted()))
def test_the_fields_of_an_event_are_those_of_the_table(event: str) -> None:
    assert documented()[event] == emitted()[event]
    assert not emitted()[event] & IN_EVERY_EVENT, "a field of its own would hide the common one"


def test_the_fields_of_an_outlook_are_those_of_the_table() -> None:
    table = [row for row in rows(section(text_of("events.md"), "Events")) if len(row) == 2]
    assert {word for row in table for word in words(row[0])} == outlook_fields()


def test_what_a_decision_stood_on_is_that_of_the_table() -> None:
    limit = Limit(10, "host", 9)
    track = MonitoredResource(Usage("host", 1, limit), Forecaster, 0.0)
    interrupt = notices.interrupt_evidence(
        Policy(), track, InterruptDecision(track.usage, "time"), 1.0, (1.0, "assumed")
    )
    planned = PlannedInterrupt(None, None)
    warning = notices.warning(0.0, GenerationLedger(), track, planned, policy=Policy(), step_seconds=None).fields
    told = {words(name)[0] + name.rpartition("`")[2]: set(words(cell)) for name, cell in stood_on()}
    assert told["threshold of an interrupt"] == set(interrupt["threshold"])
    assert told["threshold of a warning"] == set(warning["threshold"])
    assert {name.split()[0] for name in told} == set(interrupt) - {"kind"} == set(warning) - outlook_fields()


def stood_on() -> list[list[str]]:
    return rows(section(text_of("events.md"), "What a decision stood on"))


# --- exit codes, causes, keys, rooms --------------------------------------------------------------------------------


def test_the_exit_codes_are_those_of_the_code() -> None:
    listed = [int(row[0]) for row in rows(section(text_of("events.md"), "Exit codes"))]
    assert listed == [int(code) for code in ExitCode]


def test_the_causes_and_their_exit_codes_are_those_of_the_code() -> None:
    table = rows(section(text_of("events.md"), "Exit codes"))
    listed = {cause: int(code) for code, _, causes in table for cause in words(causes)}
    assert listed == {cause.value: int(EXIT_CODE_BY_CAUSE.get(cause, ExitCode.FAILED)) for cause in Cause}
    told = rows(section(text_of("concepts.md"), "The cause of an end"))
    assert {word for row in told for word in words(row[1])} == {cause.value for cause in Cause}


def test_the_verdicts_are_those_of_the_code() -> None:
    listed = [words(row[0])[0] for row in rows(section(text_of("concepts.md"), "Trend and verdict"))]
    assert listed == [verdict.value for verdict in Verdict]


def keys(value: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every key of a configuration with its default."""
    for one in fields(value):  # type: ignore[arg-type]
        inner = getattr(value, one.name)
        if is_dataclass(inner):
            yield from keys(inner, f"{prefix}{one.name}.")
        else:
            yield prefix + one.name, list(inner) if isinstance(inner, tuple) else inner


def test_every_key_of_the_configuration_is_listed_with_its_default() -> None:
    table = rows(text_of("configuration.md").split("\n## ")[0])
    assert {words(row[0])[0]: yaml.safe_load(words(row[1])[0]) for row in table} == dict(keys(Config()))


def test_the_keys_and_kinds_of_a_rule_are_those_of_the_code() -> None:
    text = section(text_of("markers.md"), "Keys")
    known = set(_RULE_KEYS).union(*(kind.keys for kind in RULE_KINDS.values()))
    assert {words(row[0])[0] for row in rows(text) if len(row) == 2} == known
    assert {words(row[0])[0] for row in rows(text) if len(row) == 3} == set(RULE_KINDS)
    assert set(_PRESET_KEYS) <= set(words(text.partition("|")[0]))


def test_the_presets_are_those_that_are_there() -> None:
    listed = {words(row[0])[0] for row in rows(section(text_of("markers.md"), "Presets"))} | {"common", "out_of_memory"}
    assert listed == {path.stem for path in (ROOT / "configs" / "markers").glob("*.yaml")}


FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(PACKAGE)))
def test_every_folder_says_what_is_in_it_and_where_to_start_reading(folder: Path) -> None:
    told = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    assert "Start reading in" in told
    for word in re.findall(r"`(\w+)`", told.partition("Start reading in")[2]):
        assert (folder / f"{word}.py").exists() or word in told.partition("Start reading in")[0], word


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(PACKAGE)))
def test_no_folder_is_crowded(folder: Path) -> None:
    assert len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= 16


def test_every_module_that_the_architecture_names_exists() -> None:
    folders = "|".join(sorted(folder.name for folder in FOLDERS if folder.parent == PACKAGE))
    pages = [text_of("architecture.md"), *(page.read_text() for page in (ROOT / "docs" / "decisions").glob("*.md"))]
    named = {name for page in pages for name in re.findall(rf"`((?:{folders})(?:\.[a-z_0-9]+)+)`", page)}
    modules = {".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py")}
    known = modules | {name.removesuffix(".__init__") for name in modules}
    assert len(named) > 40
    settings = {name for name, _ in keys(Config())}
    assert named - known - settings == set()


WALKS = [block for block in text_of("architecture.md").split("\n### ") if "\n1. " in block]


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.partition("\n")[0])
def test_a_walk_through_the_code_has_at_most_twelve_steps(walk: str) -> None:
    assert 5 < len(re.findall(r"^\d+\. ", walk, re.MULTILINE)) <= 12


def test_only_the_package_itself_is_at_its_top() -> None:
    for_programs = {"marking.py", "callbacks.py", "testing.py"}  # what others import
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py", "errors.py", *for_programs}


# --- recipes --------------------------------------------------------------------------------------------------------


def recipes() -> list[dict[str, Any]]:
    """The hooks that ranks.md recommends."""
    blocks = re.findall(r"```yaml\n(actions:.*?)```", text_of("ranks.md"), re.DOTALL)
    return [yaml.safe_load(block) for block in blocks]


@pytest.mark.parametrize("recipe", recipes(), ids=lambda one: one["actions"]["hook"][0])
def test_every_recipe_is_accepted(recipe: dict[str, Any], tmp_path: Path) -> None:
    program, *words = recipe["actions"]["hook"]
    stand_in = tmp_path / Path(program).name
    stand_in.write_text("#!/bin/sh\n")
    stand_in.chmod(0o755)
    recipe["actions"]["hook"] = [str(stand_in), *words]
    assert load_config(text=yaml.safe_dump(recipe)).actions.hook == (str(stand_in), *words)


def test_what_suspends_a_job_is_json() -> None:
    [hook] = [one["actions"]["hook"] for one in recipes() if one["actions"]["hook"][0] == "kubectl"]
    assert json.loads(fill_placeholders(hook[-1], {})) == {"spec": {"suspend": True}}


@pytest.mark.parametrize(("scancel", "statuses", "calls"), [("true", [0, 0], 1), ("false", [1, 1], 2)])
def test_the_script_that_stops_a_job_does_so_once(
    tmp_path: Path, scancel: str, statuses: list[int], calls: int
) -> None:
    [script] = re.findall(r"```sh\n(.*?)```", text_of("ranks.md"), re.DOTALL)
    stand_in = tmp_path / "scancel"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{scancel}\n')
    stand_in.chmod(0o755)
    command = ["sh", "-c", script, "stop-job", "7", "0"]
    environ = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert [subprocess.run(command, env=environ, check=False).returncode for _ in statuses] == statuses
    assert (tmp_path / "calls").read_text() == "--signal=INT 7.0\n" * calls
    lost = subprocess.run(command, env={**environ, "HOME": "/nowhere"}, check=False)
    assert lost.returncode != 0
