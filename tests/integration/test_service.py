"""`memwatch serve` with real trainers that come and go, configurations that change, and a systemd that listens."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from memwatch.errors import ExitCode
from memwatch.history import stored_runs
from support.mainjob import Folder, Memwatch, memwatch, trainer, until
from support.stopwatch import Stopwatch

pytestmark = pytest.mark.integration

LEAK = Path(__file__).parents[1] / "programs" / "leak.py"
FAST = "policy: {confirmation_seconds: 0.2, checkpoint_seconds: 0.5, save_timeout_seconds: 4}\n"
QUICK = "daemon: {wait_seconds: 0.2}\nmemory: {interval_seconds: 0.1, limit: 150MB}\n"
GONE_SECONDS = 2.0  # from SIGTERM to the end


class Systemd:
    """Where a service's messages arrive."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self.all: list[tuple[float, str]] = []  # when it came, and what
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def told(self) -> list[str]:
        """Everything so far, the first line of each."""
        return [message.partition("\n")[0] for _, message in self.all]

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while message := self._socket.recv(4096).decode():
            self.all.append((time.monotonic(), message))


class Served:
    """A service in a folder of its own."""

    def __init__(self, path: Path) -> None:
        self.folder = Folder(path)
        self.file = path / "memwatch.yaml"
        self.mark = f"train-{os.getpid()}-{path.name}"  # other tests may run beside these
        self.systemd = Systemd(path / "notify")
        self.configure()

    def configure(self, *changes: tuple[str, str], more: str = "") -> None:
        """Another configuration, in place at once."""
        text = f"target: {{match: {self.mark}}}\nlisten: '127.0.0.1:0'\n{FAST}{QUICK}{more}"
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.file)

    @contextmanager
    def running(self, *arguments: str, watchdog_seconds: float = 30.0) -> Iterator[Memwatch]:
        """memwatch serve."""
        environ = [f"NOTIFY_SOCKET={self.systemd.path}", f"WATCHDOG_USEC={watchdog_seconds * 1e6:.0f}"]
        with memwatch(
            self.folder,
            *("serve", "--config", str(self.file), "--json", *arguments),
            before=("env", *environ),
        ) as service:
            until(lambda: "READY=1" in self.systemd.told() or service.process.poll() is not None)
            yield service

    @contextmanager
    def trainer(self, text: str) -> Iterator[Any]:
        """A program of these lines that is meant."""
        with trainer(self.folder, program=(*program(text), self.mark)) as run:
            yield run

    @contextmanager
    def short(self, service: Memwatch) -> Iterator[Any]:
        """One that ends as soon as it is watched, however late that is on a busy machine."""
        begun, go = len(service.named("attached")), self.folder.path / "go"
        go.unlink(missing_ok=True)
        with self.trainer("while not os.path.exists('go'): time.sleep(0.02)") as run:
            until(lambda: len(service.named("attached")) > begun)
            go.touch()
            yield run

    @contextmanager
    def leaking(self, megabytes: int = 12, seconds: float = 0.3) -> Iterator[Any]:
        """One that grows by so much in each generation of so long."""
        path = self.folder.path / f"{self.mark}.py"
        shutil.copy(LEAK, path)
        words = (sys.executable, str(path), "saves", "60", str(megabytes), str(seconds))
        with trainer(self.folder, program=words) as run:
            yield run


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    one = Served(tmp_path)
    yield one
    one.systemd.close()


def program(text: str) -> tuple[str, ...]:
    return (sys.executable, "-uc", "import os, sys, time\n" + text)


def url(service: Memwatch) -> str:
    return [one["text"] for one in service.named("note") if "metrics and status" in one["text"]][-1].split()[-1]


def asked(service: Memwatch, page: str) -> str:
    with urllib.request.urlopen(url(service) + page, timeout=10) as answer:
        return answer.read().decode()


def causes(service: Memwatch) -> list[str]:
    return [one["cause"] for one in service.named("exited")]


def end(service: Memwatch) -> None:
    """Told to stop, it has ended in time and with 0."""
    begun = Stopwatch()
    service.process.send_signal(signal.SIGTERM)
    assert service.wait(20) == ExitCode.ENDED, service.said()
    assert begun.undisturbed_seconds < GONE_SECONDS


# --- one after the other --------------------------------------------------------------------------------------------


