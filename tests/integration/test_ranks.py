"""8 ranks on 2 hosts: Prometheus names the first to run out, and the hook of its node stops the whole run."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from memwatch.errors import ExitCode
from support.hosts import Host, hosts, inner
from support.mainjob import ROOT, Folder, Memwatch, until
from support.needed import needs_program

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(240),
    needs_program("prometheus"),
    pytest.mark.skipif(os.geteuid() != 0, reason="takes root, for hosts of namespaces"),
]
PROGRAMS = ROOT / "tests" / "programs"
PER_NODE = 4
GENERATIONS, SECONDS = 200, 0.5

SCANCEL = f"""#!{sys.executable}
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as manager:
    manager.connect(os.environ["MANAGER"])
    manager.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
    answer = manager.makefile().readline().strip()
print(answer)
sys.exit(answer != "signalled")
"""


class Manager:
    """A job manager: at the word of `scancel` it signals the job's processes on all hosts."""

    def __init__(self, path: Path) -> None:
        self.path, self.asked, self.jobs = path, list[list[str]](), dict[str, list[int]]()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            with client, client.makefile("rw") as lines:
                words = json.loads(lines.readline())
                self.asked.append(words)
                option, job = words
                for pid in self.jobs.get(job, ()):
                    os.kill(pid, signal.Signals[f"SIG{option.removeprefix('--signal=')}"])
                lines.write("signalled\n" if job in self.jobs else f"Invalid job id {job}\n")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@dataclass(frozen=True)
class Leak:
    """Which rank leaks ("all": each), by how much a generation, and the words that stop the run."""

    rank: str
    megabytes: float
    hook: Sequence[str]


def stop_job() -> str:
    """The script of the recipe for Slurm."""
    [script] = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "ranks.md").read_text(), re.DOTALL)
    return script


class Node:
    """A host with an agent, its ranks and a memwatch."""

    def __init__(self, host: Host, number: int, folder: Path, manager: Manager, leak: Leak) -> None:
        self.host, self.folder = host, Folder(folder)
        folder.mkdir()
        options = ("--nnodes=2", f"--node-rank={number}", f"--nproc-per-node={PER_NODE}", "--rdzv-id=job-7")
        rank = (str(PROGRAMS / "rank.py"), str(folder), str(GENERATIONS), str(SECONDS), leak.rank, str(leak.megabytes))
        with self.folder.log.open("wb") as log:
            command = host.command(sys.executable, "-u", str(PROGRAMS / "torchrun"), *options, *rank)
            self.agent = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        manager.jobs.setdefault("job-7", []).append(inner(self.agent))
        self.memwatch = self._watch(manager, leak.hook)

    def _watch(self, manager: Manager, hook: Sequence[str]) -> Memwatch:
        path = self.folder.path / "memwatch.yaml"
        path.write_text(
            yaml.safe_dump(
                {
                    "policy": {"checkpoint_seconds": 1.0, "confirmation_seconds": 0.2},
                    "checkpoint": {"globs": [str(self.folder.path / "rank-*.ckpt")]},
                    "actions": {"hook": hook, "hook_replaces_signal": True, "environment": ["HOME", "PATH", "MANAGER"]},
                    "daemon": {"linger_seconds": 5.0},
                    "listen": "0.0.0.0:9877",
                }
            )
        )
        shared = manager.path.parent
        given = {"MANAGER": manager.path, "HOME": shared, "PATH": f"{shared}:{os.environ['PATH']}"}
        given |= {"PYTHONPATH": ROOT / "watchdog"}
        words = ("env", *(f"{name}={value}" for name, value in given.items()))
        arguments = ("--match", "torchrun --nnodes", "--limit", "350MB", "--json", "--config", str(path))
        return Memwatch(self.folder, *arguments, before=self.host.command(*words))

    @property
    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in self.folder.path.glob("rank-*"))

    def close(self) -> None:
        self.memwatch.process.kill()
        self.memwatch.process.wait()
        self.agent.kill()
        self.agent.wait()


