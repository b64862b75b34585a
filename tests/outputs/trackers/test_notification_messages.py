"""What people are told at a distance: the events that were asked for, and what to do about each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from memwatch.config.settings import NotifyConfig
from memwatch.core.events import Cause, Exited, Notice
from memwatch.core.snapshot import Snapshot
from memwatch.outputs.trackers.notification_messages import MESSAGE_TEMPLATES, NotificationMessages
from support.snapshots import SENTENCE, START_T, make_dead, make_diagnosis, make_snapshot

UNASKED = NotifyConfig().events
KINDS = ("info", "success", "warning", "failure")  # that apprise knows


def messages(snapshot: Snapshot, *events: str, asked: Sequence[str] = UNASKED, text: str = "as it is") -> list[Any]:
    notices = [Notice(START_T, event, text) for event in events]
    return list(NotificationMessages(asked, "pod7", time.gmtime).records(snapshot, notices))


def test_a_warning_says_what_where_of_which_run_and_what_to_do() -> None:
    [message] = messages(make_snapshot(diagnosis=make_diagnosis()), "warn", text=SENTENCE)
    assert (message["title"], message["kind"]) == ("memwatch on pod7: memory will run out", "warning")
    assert message["body"].splitlines() == [
        SENTENCE,
        "What to do: nothing yet: memwatch interrupts it in time for a checkpoint; a buffer fills that can never fit: "
        "give ReplayBuffer.buffer a capacity below 7,100",
        "2025-10-09 08:53:20, run run-1, PID 4242: python main.py --population 32 --buffer 50000",
    ]


def test_where_no_interrupt_will_come_the_warning_says_so() -> None:
    [message] = messages(make_snapshot(unarmed="policy.act is false"), "warn")
    assert "stop it after its next checkpoint: memwatch will not (policy.act is false)" in message["body"]


def test_an_interrupt_says_why_and_how_things_stand() -> None:
    [message] = messages(make_snapshot(), "interrupt", text="9.1 GB left")
    assert message["body"].startswith(f"9.1 GB left\nNow: {SENTENCE}\nWhat to do: resume it from the checkpoint")


@pytest.mark.parametrize(
    ("cause", "kind", "advised"),
    [
        (Cause.COMPLETED, "success", False),
        (Cause.SAVED, "warning", True),
        (Cause.OOM_CGROUP, "failure", True),
        (Cause.UNKNOWN, "info", True),
    ],
)
def test_an_end_is_as_good_or_bad_as_its_cause(cause: Cause, kind: str, advised: bool) -> None:
    [message] = messages(make_dead(exited=Exited(START_T, cause)), "exited")
    assert message["kind"] == kind
    assert ("memwatch report --run run-1" in message["body"]) is advised


def test_only_what_was_asked_for_is_told_each_once() -> None:
    assert messages(make_snapshot(), "generation", "forecast", "attached") == []
    assert len(messages(make_snapshot(), "warn", "generation", "interrupt", "saved")) == 3
    assert len(messages(make_snapshot(), "finding", "warn", asked=("finding",))) == 1


@pytest.mark.parametrize("event", MESSAGE_TEMPLATES)
def test_every_event_that_can_be_asked_for_has_words(event: str) -> None:
    snapshot = make_dead() if event == "exited" else make_snapshot()
    [message] = messages(snapshot, event, asked=(event,))
    assert message["title"].startswith("memwatch on pod7: ") and message["kind"] in KINDS
    assert all(line for line in message["body"].splitlines())


def test_foreign_text_stays_one_bounded_line() -> None:
    [message] = messages(make_snapshot(command="python \x1b[31mevil\n\nBcc: all"), "warn", text="a\nb" * 1000)
    assert len(message["body"].splitlines()) == 4 and "\x1b" not in message["body"]
    assert len(message["body"]) < 2500
