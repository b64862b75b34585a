"""Writes how the trainer ended where others look for it: the container's termination message, the journal's fields.

Slurm's users read the job's output, which has memwatch's summary.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from memwatch.core.events import Cause
from memwatch.core.snapshot import Snapshot
from memwatch.outputs.systemd_notify import INFORMATION, WARNING
from memwatch.outputs.text.exit_summary import render_conclusion

TERMINATION_LOG = "/dev/termination-log"  # Kubernetes: terminationMessagePath, unless the container names another
MAX_TERMINATION_BYTES = 4096  # the kubelet keeps no more
JOURNAL_SOCKET = "/run/systemd/journal/socket"  # https://systemd.io/JOURNAL_NATIVE_PROTOCOL/


def announce_end(snapshot: Snapshot, environ: Mapping[str, str], *, in_journal: bool, history: str | None) -> None:
    """Announce an end that was seen; `in_journal`: memwatch's lines go there. Whoever cannot be told is left out."""
    if snapshot.exited is None:
        return
    text = "\n".join(render_conclusion(snapshot, lives=False, history=history))
    if "KUBERNETES_SERVICE_HOST" in environ:
        write_termination_message(text)
    if in_journal:
        send_to_journal({"MESSAGE": text, **dict(_journal_fields(snapshot))})


def write_termination_message(text: str, path: str = TERMINATION_LOG) -> None:
    """`kubectl describe pod` shows it as the message of the container's last state."""
    with suppress(OSError), Path(path).open("r+b") as file:  # which the kubelet has made
        file.write(text.encode("utf-8", "replace")[:MAX_TERMINATION_BYTES])
        file.truncate()


def send_to_journal(fields: Mapping[str, str], path: str = JOURNAL_SOCKET) -> None:
    entry = b"".join(_field(name, text.encode("utf-8", "replace")) for name, text in fields.items())
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.sendto(entry, path)


def _field(name: str, value: bytes) -> bytes:
    if b"\n" not in value:
        return name.encode() + b"=" + value + b"\n"
    return name.encode() + b"\n" + len(value).to_bytes(8, "little") + value + b"\n"


def _journal_fields(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """`journalctl MEMWATCH_CAUSE=oom_cgroup` finds such ends."""
    end = snapshot.exited
    if end is None:
        return
    yield "PRIORITY", str(INFORMATION if end.cause is Cause.COMPLETED else WARNING)
    yield "SYSLOG_IDENTIFIER", "memwatch"
    yield "SYSLOG_PID", str(os.getpid())
    known = {
        "CAUSE": end.cause.value,
        "SEVERITY": snapshot.severity.value,
        "RUN_ID": snapshot.run_id,
        "COMMAND": snapshot.command,
        "EXIT_CODE": end.exit_code,
        "SIGNAL": end.signal,
        "GENERATION": snapshot.generation,
        "CHECKPOINT": end.checkpoint.path if end.checkpoint is not None else None,
        "FINDING": next((one.cause for one in snapshot.diagnosis.findings), None) if snapshot.diagnosis else None,
    }
    yield from ((f"MEMWATCH_{name}", str(value)) for name, value in known.items() if value not in (None, ""))