def test_it_waits_watches_to_the_end_and_waits_for_the_next(served: Served) -> None:
    with served.running() as service:
        until(lambda: service.named("waiting"))
        assert f"'{served.mark}' fits no process" in service.named("waiting")[0]["text"]
        assert asked(service, "-/ready") == "waiting for a trainer\n" and asked(service, "-/healthy") == "ok\n"
        assert 'memwatch_state{state="waiting"} 1.0' in asked(service, "metrics")
        with served.short(service):
            until(lambda: causes(service) == ["completed"])
            until(lambda: len(service.named("waiting")) == 2)
            assert 'memwatch_target_exit_info{cause="completed",exit_code="0",signal=""} 1.0' in asked(
                service, "metrics"
            )
        with served.leaking():
            until(lambda: len(causes(service)) == 2)
        assert causes(service) == ["completed", "interrupted_saved"], service.said()
        end(service)
    assert len(stored_runs.stored_runs(served.folder.history)) == 2


def test_what_a_killed_trainer_leaves_behind_is_not_the_next(served: Served) -> None:
    forks = "os.fork()\ntime.sleep(60)"
    with served.running() as service, ExitStack() as held:
        run = held.enter_context(served.trainer(forks))
        held.callback(lambda: os.killpg(run.pid, signal.SIGKILL))
        until(lambda: service.named("attached"))
        until(lambda: '"processes": 2' in asked(service, "status.json"))
        run.kill()
        until(lambda: causes(service) == ["signalled"])
        time.sleep(1.0)
        assert len(service.named("attached")) == 1, service.said()
        with served.short(service):  # another one, while that is there
            until(lambda: len(causes(service)) == 2)
        assert causes(service)[1] == "completed"
        end(service)


def test_where_several_fit_it_says_so_once_and_takes_the_one_that_is_left(served: Served) -> None:
    with served.running() as service, served.trainer("time.sleep(60)") as one:
        until(lambda: service.named("attached"))
        one.kill()
        one.wait()
        until(lambda: causes(service))
        service.process.send_signal(signal.SIGSTOP)
        with served.trainer("time.sleep(60)") as two, served.trainer("time.sleep(60)") as three:
            service.process.send_signal(signal.SIGCONT)
            until(lambda: service.named("source_failed"))
            time.sleep(0.8)
            [failed] = service.named("source_failed")
            assert (failed["source"], "fits 2 processes" in failed["reason"]) == ("target", True)
            two.kill()
            two.wait()
            until(lambda: len(service.named("attached")) == 2)
            assert service.named("attached")[1]["pid"] == three.pid
            end(service)


def test_many_trainers_leave_nothing_behind(served: Served) -> None:
    def held(pid: int) -> tuple[int, int, int]:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        kilobytes = int(status["VmRSS"].split()[0])
        return kilobytes, len(list(Path(f"/proc/{pid}/fd").iterdir())), int(status["Threads"])

    served.configure(more="diagnosis: {enabled: false}\n")
    seen = []
    with served.running() as service:
        until(lambda: service.named("waiting"))  # READY=1 is sent before the first search
        for count in range(1, 25):
            with served.trainer("print('Generation 1', flush=True); time.sleep(60)") as run:
                until(lambda count=count: len(service.named("attached")) == count)
                run.terminate()
                until(lambda count=count: len(service.named("waiting")) > count)
            until(lambda: held(service.process.pid)[2] == 2)  # a thread may still arm thresholds of the last cgroup
            seen.append(held(service.process.pid))
        end(service)
    assert len(causes(service)) == 24
    assert seen[-1][0] < seen[5][0] + 1024, seen  # kB
    assert {one[1:] for one in seen} == {seen[0][1:]}, seen


# --- another configuration ------------------------------------------------------------------------------------------


def main_memory(service: Memwatch) -> dict[str, Any] | None:
    """What the status says of it."""
    return next((view for view in json.loads(asked(service, "status.json"))["resources"]), None)


def test_a_changed_file_is_in_force_and_the_watch_goes_on_with_its_past(served: Served) -> None:
    with served.running() as service, served.leaking(2, 0.5):
        until(lambda: len(service.named("generation")) >= 3)
        served.configure(("limit: 150MB", "limit: 170MB"))
        until(lambda: (view := main_memory(service)) and view["limit"] == 170_000_000)
        first, again = service.named("attached")
        assert again["text"].startswith("watching again") and again["run_id"] == first["run_id"]
        assert len(main_memory(service)["generations"]) >= 3
        until(lambda: served.systemd.told().count("READY=1") == 2)
        end(service)
    words = [word for word in served.systemd.told() if word in ("READY=1", "RELOADING=1", "STOPPING=1")]
    assert words == ["READY=1", "RELOADING=1", "READY=1", "STOPPING=1"]


