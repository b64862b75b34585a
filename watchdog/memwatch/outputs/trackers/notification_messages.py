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

    kind: str  # icon of the message: "info", "success", "warning", "failure"
    heading: str
    advice: str = ""  # what to do


MESSAGE_TEMPLATES: Mapping[str, MessageTemplate] = {
    "attached": MessageTemplate("info", "watching"),
    "warn": MessageTemplate("warning", "memory will run out"),
    "cleared": MessageTemplate("success", "the warning is withdrawn"),
    "held": MessageTemplate("info", "an interrupt waits for a checkpoint"),
    "interrupt": MessageTemplate(
        "warning", "interrupting the trainer", "resume it from the checkpoint once that is saved"
    ),
    "saved": MessageTemplate("success", "checkpoint saved", "resume from it, with the cause mended or more memory"),
    "escalated": MessageTemplate(
        "failure", "no checkpoint in time", "see what the trainer does; resume from the one before"
    ),
    "failed": MessageTemplate(
        "failure", "the trainer cannot be stopped", "stop it yourself before its memory runs out"
    ),
    "hook": MessageTemplate("info", "the hook has run"),
    "hook_failed": MessageTemplate("failure", "the hook failed", "see whether the other nodes of the run were stopped"),
    "continued": MessageTemplate("warning", "the trainer runs on", "see whether it heard the signal"),
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
    "gave_up": MessageTemplate("failure", "the trainer is not started again", "mend the cause or give it more memory"),
}  # by event; the keys are the events that can be requested
_ENDS_WELL = {Cause.COMPLETED: "success", Cause.SAVED: "warning", Cause.UNKNOWN: "info"}


class NotificationMessages:
    """Chooses the notices that are worth a message (a Digest of TrackerProxy): `title`, `body` and `kind`."""

    def __init__(
        self, events: Sequence[str], host: str, local_time: Callable[[float], time.struct_time] = time.localtime
    ) -> None:
        self._events, self._host, self._local_time = events, host, local_time

    def is_due(self) -> bool:
        """No message is due by itself."""
        return False

    def records(self, snapshot: Snapshot, notices: Sequence[Notice]) -> Iterator[Mapping[str, object]]:
        """Returns a message for each notice that the user asked for."""
        for notice in notices:
            if notice.event in self._events:
                manner = MESSAGE_TEMPLATES[notice.event]
                body = "\n".join(self._lines(notice, manner, snapshot))
                yield {"title": self.title(manner.heading), "body": body, "kind": _kind(notice, manner, snapshot)}

    def title(self, heading: str) -> str:
        """One line that says which run on which machine."""
        return printable(f"memwatch on {self._host}: {heading}", TITLE_LENGTH)

    def _lines(self, notice: Notice, manner: MessageTemplate, snapshot: Snapshot) -> Iterator[str]:
        yield printable(notice.text, TEXT_LENGTH)
        if snapshot.sentence not in notice.text:
            yield printable(f"Now: {snapshot.sentence}", TEXT_LENGTH)
        advice = "; ".join(filter(None, (manner.advice, *_advice(notice, snapshot))))
        if advice:
            yield printable(f"What to do: {advice}", TEXT_LENGTH)
        pid = f", PID {snapshot.target.pid}" if snapshot.target is not None else ""
        run = f", run {snapshot.run_id}" if snapshot.run_id else ""
        at = time.strftime("%Y-%m-%d %H:%M:%S", self._local_time(notice.t))
        yield printable(f"{at}{run}{pid}: {snapshot.command}", TEXT_LENGTH)


def _kind(notice: Notice, manner: MessageTemplate, snapshot: Snapshot) -> str:
    if notice.event == "exited" and snapshot.exited is not None:
        return _ENDS_WELL.get(snapshot.exited.cause, manner.kind)
    return manner.kind


def _advice(notice: Notice, snapshot: Snapshot) -> Iterator[str]:
    """The advice that depends on the state."""
    if notice.event == "warn" and snapshot.unarmed is not None:
        yield f"stop it after its next checkpoint: memwatch will not ({snapshot.unarmed})"
    elif notice.event == "warn":
        yield "nothing yet: memwatch interrupts it in time for a checkpoint"
    is_over = snapshot.exited is not None and snapshot.exited.cause is not Cause.COMPLETED
    findings = snapshot.diagnosis.findings if snapshot.diagnosis is not None else ()
    if findings and (notice.event in ("warn", "interrupt", "saved", "finding") or is_over):
        yield f"{findings[0].title}: {findings[0].remedy}"
    if is_over and snapshot.run_id:
        yield f"memwatch report --run {snapshot.run_id} tells how it went"
