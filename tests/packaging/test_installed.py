"""The wheel in use, without any extra and with the sources out of reach; beside the package `watchdog`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memwatch import __version__
from memwatch.cli import main
from support import smoke
from support.logs import deep_learning, further, logs_of, plain, reinforcement, search
from support.wheels import ROOT, Installed, Package, environment, hiding


def test_the_sources_are_out_of_reach(installed: Installed) -> None:
    if not hiding():
        pytest.skip("nothing can be mounted here: the sources are there, if on no path")
    assert not installed.run(*hiding(), "ls", "-A", str(ROOT)).stdout
    assert (ROOT / "pyproject.toml").exists(), "for others they are there"


def test_it_is_the_wheel_that_is_imported_and_there_is_no_package_watchdog(installed: Installed) -> None:
    code = "import memwatch, importlib.util as u; print(memwatch.__file__, u.find_spec('watchdog'))"
    file, watchdog = installed.run(installed.python, "-c", code).stdout.split()
    assert Path(file).is_relative_to(installed.packages)
    assert watchdog == "None"


def command_words(parser: argparse.ArgumentParser, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield above
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from command_words(child, (*above, name))


def test_every_command_has_help(installed: Installed) -> None:
    every = list(command_words(main._parser()))
    assert len(every) > 15
    asked = [installed.start(*words, "--help", stdout=subprocess.PIPE) for words in every]
    for words, one in zip(every, asked, strict=True):
        assert one.communicate(timeout=60)[0].startswith(" ".join(["usage: memwatch", *words]))
        assert one.returncode == 0


def test_it_tells_its_version_and_commit(made: Package, installed: Installed) -> None:
    lines = smoke.said(installed, "--version").splitlines()
    assert lines[:2] == [f"memwatch {__version__}", f"build     commit {made.commit} of 2026-02-03"]
    assert lines[-2] == f"extras    none; not installed: {', '.join(smoke.EXTRA)}"
    assert lines[-1] == f"files     {installed.packages / 'memwatch'}"
    assert "missing" not in lines[4]


def test_its_metrics_tell_the_commit(made: Package, installed: Installed) -> None:
    code = "from memwatch.system.clock import SystemClock; "
    code += "from memwatch.outputs.metrics.collector import MetricsCollector; "
    code += "print(MetricsCollector(lambda: None, {}, SystemClock()).render()[0].decode())"
    told = installed.run(installed.python, "-c", code).stdout
    version = ".".join(map(str, sys.version_info[:3]))
    labels = f'commit="{made.commit}",python="{version}",version="{__version__}"'
    assert f"memwatch_build_info{{{labels}}} 1.0\n" in told


def test_it_has_its_manual_page_and_completion(installed: Installed) -> None:
    assert smoke.said(installed, "man") == (ROOT / "docs" / "manual" / "memwatch.1").read_text()
    for shell, name in (("bash", "memwatch.bash"), ("zsh", "_memwatch"), ("fish", "memwatch.fish")):
        assert smoke.said(installed, "completion", shell) == (ROOT / "docs" / "manual" / name).read_text()


def test_a_day_with_it(installed: Installed, tmp_path: Path) -> None:
    smoke.use(installed, tmp_path)


def test_the_demo_begins_and_is_stopped(installed: Installed) -> None:
    smoke.demo(installed)


# --- logs -----------------------------------------------------------------------------------------------------------


LOGS = {
    log.name: log
    for module in (deep_learning, further, plain, reinforcement, search)
    for log in reversed(logs_of(vars(module)))
}
OF_EACH_KIND = {  # a log for each preset that the tests have one of, and for each way to find a counter without any
    "keras": "keras_verbose_2",
    "words": "nanogpt",
    "boosting": "xgboost",
    "espnet": "espnet",
    "evolutionary": "trading_agents",
    "lightning": "lightning_1_x",
    "neat": "neat_python",
    "timm": "timm",
    "torchtune": "torchtune",
    "bar": "tqdm_in_a_step_loop",
    "boxed table": "spinningup",
    "counter": "jax_clu",
    "table": "fastai",
}
BY_KIND = [
    pytest.param(kind, name, marks=[] if kind in ("keras", "words") else pytest.mark.thorough, id=kind)
    for kind, name in OF_EACH_KIND.items()
]


@pytest.mark.parametrize(("kind", "name"), BY_KIND)
def test_a_trainer_with_a_log_of_each_kind_is_watched(
    installed: Installed, tmp_path: Path, kind: str, name: str
) -> None:
    log = LOGS[name]
    events = smoke.watch_log(installed, tmp_path, log.raw)
    told = [event["gen"] for event in events if event["event"] == "marker"]
    assert told[-1] == log.markers[-1].index
    found = json.loads(smoke.said(installed, "markers", str(tmp_path / "main.log"), "--json"))
    assert (found["preset"], found["unit"]) == (kind, log.unit)
    assert events[-1]["event"] == "exited"


# --- beside watchdog ------------------------------------------------------------------------------------------------

BOTH = """
import sys, tempfile, memwatch, memwatch.app.watch_loop, watchdog
from watchdog.observers import Observer
assert not memwatch.__file__.startswith(watchdog.__path__[0])
observer = Observer()
observer.schedule(type("H", (), {"dispatch": print})(), tempfile.gettempdir())
observer.start(); observer.stop(); observer.join()
"""


@pytest.fixture
def beside(made: Package, tmp_path: Path) -> Installed:
    return environment(tmp_path / "beside", made, besides=["watchdog"])


def test_it_works_beside_the_package_watchdog(beside: Installed) -> None:
    both = beside.run(beside.python, "-c", BOTH)
    assert both.returncode == 0, both.stderr
    assert beside.run(beside.python, "-m", "memwatch", "--version").returncode == 0
    theirs = {str(path.relative_to(beside.packages)) for path in (beside.packages / "watchdog").rglob("*.py")}
    [record] = beside.packages.glob("memwatch-*.dist-info/RECORD")
    ours = {line.split(",")[0] for line in record.read_text().splitlines()}
    assert theirs
    assert not any(name.startswith("watchdog") for name in ours)


@pytest.mark.parametrize("leaving", ["watchdog", "memwatch"])
def test_either_can_leave(beside: Installed, leaving: str) -> None:
    pip = beside.run(sys.executable, "-m", "pip", "--python", beside.python, "uninstall", "-q", "-y", leaving)
    assert pip.returncode == 0, pip.stderr
    left = {name: beside.run(beside.python, "-c", f"import {name}").returncode for name in ("watchdog", "memwatch")}
    assert left == {"watchdog": 0, "memwatch": 0} | {leaving: 1}
    assert not [path for path in (beside.packages / leaving).rglob("*") if path.is_file()]
    if leaving == "watchdog":
        smoke.said(beside, "doctor", "--listen", "none")
