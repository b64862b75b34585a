"""sd_notify over real sockets; journal lines."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Awaiting, Notice
from memwatch.outputs.systemd_notify import STATUS_SECONDS, SystemdNotifier, journal_priority, reaches_journal
from memwatch.outputs.terminal.plain_and_json_lines import PlainLines

PID = 4711


class Listener:
    """Where systemd would listen."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.setblocking(False)

    def heard(self) -> list[str]:
        told = []
        while True:
            try:
                told.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return told


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    one = Listener(str(tmp_path / "notify"))
    yield one
    one.socket.close()


@pytest.fixture
def speaking() -> Iterator[Callable[..., SystemdNotifier]]:
    """Makes speakers, and silences them at the end."""
    made: list[SystemdNotifier] = []

    def make(*arguments: Any) -> SystemdNotifier:
        made.append(SystemdNotifier(*arguments))
        return made[-1]

    yield make
    for one in made:
        one.stopping()


class Time:
    def __init__(self) -> None:
        self.t = 100.0

    def __call__(self) -> float:
        return self.t


def environ(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": str(tmp_path / "notify"), **more}


def test_what_a_service_tells(tmp_path: Path, listener: Listener, speaking: Callable[..., SystemdNotifier]) -> None:
    told = environ(tmp_path)
    systemd = speaking(told, PID)
    systemd.ready()
    systemd.reloading()
    systemd.stopping()
    ready, reloading, stopping = listener.heard()
    assert (ready, stopping) == ("READY=1", "STOPPING=1")
    first, monotonic = reloading.split("\n")
    assert first == "RELOADING=1" and monotonic.removeprefix("MONOTONIC_USEC=").isdigit()
    assert not told  # no child of memwatch speaks in its name


def test_an_abstract_socket(speaking: Callable[..., SystemdNotifier]) -> None:
    name = f"memwatch-test-{os.getpid()}"
    one = Listener(f"\0{name}")
    speaking({"NOTIFY_SOCKET": f"@{name}"}).ready()
    assert one.heard() == ["READY=1"]
    one.socket.close()


def test_its_status_is_the_sentence_and_told_when_it_changes(
    tmp_path: Path, listener: Listener, speaking: Callable[..., SystemdNotifier]
) -> None:
    engine, clock = Engine(Policy()), Time()
    engine.feed(Awaiting(1.0, "nobody\nis there"))
    systemd = speaking(environ(tmp_path), PID, clock)
    systemd.publish(engine.snapshot(), ())
    systemd.publish(engine.snapshot(), ())
    long = replace(engine.snapshot(), sentence="\u00e9" * 3000)
    clock.t += STATUS_SECONDS
    systemd.publish(long, ())
    first, second = listener.heard()
    assert first == "STATUS=waiting for a trainer: nobody is there"
    assert 900 < len(second.encode()) <= 1007


def test_a_status_that_changes_with_each_look_is_told_now_and_then_and_with_news(
    tmp_path: Path, listener: Listener, speaking: Callable[..., SystemdNotifier]
) -> None:
    clock, snapshot = Time(), Engine(Policy()).snapshot()
    systemd = speaking(environ(tmp_path), PID, clock)
    for second in range(11):
        systemd.publish(replace(snapshot, sentence=f"{second} MB used"), ())
        clock.t += 1.0
    systemd.publish(replace(snapshot, sentence="soon"), [Notice(1.0, "warn", "soon")])
    assert listener.heard() == [f"STATUS={told}" for told in ("0 MB used", "5 MB used", "10 MB used", "soon")]


def test_a_status_that_was_held_back_is_told_once_it_is_due_though_nothing_else_happens(
    tmp_path: Path, listener: Listener, speaking: Callable[..., SystemdNotifier]
) -> None:
    clock, snapshot = Time(), Engine(Policy()).snapshot()
    systemd = speaking(environ(tmp_path), PID, clock)
    systemd.publish(replace(snapshot, sentence="no reading yet"), ())
    assert not systemd.on_loop_iteration()
    clock.t += 1.0
    waiting = replace(snapshot, sentence="waiting for a trainer")
    systemd.publish(waiting, ())
    assert not systemd.on_loop_iteration()
    clock.t += STATUS_SECONDS
    assert systemd.on_loop_iteration()
    systemd.publish(waiting, ())
    assert not systemd.on_loop_iteration()
    assert listener.heard() == ["STATUS=no reading yet", "STATUS=waiting for a trainer"]


def test_what_must_not_be_lost_waits_for_a_busy_systemd(
    tmp_path: Path, listener: Listener, speaking: Callable[..., SystemdNotifier]
) -> None:
    clock = Time()
    systemd = speaking(environ(tmp_path, WATCHDOG_USEC="1000"), PID, clock)
    for _ in range(1000):  # more than the socket takes
        clock.t += 1.0
        systemd.ping()
    heard: list[str] = []
    busy = threading.Timer(0.3, lambda: heard.extend(listener.heard()))
    busy.start()
    systemd.ready()
    busy.join()
    assert [*heard, *listener.heard()][-1] == "READY=1"


def test_signs_of_life_at_half_the_time_that_systemd_waits(
    tmp_path: Path, listener: Listener, speaking: Callable[..., SystemdNotifier]
) -> None:
    clock = Time()
    systemd = speaking(environ(tmp_path, WATCHDOG_USEC="30000000", WATCHDOG_PID=str(PID)), PID, clock)
    assert systemd.ping_seconds == 15.0
    for _ in range(481):
        systemd.on_loop_iteration()
        clock.t += 0.125
    assert listener.heard() == ["WATCHDOG=1"] * 9  # 0, 7.5, 15 ... 60 s


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "12"},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
    ],
    ids=["not asked", "of another process", "switched off", "nonsense"],
)
def test_no_signs_of_life_where_nobody_waits_for_them(
    tmp_path: Path, listener: Listener, speaking: Callable[..., SystemdNotifier], more: dict[str, str]
) -> None:
    clock = Time()
    systemd = speaking(environ(tmp_path, **more), PID, clock)
    assert systemd.ping_seconds == float("inf")
    for _ in range(10):
        clock.t += 1e6
        systemd.ping()
    assert not listener.heard()


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/at/all", "@"])
def test_where_nobody_listens_nothing_is_said(address: str, speaking: Callable[..., SystemdNotifier]) -> None:
    systemd = speaking({"NOTIFY_SOCKET": address})
    systemd.ready()
    systemd.ping()


