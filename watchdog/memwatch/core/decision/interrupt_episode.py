"""One interrupt from the decision to its end: signal, evidence of a checkpoint, escalation, cooldown."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from memwatch.core.decision.policy import Policy
from memwatch.core.events import Action, Escalate, HookRan, Interrupt, Notice, Signalled, Signalling
from memwatch.core.snapshot import WatchState
from memwatch.core.text_and_units import format_duration

ANSWER_SECONDS = 10.0  # an Interrupt that nobody reports as sent is lost (memwatch died between): ask again
RETRY_SECONDS = 5.0  # after a signal that could not be sent
TRIES = 3
PATIENCE = 2.0  # a checkpoint in progress stretches the deadline by this factor, then it counts as stuck


class EpisodeStage(str, Enum):
    """Where an episode stands."""

    IDLE = "idle"
    ASKED = "asked"  # Interrupt given out, not yet reported as sent
    WAITING = "waiting"  # sent, or about to be; a checkpoint or the exit is awaited
    SAVED = "saved"
    ESCALATED = "escalated"


_STATES = {
    EpisodeStage.WAITING: WatchState.INTERRUPTING,
    EpisodeStage.SAVED: WatchState.SAVED,
    EpisodeStage.ESCALATED: WatchState.ESCALATED,
}


class Episode:
    """The interrupt episode of one trainer process: at most one SIGINT is sent in it, and a cooldown follows."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.stage = EpisodeStage.IDLE
        self._free_t = float("-inf")
        self._request: Interrupt | None = None
        self._tries = 0
        self._retry_t = 0.0
        self._since_t = 0.0  # of the stage
        self._signal_t: float | None = None
        self._unsure: Signalling | None = None  # what came of it is not told yet
        self._by_hook = False  # a hook was started in place of the signal
        self._killed = False

    def resume(self, t: float) -> list[Action]:
        """memwatch itself was started again: a request that was never carried out must be decided anew.

        A signal that may have been sent is taken for sent until its deadline.
        """
        if self.stage is EpisodeStage.ASKED:
            self.stage, self._request = EpisodeStage.IDLE, None
        if self._unsure is None or self.stage not in (EpisodeStage.WAITING, EpisodeStage.ESCALATED):
            return []
        text = f"memwatch ended just as it was to interrupt by {self._unsure.signal_or_hook}"
        return [Notice(t, "note", f"{text}: whether it did is not known; the trainer is given the time to save")]

    @property
    def state(self) -> WatchState | None:
        """The engine's state as far as an episode decides it."""
        return _STATES.get(self.stage)

    def may_begin(self, t: float) -> bool:
        """No episode is under way and the cooldown of the last is over."""
        return self.stage is EpisodeStage.IDLE and t >= self._free_t

    def begin(self, request: Interrupt) -> list[Action]:
        self.stage, self._request = EpisodeStage.ASKED, request
        self._tries, self._retry_t = 1, request.t + ANSWER_SECONDS
        return [request]

    def start_cooldown(self, t: float) -> None:
        """The episode is over, or acting is switched off: for a while no other may begin."""
        self._reset()
        self._free_t = t + self._policy.cooldown_seconds

    def _reset(self) -> None:
        self.stage, self._killed = EpisodeStage.IDLE, False
        self._request = self._signal_t = self._unsure = None

    def signalling(self, t: float, event: Signalling) -> None:
        self._unsure = event
        self._wait(t, event.instead)

    def _wait(self, t: float, by_hook: bool) -> None:
        """IDLE: of an Interrupt that was given up, or stored without its reasons."""
        if self.stage in (EpisodeStage.IDLE, EpisodeStage.ASKED, EpisodeStage.WAITING):
            self.stage, self._since_t, self._signal_t, self._by_hook = EpisodeStage.WAITING, t, t, by_hook

    def signalled(self, t: float, event: Signalled) -> list[Action]:
        announced, self._unsure = self._unsure is not None, None
        if event.dry_run:
            self.start_cooldown(t)
            return []
        if event.error:
            return self._failed(t, event, announced)
        if announced or self.stage in (EpisodeStage.IDLE, EpisodeStage.ASKED):
            self._wait(t, event.instead)
        return []

    def hook_ran(self, t: float, event: HookRan, writing: bool) -> list[Action]:
        """The hook has ended. One that failed in place of the signal: it follows, unless a checkpoint is on its way."""
        failed = self._by_hook and bool(event.error)
        if not failed or writing or self.stage is not EpisodeStage.WAITING or self._request is None:
            return []
        return self.begin(replace(self._request, t=t, by_signal=True))

    def _failed(self, t: float, event: Signalled, announced: bool) -> list[Action]:
        if announced and self.stage is EpisodeStage.WAITING:
            self.stage, self._signal_t = EpisodeStage.IDLE if self._request is None else EpisodeStage.ASKED, None
        if self.stage is EpisodeStage.ASKED and self._tries >= TRIES:
            return self._escalate(t, "SIGTERM", f"{event.signal} could not be sent: {event.error}")
        if self.stage is EpisodeStage.ESCALATED:
            self.start_cooldown(t)
            text = f"{event.signal} could not be sent ({event.error}): nothing more can be done from here"
            return [Notice(t, "failed", text, {"signal": event.signal, "error": event.error})]
        self._retry_t = t + RETRY_SECONDS
        return []

    def saved(self, t: float) -> float | None:
        """A checkpoint is complete; seconds since the signal, None when none was sent."""
        if self.stage not in (EpisodeStage.WAITING, EpisodeStage.ESCALATED) or self._signal_t is None:
            return None
        self.stage, self._since_t = EpisodeStage.SAVED, t
        return t - self._signal_t

    def check_deadlines(self, t: float, checkpoint_seconds: float, writing: bool) -> list[Action]:
        if self.stage is EpisodeStage.IDLE:
            return []
        waited = t - self._since_t
        timeout = self._policy.save_timeout(checkpoint_seconds)
        if self.stage is EpisodeStage.ASKED:
            return self._ask_again(t)
        if self.stage is EpisodeStage.WAITING and waited > timeout * (PATIENCE if writing else 1.0):
            return self._overdue(t, f"no checkpoint and no exit within {format_duration(waited)}")
        if self.stage is EpisodeStage.ESCALATED:
            return self._after_sigterm(t, waited)
        if self.stage is EpisodeStage.SAVED and waited > timeout:
            return self._give_up(t, "the trainer saved and runs on")
        return []

    def _ask_again(self, t: float) -> list[Action]:
        request = self._request
        if request is None or t < self._retry_t:
            return []
        if self._tries >= TRIES:
            return self._escalate(t, "SIGTERM", "the interrupt was never reported as sent")
        self._tries, self._retry_t = self._tries + 1, t + ANSWER_SECONDS
        return [replace(request, t=t, by_signal=True)]

    def _overdue(self, t: float, reason: str) -> list[Action]:
        """What may never have been sent is no reason for a stronger signal, and what it was decided on may be past."""
        if self._unsure is None:
            return self._escalate(t, "SIGTERM", reason)
        text = f"{reason}, and {self._unsure.signal_or_hook} may not have been sent"
        self._reset()
        return [Notice(t, "note", f"{text}: whether to interrupt is decided anew")]

    def _after_sigterm(self, t: float, waited: float) -> list[Action]:
        late = waited > self._policy.kill_after_seconds
        unsure = self._unsure.signal if self._unsure is not None else None
        if late and unsure == "SIGTERM":
            return self._escalate(t, "SIGTERM", "SIGTERM may not have been sent")
        if late and self._policy.kill and (not self._killed or unsure == "SIGKILL"):
            self._killed = True
            return self._escalate(t, "SIGKILL", f"SIGTERM had no effect within {format_duration(waited)}")
        if waited > self._policy.cooldown_seconds:
            return self._give_up(t, "the trainer runs on in spite of the signals")
        return []

    def _escalate(self, t: float, signal: str, reason: str) -> list[Action]:
        self.stage, self._since_t = EpisodeStage.ESCALATED, t
        if self._signal_t is None:
            self._signal_t = t
        notice = Notice(t, "escalated", f"{reason}: sending {signal}", {"signal": signal, "reason": reason})
        return [notice, Escalate(t, signal, reason)]

    def _give_up(self, t: float, text: str) -> list[Action]:
        cooldown = self._policy.cooldown_seconds
        self.start_cooldown(t)
        text = f"{text}; no other interrupt for {format_duration(cooldown)}"
        return [Notice(t, "continued", text, {"cooldown_s": cooldown})]
