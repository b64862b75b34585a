"""How an interrupt reaches the trainer: by a signal, by the hook, or by both.

What a configuration wants to be run on an interrupt, and which part of which run it is told of.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from memwatch.config.settings import Config
from memwatch.core.events import Escalate, Event, HookRan, Interrupt, Signalled, Signalling
from memwatch.core.interfaces import Signaller
from memwatch.core.measurements import RunIdentity
from memwatch.core.snapshot import Snapshot
from memwatch.core.text_and_units import index_text
from memwatch.errors import ConfigError, MemwatchError, SourceError
from memwatch.sources.target.launcher_environment import identify_run, is_torchrun

if TYPE_CHECKING:
    from memwatch.actions.interrupt_hook import Hook


FILE_CLOCK = 5  # CLOCK_REALTIME_COARSE stamps files, up to 10 ms behind time.time()
FIRST_SIGNAL = "SIGINT"  # what is told where none could be chosen
Announce = Callable[[Signalling], None]


class Interrupter:
    """Carries out what the engine decided. The signal goes first: a process takes a millisecond to start."""

    def __init__(
        self,
        signaller: Signaller,
        choose_signal: Callable[[], str],
        *,
        unreachable: Callable[[], str | None] = lambda: None,
        asked: Callable[[int], None] = lambda _: None,
        hook: Hook | None = None,
        instead: bool = False,
        state: Callable[[], Snapshot] | None = None,
        dry_run: bool = False,
    ) -> None:
        """`instead`: the hook takes the place of the first signal; `state` is what it is told of.

        `unreachable`: why no signal would arrive. `asked` is called once the trainer was asked to save, with the time
        of files just before: what was complete then is not taken for what that brought about. It comes after the
        signal: a look at folders takes 0.3 ms, and on a network's file system as long as it likes.
        """
        self._signaller, self._choose_signal = signaller, choose_signal
        self._unreachable, self._asked = unreachable, asked
        self._hook, self._instead, self._state, self._dry_run = hook, instead, state, dry_run

    def unreachable_reason(self) -> str | None:
        """Why no interrupt would reach the trainer; None when one would."""
        if self._dry_run:
            return "a dry run: nothing is sent"
        return None if self._hook is not None and self._instead else self._unreachable()

    def execute(self, action: Interrupt | Escalate, announce: Announce = lambda _: None) -> Sequence[Event]:
        """Carry it out; what came of it. What reaches the trainer is announced just before."""
        hook = self._hook
        if hook is None or isinstance(action, Escalate) or action.by_signal:
            return [self._signal(action, announce)]
        signalled = self._replaced(action) if self._instead else self._signal(action, announce)
        facts = self._facts(action, signalled.signal)
        command = hook.command(facts)
        try:
            if self._instead and not self._dry_run:
                announce(Signalling(action.t, signalled.signal, command, instead=True))
                self._carefully(lambda: hook.start(action.t, facts))
            elif not self._dry_run:
                hook.start(action.t, facts)
        except SourceError as error:
            failed = HookRan(action.t, command, None, 0.0, str(error))
            return [failed, self._signal(action, announce)] if self._instead else [signalled, failed]
        return [replace(signalled, hook=command)]

    def wait_for_hook(self, stopped: Callable[[], bool]) -> Sequence[Event]:
        """The trainer has ended: wait for the hook, which may have others to tell, within its time."""
        return self._hook.wait_until_ended(stopped) if self._hook is not None else ()

    def _signal(self, action: Interrupt | Escalate, announce: Announce) -> Signalled:
        name = action.signal if isinstance(action, Escalate) else FIRST_SIGNAL
        try:
            name = action.signal if isinstance(action, Escalate) else self._choose_signal()
            if not self._dry_run:
                announce(Signalling(action.t, name))
                self._carefully(lambda: self._signaller.send_signal(name))
        except MemwatchError as error:
            return Signalled(action.t, name, error=str(error))
        return Signalled(action.t, name, dry_run=self._dry_run)

    def _replaced(self, action: Interrupt) -> Signalled:
        """The signal whose place the hook takes."""
        try:
            name = self._choose_signal()
        except MemwatchError:
            name = FIRST_SIGNAL
        return Signalled(action.t, name, dry_run=self._dry_run, instead=True)

    def _carefully(self, deed: Callable[[], None]) -> None:
        before_ns = time.clock_gettime_ns(FILE_CLOCK)
        deed()
        self._asked(before_ns)

    def _facts(self, action: Interrupt, signal: str) -> Mapping[str, str]:
        """By the names of actions.hook.FACTS; what is not known is empty."""
        state = self._state() if self._state is not None else None
        run = state.run if state is not None else None
        return {
            "run_id": run.run_id if run is not None else "",
            "node": run.node if run is not None else "",
            "rank": str(run.rank) if run is not None and run.rank is not None else "",
            "pid": str(state.target.pid) if state is not None and state.target is not None else "",
            "signal": signal,
            "generation": index_text(state.generation) if state is not None and state.generation is not None else "",
            "resource": action.resource,
            "reason": action.reason,
            "sentence": state.sentence if state is not None else "",
        }


def resolve_run_identity(config: Config, environ: Mapping[str, str], argv: Sequence[str], run_id: str) -> RunIdentity:
    """Which part of which run a trainer is: by the configuration, its launcher, or the history (`run_id`)."""
    given, agent = config.run, is_torchrun(argv)
    found = identify_run(environ, argv, agent=agent, host=os.uname().nodename, run_id=run_id)
    rank = found.rank if given.rank is None else given.rank
    return replace(found, run_id=given.id or found.run_id, node=given.node or found.node, rank=rank)


def make_hook(
    config: Config, environ: Mapping[str, str], run: RunIdentity | None, now: Callable[[], float]
) -> Hook | None:
    """What is run on an interrupt; ConfigError when it wants what is not known of the trainer with this `environ`."""
    actions = config.actions
    if actions.hook is None:
        return None
    from memwatch.actions.interrupt_hook import Hook, hook_environ

    own = hook_environ(actions.environment, os.environ)
    hook = Hook(actions.hook, own, environ, seconds=actions.hook_seconds, now=now)
    known = {"run_id": run is not None and run.run_id != "", "rank": run is not None and run.rank is not None}
    for name, key in (("run_id", "run.id"), ("rank", "run.rank")):
        if name in hook.facts and not known[name]:
            hint = f"set {key}, or take it out of actions.hook"
            raise ConfigError(f"the hook wants {{{name}}}, and nothing says what that is", hint)
    return hook


def check_hook(config: Config, environ: Mapping[str, str], argv: Sequence[str]) -> None:
    """ConfigError when the hook wants what will not be known of a trainer that is started so."""
    make_hook(config, environ, resolve_run_identity(config, environ, argv, "of the history"), time.monotonic)
