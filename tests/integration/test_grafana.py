"""Every query of the dashboards and rules, run by a real Prometheus that scraped a whole run: each tells something."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from memwatch.outputs.metrics.metric_registry import FAMILIES, NODE_TRAINERS
from support.grafana import FILES, load, panels, queries
from support.mainjob import ROOT, free_port, until
from support.measure import ENVIRON
from support.needed import needs_program

pytestmark = [
    pytest.mark.integration,
    needs_program("prometheus"),
]
FOLDER = ROOT / "configs" / "prometheus"
POD = {"namespace": "training", "pod": "trainer-0", "container": "trainer"}  # as Prometheus finds them in a cluster
SCRAPES_AFTER_SECONDS = 3.0  # the end is scraped, and rules have seen it


@dataclass(frozen=True)
class Prometheus:
    """One that has scraped a run."""

    url: str
    instance: str
    began: float
    ended: float
    seen: float  # unix time of the last scrape that counts

    def get(self, path: str, **parameters: object) -> Any:
        """What its HTTP API answers."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=30) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]

    def over_time(self, expr: str) -> list[dict[str, Any]]:
        """The series of an expression over the run."""
        return self.get("query_range", query=expr, start=self.began, end=self.seen, step=1)["result"]

    def at(self, expr: str, t: float) -> list[dict[str, Any]]:
        return self.get("query", query=expr, time=t)["result"]

    @property
    def variables(self) -> dict[str, str]:
        """Of a dashboard, as somebody would choose them."""
        return {"job": "memwatch", "instance": self.instance, "resource": "(host|gpu0)"}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    with ExitStack() as held:
        run = subprocess.Popen(
            [sys.executable, "-m", "support.served_run"],
            env={**ENVIRON, "PYTHONPATH": f"{ROOT / 'watchdog'}:{ROOT / 'tests'}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        held.callback(ended, run)
        instance = run.stdout.readline().strip().removeprefix("http://").rstrip("/")
        address = f"127.0.0.1:{free_port()}"
        server = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={configured(folder, instance)}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
                "--log.level=warn",
            ],
            stderr=held.enter_context((folder / "log").open("w")),
        )
        held.callback(ended, server)
        until(lambda: answers(f"http://{address}/-/ready"))
        told = Prometheus(f"http://{address}", instance, *[time.time()] * 3)
        until(lambda: told.at("up", time.time()))  # what has grown before the first scrape is no increase
        began = time.time()
        print(file=run.stdin, flush=True)
        assert run.stdout.readline() == "ended\n"
        end = time.time()
        time.sleep(SCRAPES_AFTER_SECONDS)
        yield Prometheus(f"http://{address}", instance, began, end, time.time())


def ended(process: subprocess.Popen) -> None:
    process.kill()
    process.communicate()


def configured(folder: Path, instance: str) -> Path:
    """The example of a configuration, for this run."""
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(FOLDER / name) for name in config["rule_files"]]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [instance], "labels": POD}]
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except OSError:
        return False


def test_all_that_can_be_exported_was_scraped(prometheus: Prometheus):
    names = set(prometheus.get("label/__name__/values"))
    assert {one.sample_name for one in FAMILIES if one is not NODE_TRAINERS} == {
        name for name in names if name.startswith(("memwatch_", "process_"))
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_panel_is_empty(prometheus: Prometheus, path: Path):
    empty = []
    for query in queries(load(path)):
        found = prometheus.over_time(query.filled(prometheus.variables))
        if not any(value != "NaN" for series in found for _, value in series["values"]):
            empty.append(query.place)
    assert not empty


def test_the_tables_join_to_one_row_a_run(prometheus: Prometheus):
    [fleet] = [load(path) for path in FILES if path.stem == "memwatch-fleet"]
    [table] = [panel for panel in panels(fleet) if panel["title"] == "All runs"]
    t = prometheus.ended - 15  # it is near its limit, and still runs
    for query in queries({**fleet, "panels": [table], "templating": {"list": []}}):
        found = prometheus.at(query.filled(prometheus.variables), t)
        assert [series["metric"] for series in found] == [{"job": "memwatch", "instance": prometheus.instance}], query


def test_the_run_is_in_the_tables_of_nodes_and_pods(prometheus: Prometheus):
    [fleet] = [load(path) for path in FILES if path.stem == "memwatch-fleet"]
    tables = {panel["title"]: panel for panel in panels(fleet)}
    rows = {
        "Nodes": {"node": prometheus.at("memwatch_run_info", prometheus.ended - 15)[0]["metric"]["node"]},
        "Pods": {**POD, "job": "memwatch", "instance": prometheus.instance},
    }
    for title, row in rows.items():
        for query in queries({**fleet, "panels": [tables[title]], "templating": {"list": []}}):
            found = prometheus.at(query.filled(prometheus.variables), prometheus.ended - 15)
            assert [series["metric"] for series in found] == [row], query


def test_the_rules_are_evaluated_and_the_alerts_of_this_run_fired(prometheus: Prometheus):
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}, [rule for rule in rules if rule["health"] != "ok"]
    recorded = [rule["name"] for rule in rules if rule["type"] == "recording"]
    assert all(prometheus.over_time(name) for name in recorded)
    fired = {one["metric"]["alertname"] for one in prometheus.over_time('ALERTS{alertstate="firing"}')}
    of_memory = {"MemwatchOutOfMemorySoon", "MemwatchRunOutOfMemorySoon"}
    assert fired == {*of_memory, "MemwatchInterruptSent", "MemwatchExpectationBroken"}
    pending = {one["metric"]["alertname"] for one in prometheus.over_time('ALERTS{alertstate="pending"}')}
    assert "MemwatchSourceFailing" in pending
