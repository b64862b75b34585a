"""The recording and alert rules: promtool's unit tests; each alert is tested, explained and made of known metrics."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from memwatch.outputs.metrics.metric_registry import FAMILIES
from support.needed import needs_program

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "configs" / "prometheus"
RULES = [
    rule for group in yaml.safe_load((FOLDER / "memwatch.rules.yml").read_text())["groups"] for rule in group["rules"]
]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
TESTS = sorted((FOLDER / "tests").glob("*.yml"))

every_alert = pytest.mark.parametrize("name", sorted(ALERTS))
needs_promtool = needs_program("promtool")


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)


@needs_promtool
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_alerts_fire_when_they_should_and_do_not_flap(path: Path):
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_a_rule_that_is_wrong_fails_its_tests(tmp_path: Path):
    text = (FOLDER / "memwatch.rules.yml").read_text()
    (tmp_path / "memwatch.rules.yml").write_text(text.replace("for: 3m", "for: 3h").replace("[5m]", "[15s]"))
    (tmp_path / "tests").mkdir()
    for name in ("down.yml", "out_of_memory_soon.yml"):
        spoiled = tmp_path / "tests" / name
        shutil.copy(FOLDER / "tests" / name, spoiled)
        assert promtool("test", "rules", spoiled).returncode != 0, name


@needs_promtool
def test_the_example_loads_them():
    done = promtool("check", "config", FOLDER / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rule files found" in done.stdout


def cases(name: str) -> dict[str, dict[str, Any]]:
    """The unit tests of an alert, by their kind."""
    found = {}
    for test in (one for path in TESTS for one in yaml.safe_load(path.read_text())["tests"]):
        alert, _, kind = test["name"].partition(":")[0].partition(", ")
        if alert == name:
            found[kind] = test
            assert {check["alertname"] for check in test["alert_rule_test"]} == {name}
    return found


@every_alert
def test_each_has_a_firing_a_silent_and_a_flapping_case(name: str):
    tests = cases(name)
    assert set(tests) - {"armed"} == {"firing", "silent", "flapping"}
    severities = {rule["labels"]["severity"] for rule in RULES if rule.get("alert") == name}
    assert ("armed" in tests) == (len(severities) == 2), "whoever saves the run itself wakes nobody"
    fires = {kind: [bool(check["exp_alerts"]) for check in test["alert_rule_test"]] for kind, test in tests.items()}
    assert any(fires["firing"]) and not all(fires["firing"]), "it begins, or ends"
    assert not any(fires["silent"])
    [always] = tests["flapping"]["promql_expr_test"]
    assert always["expr"] == f'count_over_time(ALERTS{{alertname="{name}",alertstate="firing"}}[20m])'
    assert [sample["value"] for sample in always["exp_samples"]] in ([], [41]), "at no time, or at each"


@every_alert
def test_each_says_what_it_means_and_what_to_do(name: str):
    for rule in (one for one in RULES if one.get("alert") == name):
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description", "runbook", "runbook_url"}
        assert all(text and "\n" not in text for text in rule["annotations"].values())
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{name.lower()}"


def test_the_example_for_alertmanager_names_alerts_that_there_are():
    document = yaml.safe_load((ROOT / "configs" / "prometheus" / "alertmanager.yml").read_text())
    named = [
        name
        for rule in document["inhibit_rules"]
        for side in rule.values()
        for name in re.findall(r"Memwatch\w+", str(side))
    ]
    assert named and set(named) <= set(ALERTS)
    receivers = {one["name"] for one in document["receivers"]}
    assert {document["route"]["receiver"], *(one["receiver"] for one in document["route"]["routes"])} <= receivers


def test_each_has_its_runbook_and_each_runbook_its_alert():
    text = (ROOT / "docs" / "runbooks.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(ALERTS)
    for name, section in sections.items():
        assert re.findall(r"^- \*\*([\w ]+)\*\*:", section, re.MULTILINE) == ["Means", "Look at", "Do"], name


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_every_metric_is_in_the_registry_or_recorded(rule: dict[str, Any]):
    known = {one.sample_name for one in FAMILIES} | {one["record"] for one in RULES if "record" in one}
    asked = set(re.findall(r"[\w:]*memwatch_[\w:]+|\bprocess_\w+", re.sub(r'"[^"]*"', "", rule["expr"])))
    assert asked and asked <= known


@pytest.mark.parametrize(
    ("path", "key"), [("datasources/prometheus.yaml", "datasources"), ("dashboards/memwatch.yaml", "providers")]
)
def test_the_provisioning_example_is_whole(path: str, key: str):
    document = yaml.safe_load((ROOT / "configs" / "grafana" / "provisioning" / path).read_text())
    assert document["apiVersion"] == 1
    [one] = document[key]
    assert one["type"] in {"prometheus", "file"} and one["name"]