class Prometheus:
    """One that scrapes both hosts, with the shipped rules."""

    def __init__(self, folder: Path, targets: Sequence[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ROOT / "configs" / "prometheus" / "memwatch.rules.yml")],
            "scrape_configs": [{"job_name": "memwatch", "static_configs": [{"targets": list(targets)}]}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        words = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        words += [f"--web.listen-address={self.url.removeprefix('http://')}", "--log.level=warn"]
        with (folder / "prometheus.log").open("w") as log:
            self.process = subprocess.Popen(["prometheus", *words], stderr=log)

    def get(self, path: str, **parameters: object) -> Any:
        """What its HTTP API answers; None while it does not."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}") as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def series(self, expr: str) -> list[dict[str, Any]]:
        return (self.get("query", query=expr) or {"result": []})["result"]

    def firing(self, alert: str) -> list[str]:
        """Its summaries."""
        alerts = (self.get("alerts") or {"alerts": []})["alerts"]
        found = [one for one in alerts if one["labels"]["alertname"] == alert and one["state"] == "firing"]
        return [one["annotations"]["summary"] for one in found]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def cluster(folder: Path, leak: Leak) -> Iterator[tuple[Sequence[Node], Manager, Prometheus]]:
    with ExitStack() as held:
        machines = held.enter_context(hosts("node-a", "node-b"))
        for name, text in (("scancel", SCANCEL), ("stop-job", stop_job())):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        manager = Manager(folder / "manager")
        held.callback(manager.close)
        nodes = []
        for number, host in enumerate(machines):
            nodes.append(Node(host, number, folder / host.name, manager, leak))
            held.callback(nodes[-1].close)
        prometheus = Prometheus(folder, [f"{host.address}:9877" for host in machines])
        held.callback(prometheus.close)
        yield nodes, manager, prometheus


def test_the_first_rank_to_run_out_is_named_and_its_node_stops_the_run(tmp_path: Path) -> None:
    leak = Leak("5", 5, ["scancel", "--signal=INT", "{run_id}"])
    with cluster(tmp_path, leak) as (nodes, manager, prometheus):
        calm, leaking = nodes
        told = []

        def named() -> bool:
            told[:] = prometheus.firing("MemwatchRunOutOfMemorySoon")
            return any("first host of node node-b, rank 5" in one for one in told)

        until(named)
        assert len(told) == 1 and told[0].startswith("Run job-7 runs out of memory in "), "one alert for the run"
        [first] = prometheus.series("run:memwatch_oom_eta_seconds:first")
        assert {"run_id": "job-7", "node": "node-b", "rank": "5", "resource": "host"}.items() <= first["metric"].items()
        ranks = prometheus.series("memwatch_rank_info")
        assert sorted(int(one["metric"]["rank"]) for one in ranks) == list(range(8))
        assert not leaking.memwatch.named("interrupt"), "it was named before anything was done"

        for node in nodes:
            node.agent.wait(90)
        assert calm.checkpoints == [f"rank-{rank}.ckpt" for rank in range(4)], calm.memwatch.said()
        assert leaking.checkpoints == [f"rank-{rank}.ckpt" for rank in range(4, 8)], leaking.memwatch.said()
        assert manager.asked == [["--signal=INT", "job-7"]]

        assert leaking.memwatch.wait() == ExitCode.SAVED, leaking.memwatch.said()
        [signalled] = leaking.memwatch.named("signalled")
        assert signalled["instead"] and not leaking.memwatch.named("hook_failed")
        assert [one["status"] for one in leaking.memwatch.named("hook")] == [0]

        calm.memwatch.wait()
        assert not calm.memwatch.named("signalled") and not calm.memwatch.named("interrupt")
        [exited] = calm.memwatch.named("exited")
        assert exited["cause"] == "failed" and exited["evidence"][0] == "exit status 1", "as torchrun ends on a signal"
        assert "its latest checkpoint was complete" in exited["evidence"][1]
        assert not any("memwatch" in line for line in exited["evidence"])


def test_where_all_ranks_leak_the_run_is_stopped_once(tmp_path: Path) -> None:
    leak = Leak("all", 2, ["stop-job", "{run_id}", "0"])
    with cluster(tmp_path, leak) as (nodes, manager, _):
        manager.jobs["job-7.0"] = manager.jobs.pop("job-7")
        for node in nodes:
            node.agent.wait(90)
        assert manager.asked == [["--signal=INT", "job-7.0"]]
        for number, node in enumerate(nodes):
            ranks = range(PER_NODE * number, PER_NODE * (number + 1))
            assert node.checkpoints == [f"rank-{rank}.ckpt" for rank in ranks], node.memwatch.said()
            node.memwatch.wait()
            assert not node.memwatch.named("hook_failed") and not node.memwatch.named("escalated")
            assert all(one["instead"] for one in node.memwatch.named("signalled"))
        assert any(node.memwatch.named("interrupt") for node in nodes)
