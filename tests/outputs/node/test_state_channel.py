"""Watches send their states to the process that answers HTTP, over a real socket."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from memwatch.core.events import Notice
from memwatch.core.trainer_rules import Workload
from memwatch.outputs.node.state_channel import StateReceiver, StateReporter, TrainerState
from support.snapshots import make_snapshot

WORKLOAD = Workload(pod="trainer-0")
interval = [1.0]  # between two ticks of the watch


class Receiver:
    """The receiving end, in a thread."""

    def __init__(self, listener: socket.socket) -> None:
        self.states: list[TrainerState] = []
        self.gone: list[int] = []
        self.receiver = StateReceiver(listener, self.states.append, self.gone.append)
        self._read, self._write = os.pipe()
        self._thread = threading.Thread(target=self.receiver.run, args=(self._read,))
        self._thread.start()

    def close(self) -> None:
        os.close(self._write)
        self._thread.join()
        os.close(self._read)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.bind("")
        one.listen(8)
        yield one


@pytest.fixture
def receiver(listener: socket.socket) -> Iterator[Receiver]:
    one = Receiver(listener)
    yield one
    one.close()


@pytest.fixture
def sender(listener: socket.socket) -> Iterator[StateReporter]:
    interval[0] = 1.0
    with closing(StateReporter(listener.getsockname(), 7, "watch", WORKLOAD, lambda: interval[0])) as one:
        yield one


def until(condition: object) -> None:
    deadline = time.monotonic() + 10
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_first_state_is_sent_and_each_that_is_asked_for(sender: StateReporter, receiver: Receiver) -> None:
    snapshot = make_snapshot()
    assert sender.on_loop_iteration()
    sender.publish(snapshot, [Notice(0.0, "warn", "soon")])
    until(lambda: len(receiver.states) == 1)
    assert receiver.states[0] == TrainerState(7, "watch", WORKLOAD, snapshot, {"tick": 1, "warn": 1})
    assert not sender.on_loop_iteration()

    def answer() -> None:
        assert select.select([sender], [], [], 5)[0], "its descriptor is readable once it is asked"
        assert sender.wants_snapshot()
        sender.publish(replace(snapshot, sentence="later"), ())

    time.sleep(0.6)  # a younger state is not asked for
    thread = threading.Thread(target=answer)
    thread.start()
    receiver.receiver.refresh()
    thread.join()
    assert [one.snapshot.sentence for one in receiver.states][-1] == "later"


def test_one_that_does_not_answer_delays_nobody_for_long(sender: StateReporter, receiver: Receiver) -> None:
    sender.on_loop_iteration()
    sender.publish(make_snapshot(), ())
    until(lambda: receiver.states)
    time.sleep(0.6)
    began = time.monotonic()
    receiver.receiver.refresh()
    assert 0.9 < time.monotonic() - began < 3.0
    receiver.receiver.refresh([8])  # nothing of it is known, and it is waited for no longer


def test_a_rare_one_sends_each_state_and_is_not_woken(sender: StateReporter, receiver: Receiver) -> None:
    interval[0] = 20.0
    for _ in range(3):
        assert sender.on_loop_iteration()
        sender.publish(make_snapshot(), ())
    until(lambda: len(receiver.states) == 3)
    time.sleep(0.6)
    began = time.monotonic()
    receiver.receiver.refresh()
    assert time.monotonic() - began < 0.5
    assert not select.select([sender], [], [], 0)[0]


def test_one_that_dies_is_told_as_gone(sender: StateReporter, receiver: Receiver) -> None:
    sender.on_loop_iteration()
    sender.publish(make_snapshot(), ())
    until(lambda: receiver.states)
    assert not receiver.gone
    sender.close()
    until(lambda: receiver.gone == [7])


def test_its_end_is_sent_unasked(sender: StateReporter, receiver: Receiver) -> None:
    sender.on_loop_iteration()
    sender.on_watch_end(make_snapshot())
    until(lambda: receiver.states)
    assert receiver.states[-1].is_finished


def test_it_connects_again_and_its_descriptor_stays(
    listener: socket.socket, sender: StateReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memwatch.outputs.node.state_channel.RECONNECT_SECONDS", 0.0)
    descriptor = sender.fileno()
    assert not select.select([sender], [], [], 0)[0], "without a connection it is never readable"
    first = Receiver(listener)
    sender.on_loop_iteration()
    sender.publish(make_snapshot(), ())
    until(lambda: first.states)
    first.close()
    until(lambda: select.select([sender], [], [], 0)[0])
    assert not sender.on_loop_iteration()
    assert not select.select([sender], [], [], 0)[0]
    second = Receiver(listener)
    try:
        assert sender.on_loop_iteration()
        sender.publish(make_snapshot(), ())
        until(lambda: second.states)
        assert sender.fileno() == descriptor
    finally:
        second.close()


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\4abcd", b"\0\0\0\1\x80"])
def test_what_is_no_state_ends_its_connection_alone(
    listener: socket.socket, sender: StateReporter, receiver: Receiver, data: bytes
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hostile:
        hostile.connect(listener.getsockname())
        hostile.sendall(data)
        hostile.settimeout(5)
        assert hostile.recv(1) == b""
    sender.on_loop_iteration()
    sender.publish(make_snapshot(), ())
    until(lambda: receiver.states)
