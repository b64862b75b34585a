"""Messages to people: a notice with a heading, the run, the machine, and what to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from memwatch.core.events import Cause, Notice
from memwatch.core.snapshot import Snapshot
from memwatch.core.text_and_units import printable

TITLE_LENGTH = 120
TEXT_LENGTH = 600


@dataclass(frozen=True, slots=True)
class MessageTemplate:
    """How an event is worded in a message."""

    kind: str  # apprise's type of the message: "info", "success", "warning", "failure"
    heading: str
    advice: str = ""  # what to do


MESSAGE_TEMPLATES: Mapping[str, MessageTemplate] = {
    "attached": MessageTemplate("info", "watching"),
    "warn": MessageTemplate("warning", "memory will run out"),
    "cleared": MessageTemplate("success", "the warning is withdrawn"),
    "deferred": MessageTemplate("info", "an interrupt waits for a checkpoint"),
    "interrupt": MessageTemplate(
        "warning", "interrupting the trainer", "resume it from the checkpoint once that is saved"
    ),
    "saved": MessageTemplate("success", "checkpoint saved", "resume from it, with the cause fixed or more memory"),
    "escalated": MessageTemplate(
        "failure", "no checkpoint in time", "check what the trainer does; resume from the checkpoint before"
    ),
    "failed": MessageTemplate(
        "failure", "the trainer cannot be stopped", "stop it yourself before its memory runs out"
    ),
    "hook": MessageTemplate("info", "the hook has run"),
    "hook_failed": MessageTemplate(
        "failure", "the hook failed", "check whether the other nodes of the run were stopped"
    ),
    "continued": MessageTemplate("warning", "the trainer runs on", "check whether it received the signal"),
    "breach": MessageTemplate("warning", "not as expected"),
    "finding": MessageTemplate("info", "a cause of growth"),
    "cow": MessageTemplate("info", "forked workers copy memory"),
    "out_of_memory": MessageTemplate("failure", "an allocation failed"),
    "source_failed": MessageTemplate("warning", "a part of memwatch does not work"),
    "source_recovered": MessageTemplate("info", "a part of memwatch works again"),
    "unarmed": MessageTemplate("warning", "no interrupt would reach the trainer", "memwatch doctor says why"),
    "armed": MessageTemplate("info", "an interrupt would reach the trainer"),
    "exited": MessageTemplate("failure", "the trainer has ended"),
    "restarting": MessageTemplate("info", "the trainer is started again"),
    "gave_up": MessageTemplate("failure", "the trainer is not started again", "fix the cause or give it more memory"),
}  # by event; the keys are the events that can be requested
_EXIT_KINDS = {Cause.COMPLETED: "success", Cause.SAVED: "warning", Cause.UNKNOWN: "info"}


class NotificationMessages:
    """Selects the notices that are worth a message (a RecordSelector): `title`, `body` and `kind`."""

    def __init__(
        self, events: Sequence[str], host: str, local_time: Callable[[float], time.struct_time] = time.localtime
    ) -> None:
        self._events, self._host, self._local_time = events, host, local_time

    def is_due(self) -> bool:
        return False

    def records(self, snapshot: Snapshot, notices: Sequence[Notice]) -> Iterator[Mapping[str, object]]:
        """Yields a message for each notice that the user selected."""
        for notice in notices:
            if notice.event in self._events:
                template = MESSAGE_TEMPLATES[notice.event]
                kind = template.kind
                if notice.event == "exited" and snapshot.exited is not None:
                    kind = _EXIT_KINDS.get(snapshot.exited.cause, kind)
                title = printable(f"memwatch on {self._host}: {template.heading}", TITLE_LENGTH)
                lines = [printable(line, TEXT_LENGTH) for line in self._lines(notice, template, snapshot)]
                yield {"title": title, "body": "\n".join(lines), "kind": kind}

    def _lines(self, notice: Notice, template: MessageTemplate, snapshot: Snapshot) -> Iterator[str]:
        yield notice.text
        if snapshot.sentence not in notice.text:
            yield f"Now: {snapshot.sentence}"
        advice = "; ".join(filter(None, (template.advice, *_advice(notice, snapshot))))
        if advice:
            yield f"What to do: {advice}"
        pid = f", PID {snapshot.target.pid}" if snapshot.target is not None else ""
        run = f", run {snapshot.run_id}" if snapshot.run_id else ""
        at = time.strftime("%Y-%m-%d %H:%M:%S", self._local_time(notice.t))
        yield f"{at}{run}{pid}: {snapshot.command}"


def _advice(notice: Notice, snapshot: Snapshot) -> Iterator[str]:
    if notice.event == "warn" and snapshot.unarmed is not None:
        yield f"stop it after its next checkpoint: memwatch will not ({snapshot.unarmed})"
    elif notice.event == "warn":
        yield "nothing yet: memwatch interrupts it in time for a checkpoint"
    is_over = snapshot.exited is not None and snapshot.exited.cause is not Cause.COMPLETED
    findings = snapshot.diagnosis.findings if snapshot.diagnosis is not None else ()
    if findings and (notice.event in ("warn", "interrupt", "saved", "finding") or is_over):
        yield f"{findings[0].title}: {findings[0].remedy}"
    if is_over and snapshot.run_id:
        yield f"memwatch report --run {snapshot.run_id} shows how it went"
