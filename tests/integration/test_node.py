"""`memwatch serve` with rules: all trainers of a node, as real processes that leak, crash, hang and come anew."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from memwatch.app.node.node_service import HUNG_SECONDS
from memwatch.errors import ExitCode
from support.mainjob import PATIENCE_SECONDS, Folder, Memwatch, memwatch, until

pytestmark = pytest.mark.integration

LEAK = Path(__file__).parents[1] / "programs" / "leak.py"
CALM = "import sys, time\nfor g in range(10_000): print(f'Generation {g + 1}/10000', flush=True); time.sleep(0.2)"
FAST = "policy: {confirmation_seconds: 0.2, checkpoint_seconds: 0.5, save_timeout_seconds: 4}\n"
QUICK = "daemon: {wait_seconds: 0.2}\nmemory: {interval_seconds: 0.1, limit: 150MB}\n"


class Node:
    """A configuration and trainers, each in a folder of its own."""

    def __init__(self, path: Path) -> None:
        self.path, self.folder, self.file = path, Folder(path), path / "memwatch.yaml"
        self.mark = f"node-{os.getpid()}-{path.name}"
        self._stack = ExitStack()
        self.configure(f"{{match: {self.mark}-observed, policy: observe}}", f"{{match: {self.mark}-watched}}")

    def configure(self, *rules: str) -> None:
        text = f"node: {{trainers: [{', '.join(rules)}]}}\nlisten: '127.0.0.1:0'\n{FAST}{QUICK}"
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.file)

    def start(self, name: str, *words: str, program: str = CALM) -> subprocess.Popen[bytes]:
        """A trainer, whose file has its name."""
        place = self.path / name
        place.mkdir()
        file = place / f"{self.mark}-{name}.py"
        file.write_text(program)
        command = [sys.executable, "-u", str(file), *words]
        with (place / "main.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=place, stdout=log, stderr=log, start_new_session=True)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.delenv("MEMWATCH_DAEMON__END_PAGE_SECONDS", raising=False)
    one = Node(tmp_path)
    yield one
    one.close()


@pytest.fixture
def serve(node: Node) -> Iterator[Callable[..., Memwatch]]:
    with ExitStack() as stack:

        def starts(*arguments: str, name: str = "memwatch") -> Memwatch:
            words = ("serve", "--config", str(node.file), "--json", *arguments)
            service = stack.enter_context(memwatch(node.folder, *words, name=name))
            until(lambda: service.named("note") or service.process.poll() is not None)
            return service

        yield starts


def page(service: Memwatch, path: str) -> str:
    [*_, note] = [one["text"] for one in service.named("note") if "metrics and status" in one["text"]]
    with urllib.request.urlopen(note.split()[-1] + path, timeout=10) as answer:
        return answer.read().decode()


def rows(service: Memwatch) -> dict[int, dict[str, Any]]:
    """The trainers that are shown; none while nobody answers."""
    try:
        return {one["pid"]: one for one in json.loads(page(service, "status.json"))["trainers"]}
    except OSError:
        return {}


def sampled(service: Memwatch, *pids: int) -> None:
    until(lambda: all((rows(service).get(pid) or {}).get("used") for pid in pids))


def watchers(service: Memwatch) -> list[int]:
    """The children of the supervisor, first the one that answers HTTP."""
    text = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read_text()
    return [int(pid) for pid in text.split()]


def test_each_is_watched_as_its_rule_says_and_shown(node: Node, serve: Callable[..., Memwatch]) -> None:
    watched, observed, other = node.start("watched"), node.start("observed"), node.start("other")
    service = serve()
    sampled(service, watched.pid, observed.pid)
    found = rows(service)
    assert other.pid not in found
    assert (found[watched.pid]["policy"], found[observed.pid]["policy"]) == ("watch", "observe")
    until(lambda: (rows(service)[watched.pid]["gen"] or 0) >= 2)
    metrics = page(service, "metrics")
    assert "memwatch_node_trainers 2.0" in metrics
    for pid, armed in ((watched.pid, "1.0"), (observed.pid, "0.0")):
        own = f'instance="{os.uname().nodename}/{pid}",pid="{pid}"'
        assert re.search(rf'^memwatch_memory_used_bytes{{{own},resource="host"}} [1-9]', metrics, re.MULTILINE)
        assert f"memwatch_target_up{{{own}}} 1.0" in metrics
        assert f"memwatch_armed{{{own}}} {armed}" in metrics
    assert metrics.count("# TYPE memwatch_memory_used_bytes ") == 1
    whole = page(service, "")
    assert "2 trainers on" in whole and f'href="trainers/{watched.pid}/"' in whole
    own = page(service, f"trainers/{watched.pid}/")
    assert f"PID {watched.pid}" in own and 'href="metrics"' in own
    assert json.loads(page(service, f"trainers/{watched.pid}/status.json"))["target"]["pid"] == watched.pid
    assert f"PID {watched.pid}" in page(service, f"trainers/{watched.pid}"), "it leads to the same page"
    assert page(service, "-/healthy") == "ok\n" and page(service, "-/ready") == "ready: 2 trainers\n"
    pids = {one.get("pid") for one in service.events() if one["event"] != "note"}
    assert pids == {watched.pid, observed.pid}, "each line names its trainer"
    service.process.terminate()
    assert service.wait(20) == ExitCode.ENDED
    assert watched.poll() is None and observed.poll() is None


def test_one_is_interrupted_and_saves_and_no_other_is_touched(node: Node, serve: Callable[..., Memwatch]) -> None:
    service, words = serve(), ("saves", "60", "12", "0.3")
    watched, observed = (node.start(name, *words, program=LEAK.read_text()) for name in ("watched", "observed"))
    calm = node.start("watched2")
    until(lambda: [one for one in service.named("exited") if one["pid"] == watched.pid])
    assert watched.wait(20) == 130 and (node.path / "watched" / "state.ckpt").exists()
    [end] = [one for one in service.named("exited") if one["pid"] == watched.pid]
    assert end["cause"] == "interrupted_saved"
    until(lambda: [one for one in service.named("warn") if one["pid"] == observed.pid])
    assert not (node.path / "observed" / "heard").exists() and calm.poll() is None
    until(lambda: not rows(service)[watched.pid]["up"])
    assert rows(service)[watched.pid]["severity"] == "ended_badly", "it did not reach its end"
    assert 'cause="interrupted_saved"' in page(service, "metrics")
    assert "<title>ended" in page(service, f"trainers/{watched.pid}/")


@pytest.mark.parametrize(
    ("number", "seconds", "told"),
    [
        pytest.param(signal.SIGKILL, PATIENCE_SECONDS, "its watcher has failed (-9)", id="killed"),
        pytest.param(
            signal.SIGSTOP,
            HUNG_SECONDS + PATIENCE_SECONDS,
            "its watcher hangs, and is replaced",
            marks=[pytest.mark.thorough, pytest.mark.timeout(400)],
            id="hangs",
        ),
    ],
)
def test_a_watcher_that_is_lost_is_replaced_and_goes_on(
    node: Node, serve: Callable[..., Memwatch], number: signal.Signals, seconds: float, told: str
) -> None:
    one, two = node.start("watched"), node.start("watched2")
    service = serve()
    sampled(service, one.pid, two.pid)
    _, first, second = watchers(service)
    os.kill(first, number)
    until(lambda: len(service.named("attached")) == 3, seconds)
    again = service.named("attached")[-1]
    before = next(each for each in service.named("attached") if each["pid"] == again["pid"])
    assert again["run_id"] == before["run_id"] and again["pid"] in (one.pid, two.pid)
    assert second in watchers(service) and first not in watchers(service)
    assert any(told in each["text"] for each in service.named("note"))
    sampled(service, one.pid, two.pid)
    with sqlite3.connect(node.folder.history) as database:
        until(lambda: database.execute("select count(*) from runs").fetchone() == (2,))


def test_what_answers_http_is_replaced_and_knows_all_again(node: Node, serve: Callable[..., Memwatch]) -> None:
    one = node.start("watched")
    service = serve()
    sampled(service, one.pid)
    web, watcher = watchers(service)
    os.kill(web, signal.SIGKILL)
    until(lambda: web not in watchers(service) and len(watchers(service)) == 2)
    sampled(service, one.pid)
    assert watcher in watchers(service), "the watch went on"


def test_nothing_outlives_the_supervisor_but_the_trainers(node: Node, serve: Callable[..., Memwatch]) -> None:
    one = node.start("watched")
    service = serve()
    sampled(service, one.pid)
    children = watchers(service)
    service.kill()
    until(lambda: not any(_runs(pid) for pid in children))
    assert one.poll() is None


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_changed_file_is_followed_and_a_broken_one_is_not(node: Node, serve: Callable[..., Memwatch]) -> None:
    one, two = node.start("watched"), node.start("more")
    service = serve()
    sampled(service, one.pid)
    good = node.file.read_text()
    node.file.write_text("node: {trainers: [{match: '('}]}\n")
    until(lambda: any("not a regular expression" in each["text"] for each in service.named("note")))
    assert one.pid in rows(service)
    node.file.write_text(good)
    node.configure(f"{{match: {node.mark}}}")
    sampled(service, one.pid, two.pid)
    assert len({each["run_id"] for each in service.named("attached") if each["pid"] == one.pid}) == 1


def test_more_than_may_be_watched_are_named(node: Node, serve: Callable[..., Memwatch]) -> None:
    node.file.write_text(node.file.read_text().replace("node: {", "node: {most_trainers: 1, "))
    first = node.start("watched")
    service = serve()
    sampled(service, first.pid)
    second = node.start("watched2")
    until(lambda: any(f"PID {second.pid} is not watched" in each["text"] for each in service.named("note")))
    first.kill()
    time.sleep(0.1)
    assert service.process.poll() is None


def test_bad_rules_are_refused(node: Node) -> None:
    node.file.write_text("node: {trainers: [{match: '('}, {policy: kill}]}\n")
    done = subprocess.run(
        [sys.executable, "-m", "memwatch", "serve", "--config", str(node.file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=node.folder.environ(),
    )
    assert done.returncode == ExitCode.USAGE
    assert "node.trainers[0].match" in done.stderr or "node.trainers[1].policy" in done.stderr
    node.configure("{match: a}")
    for words in (("--match", "b"), ("--log", "x.log")):
        done = subprocess.run(
            [sys.executable, "-m", "memwatch", "serve", "--config", str(node.file), *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=node.folder.environ(),
        )
        assert done.returncode == ExitCode.USAGE and done.stderr.startswith("memwatch: "), done.stderr