def test_a_broken_file_is_refused_with_the_reason_and_the_old_one_stays(served: Served) -> None:
    with served.running() as service, served.trainer("time.sleep(60)"):
        until(lambda: service.named("attached"))
        served.configure(("policy: {", "policy: {confidence: 7, "))
        until(lambda: service.named("source_failed"))
        [failed] = service.named("source_failed")
        assert failed["source"] == "configuration" and f"{served.file}:3" in failed["reason"]
        assert "policy.confidence is 7" in failed["reason"] and "stays in force" in failed["reason"]
        assert 'memwatch_source_up{source="configuration"} 0.0' in asked(service, "metrics")
        assert len(service.named("attached")) == 1
        served.configure()
        until(lambda: service.named("source_recovered"))
        assert len(service.named("attached")) == 1  # as it was before: nothing is begun anew
        end(service)


def test_sighup_reads_it_at_once_and_says_when_nothing_has_changed(served: Served) -> None:
    with served.running() as service:
        until(lambda: service.named("waiting"))
        service.process.send_signal(signal.SIGHUP)
        until(lambda: "nothing has changed" in "".join(one["text"] for one in service.named("note")))
        until(lambda: served.systemd.told().count("READY=1") == 2)
        served.file.write_text("target: [")
        service.process.send_signal(signal.SIGHUP)
        until(lambda: service.named("source_failed"))
        assert service.process.poll() is None
        end(service)


def test_another_trainer_and_another_port_by_a_reload(served: Served) -> None:
    with (
        served.running() as service,
        served.trainer("time.sleep(60)"),
        trainer(served.folder, program=(*program("time.sleep(60)"), "other-one")) as other,
    ):
        until(lambda: service.named("attached"))
        before = url(service)
        with socket.create_server(("127.0.0.1", 0)) as busy, socket.create_server(("127.0.0.1", 0)) as free:
            port, taken = free.getsockname()[1], busy.getsockname()[1]
            free.close()
            served.configure((served.mark, "other-one"), ("127.0.0.1:0", f"127.0.0.1:{taken}"))
            until(lambda: service.named("source_failed"))
            assert "cannot listen" in service.named("source_failed")[0]["reason"]
            assert asked(service, "-/healthy") == "ok\n" and url(service) == before
            served.configure((served.mark, "other-one"), ("127.0.0.1:0", f"127.0.0.1:{port}"))
        until(lambda: service.named("attached")[-1]["pid"] == other.pid)
        assert url(service) == f"http://127.0.0.1:{port}/" and asked(service, "-/healthy") == "ok\n"
        end(service)


# --- signs of life, and the end -------------------------------------------------------------------------------------


def test_signs_of_life_come_in_time_however_long_the_interval(served: Served) -> None:
    served.configure(("interval_seconds: 0.1", "interval_seconds: 600"), (", checkpoint_seconds: 0.5", ""))
    with served.running(watchdog_seconds=1.0) as service:
        until(lambda: served.systemd.told().count("WATCHDOG=1") > 6)
        with served.trainer("time.sleep(4)"):
            until(lambda: causes(service))
        end(service)
    times = [t for t, message in served.systemd.all if message == "WATCHDOG=1"]
    assert len(times) > 12 and max(later - t for t, later in pairwise(times)) < 1.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_ends_in_time_whatever_it_does(served: Served, number: signal.Signals) -> None:
    with served.running() as service:
        until(lambda: service.named("waiting"))
        service.process.send_signal(number)
        assert service.wait(GONE_SECONDS) == ExitCode.ENDED
    (served.folder.path / "memwatch.out").unlink()
    with served.running() as service, served.leaking(1) as run:
        until(lambda: service.named("generation"))
        service.process.send_signal(number)
        assert service.wait(GONE_SECONDS) == ExitCode.ENDED
        assert run.poll() is None  # the trainer runs on
        assert not service.named("signalled")


# --- what cannot be -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        (("--pid", "1234"), "", "a PID does not come again"),
        ((), "", "no trainer is named"),
        ((), "target: {unit: a, cgroup: /b}", "target.cgroup"),
        (("--match", "x", "--listen", "127.0.0.1:{busy}"), "", "cannot listen"),
        (("--match", "x"), "log: {presets: [nowhere.yaml]}", "nowhere.yaml"),
    ],
)
def test_what_cannot_be_served_is_told_at_once(
    tmp_path: Path, arguments: Sequence[str], text: str, message: str
) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        words = [one.format(busy=busy.getsockname()[1]) for one in arguments]
        with memwatch(Folder(tmp_path), "serve", "--config", str(tmp_path / "x.yaml"), *words) as service:
            assert service.wait(20) == ExitCode.USAGE
    assert message in service.said()