def test_a_listener_that_leaves_holds_nobody_up(
    tmp_path: Path, listener: Listener, speaking: Callable[..., SystemdNotifier]
) -> None:
    systemd = speaking(environ(tmp_path))
    systemd.ready()
    listener.socket.close()
    systemd.ready()


# --- the journal ----------------------------------------------------------------------------------------------------


def test_lines_to_the_journal_begin_with_their_priority() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, theirs.makefile("w", encoding="utf-8") as stream:
        PlainLines(stream, journal_priority=journal_priority).publish(
            Engine(Policy()).snapshot(),
            [Notice(1.0, "warn", "soon"), Notice(2.0, "failed", "refused"), Notice(3.0, "note", "by the way")],
        )
        assert ours.recv(4096).decode().splitlines() == [
            "<4>warn         soon",
            "<3>failed       refused",
            "<6>note         by the way",
        ]


def test_the_journal_is_known_by_its_socket(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, theirs.makefile("w") as stream:
        found = os.fstat(theirs.fileno())
        assert reaches_journal(stream, {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"})
        assert not reaches_journal(stream, {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + 1}"})
        assert not reaches_journal(stream, {})
    with (tmp_path / "file").open("w") as file:
        found = os.fstat(file.fileno())
        assert not reaches_journal(file, {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"})
    assert not reaches_journal(sys.__stdin__, {"JOURNAL_STREAM": ""})
