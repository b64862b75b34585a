"""The end of the trainer, where Kubernetes and the journal keep it."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from memwatch.core.events import Cause, LastCheckpoint
from memwatch.outputs import end_announcement
from memwatch.outputs.end_announcement import MAX_TERMINATION_BYTES, announce_end, send_to_journal
from support.snapshots import make_dead, make_diagnosis, make_snapshot

IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.fixture
def termination_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "termination-log"
    path.write_text("what was there before, and longer than that" * 200)
    written = end_announcement.write_termination_message
    monkeypatch.setattr(end_announcement, "write_termination_message", lambda text: written(text, str(path)))
    return path


def test_in_a_pod_it_is_the_termination_message(termination_log: Path) -> None:
    announce_end(make_dead(diagnosis=make_diagnosis()), IN_A_POD, in_journal=False, history=None)
    lines = termination_log.read_text().splitlines()
    assert lines[0] == "ended: killed by the kernel's OOM killer at the cgroup's limit"
    assert any(line.startswith("  what to do: ") for line in lines)


def test_the_kubelet_keeps_no_more_than_so_many_bytes(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    path.touch()
    end_announcement.write_termination_message("ü" * 10_000, str(path))
    assert len(path.read_bytes()) == MAX_TERMINATION_BYTES


def test_nothing_is_written_elsewhere_or_where_no_end_was_seen(termination_log: Path) -> None:
    before = termination_log.read_text()
    announce_end(make_dead(), {}, in_journal=False, history=None)
    announce_end(make_snapshot(), IN_A_POD, in_journal=True, history=None)
    assert termination_log.read_text() == before


def test_a_container_without_the_file_gets_none(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    end_announcement.write_termination_message("ended", str(path))
    assert not path.exists()


def read_entry(raw: bytes) -> dict[str, str]:
    """As journald reads it: NAME=value, or a name, a length and the value where that has several lines."""
    fields = {}
    while raw:
        line, _, rest = raw.partition(b"\n")
        name, is_plain, value = line.partition(b"=")
        if is_plain:
            raw = rest
        else:
            size = int.from_bytes(rest[:8], "little")
            value, raw = rest[8 : 8 + size], rest[9 + size :]
        fields[name.decode()] = value.decode()
    return fields


def test_the_journal_gets_fields_to_search_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "journal")
    monkeypatch.setattr(end_announcement, "send_to_journal", lambda fields: send_to_journal(fields, path))
    dead = make_dead(diagnosis=make_diagnosis())
    assert dead.exited is not None
    last = LastCheckpoint("file: a.pt", "/runs/a.pt", 60.0, 60.0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(path)
        journal.settimeout(5)
        announce_end(replace(dead, exited=replace(dead.exited, checkpoint=last)), {}, in_journal=True, history=None)
        fields = read_entry(journal.recv(65536))
    assert fields["MESSAGE"].splitlines()[1] == "  evidence: memory.events oom_kill 0 -> 1"
    assert {name: fields[name] for name in fields if name.startswith("MEMWATCH_")} == {
        "MEMWATCH_CAUSE": Cause.OOM_CGROUP.value,
        "MEMWATCH_SEVERITY": "ended_badly",
        "MEMWATCH_RUN_ID": "run-1",
        "MEMWATCH_COMMAND": dead.command,
        "MEMWATCH_SIGNAL": "SIGKILL",
        "MEMWATCH_GENERATION": "13.0",
        "MEMWATCH_CHECKPOINT": "/runs/a.pt",
        "MEMWATCH_FINDING": "buffer_cannot_fit",
    }
    assert (fields["PRIORITY"], fields["SYSLOG_IDENTIFIER"]) == ("4", "memwatch")


def test_without_a_journal_nothing_happens(tmp_path: Path) -> None:
    send_to_journal({"MESSAGE": "ended"}, str(tmp_path / "none"))
