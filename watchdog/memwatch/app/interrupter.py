"""Carries out interrupts by a signal, by the user's hook, or by both; makes the hook that is configured."""

from __future__ import annotations

import os
import pwd
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from memwatch.config.settings import Config
from memwatch.core.events import Escalate, Event, HookRan, Interrupt, Signalled, Signalling
from memwatch.core.interfaces import Signaller
from memwatch.core.measurements import RunIdentity, Target
from memwatch.core.snapshot import Snapshot
from memwatch.core.text_and_units import index_text, printable
from memwatch.errors import ConfigError, MemwatchError, SourceError
from memwatch.sources.target.target_facts import identify_run, is_torchrun
from memwatch.system.socket_peer import peer_uid

if TYPE_CHECKING:
    from memwatch.actions.interrupt_hook import Hook

CLOCK_REALTIME_COARSE = 5  # Linux stamps files by this clock, which is up to 10 ms behind time.time()
DEFAULT_SIGNAL = "SIGINT"  # reported as the interrupt's signal when none can be chosen


class Interrupter:
    """Carries out the engine's decisions. The signal precedes the hook, whose process takes a millisecond to start."""

    def __init__(
        self,
        signaller: Signaller,
        choose_signal: Callable[[], str],
        *,
        unreachable: Callable[[], str | None] = lambda: None,
        refusal: Callable[[], str | None] = lambda: None,
        on_sent: Callable[[int], None] = lambda _: None,
        hook: Hook | None = None,
        hook_replaces_signal: bool = False,
        state: Callable[[], Snapshot] | None = None,
        dry_run: bool = False,
    ) -> None:
        """`unreachable` returns why no signal would arrive; `refusal` why neither signal nor hook may be used.

        `state`, given with a hook, returns what its arguments describe.

        `on_sent` is called after the signal or the hook, with a file time just before it: a checkpoint that was
        complete by then is not an answer to it. It is called afterwards because it reads folders: that takes 0.3 ms,
        and on a network file system any time.
        """
        self._signaller, self._choose_signal = signaller, choose_signal
        self._unreachable, self._refusal, self._on_sent = unreachable, refusal, on_sent
        self._hook, self._hook_replaces_signal, self._state = hook, hook_replaces_signal, state
        self._dry_run = dry_run

    def unreachable_reason(self) -> str | None:
        """Return why no interrupt would reach the trainer; None when one would."""
        if self._dry_run:
            return "a dry run: nothing is sent"
        if (refusal := self._refusal()) is not None:
            return refusal
        if self._hook is not None and self._hook_replaces_signal:
            return None
        if (reason := self._unreachable()) is not None:
            return reason
        try:
            self._choose_signal()
        except MemwatchError as error:  # it ignores all of them
            return str(error)
        return None

    def execute(
        self, action: Interrupt | Escalate, announce: Callable[[Signalling], None] = lambda _: None
    ) -> Sequence[Event]:
        """Carry out `action` without waiting for it and return the outcome.

        `announce` is called just before a signal is sent, or a hook in its place is started.
        """
        if not self._dry_run and (refusal := self._refusal()) is not None:
            return [Signalled(action.t, DEFAULT_SIGNAL, error=refusal)]
        hook = self._hook
        if hook is None or self._state is None or isinstance(action, Escalate) or action.by_signal:
            return [self._send_signal(action, announce)]
        replaces = self._hook_replaces_signal
        signalled = self._replaced_signal(action) if replaces else self._send_signal(action, announce)
        facts = _hook_facts(self._state(), action, signalled.signal)
        command = hook.command(facts)
        try:
            if replaces and not self._dry_run:
                announce(Signalling(action.t, signalled.signal, command, instead=True))
                self._send(lambda: hook.start(action.t, facts))
            elif not self._dry_run:
                hook.start(action.t, facts)
        except SourceError as error:
            failed = HookRan(action.t, command, None, 0.0, str(error))
            return [failed, self._send_signal(action, announce)] if replaces else [signalled, failed]
        return [replace(signalled, hook=command)]

    def wait_for_hook(self, stopped: Callable[[], bool]) -> Sequence[Event]:
        """Wait, within its timeout, for a hook that still runs after the trainer's end: it may notify others."""
        return self._hook.wait_until_ended(stopped) if self._hook is not None else ()

    def _send_signal(self, action: Interrupt | Escalate, announce: Callable[[Signalling], None]) -> Signalled:
        name = action.signal if isinstance(action, Escalate) else DEFAULT_SIGNAL
        try:
            if isinstance(action, Interrupt):
                name = self._choose_signal()
            if not self._dry_run:
                announce(Signalling(action.t, name))
                self._send(lambda: self._signaller.send_signal(name))
        except MemwatchError as error:
            return Signalled(action.t, name, error=str(error))
        return Signalled(action.t, name, dry_run=self._dry_run)

    def _replaced_signal(self, action: Interrupt) -> Signalled:
        try:
            name = self._choose_signal()
        except MemwatchError:
            name = DEFAULT_SIGNAL
        return Signalled(action.t, name, dry_run=self._dry_run, instead=True)

    def _send(self, request: Callable[[], None]) -> None:
        before_ns = time.clock_gettime_ns(CLOCK_REALTIME_COARSE)
        request()
        self._on_sent(before_ns)


def _hook_facts(state: Snapshot, action: Interrupt, signal: str) -> Mapping[str, str]:
    """Return the values of actions.interrupt_hook.FACTS by their names; unknown ones are empty."""
    run = state.run
    return {
        "run_id": run.run_id if run is not None else "",
        "node": run.node if run is not None else "",
        "rank": str(run.rank) if run is not None and run.rank is not None else "",
        "pid": str(state.target.pid) if state.target is not None else "",
        "signal": signal,
        "generation": index_text(state.generation) if state.generation is not None else "",
        "resource": action.resource,
        "reason": action.reason,
        "sentence": state.sentence,
    }


def resolve_run_identity(
    config: Config, environ: Mapping[str, str], argv: Sequence[str], run_id: str, uid: int | None = None
) -> RunIdentity:
    """Return which part of which run a trainer is: by the configuration, its launcher, or the history (`run_id`).

    `uid`: of the user who runs it.
    """
    given = config.run
    found = identify_run(environ, argv, agent=is_torchrun(argv), host=os.uname().nodename, run_id=run_id)
    rank = found.rank if given.rank is None else given.rank
    user = "" if uid is None else user_name(uid)
    return replace(found, run_id=given.id or found.run_id, node=given.node or found.node, rank=rank, user=user)


def user_name(uid: int) -> str:
    """The name of a user; the number where there is none here."""
    try:
        return printable(pwd.getpwuid(uid).pw_name)
    except (KeyError, OverflowError):
        return str(uid)


def make_hook(config: Config, environ: Mapping[str, str], run: RunIdentity, now: Callable[[], float]) -> Hook | None:
    """Return the configured hook, or None; ConfigError when it uses a fact that is unknown for this trainer."""
    actions = config.actions
    if actions.hook is None:
        return None
    from memwatch.actions.interrupt_hook import Hook, hook_environ

    own_environ = hook_environ(actions.environment, os.environ)
    hook = Hook(actions.hook, own_environ, environ, seconds=actions.hook_seconds, now=now)
    is_known = {"run_id": run.run_id != "", "rank": run.rank is not None}
    for name, key in (("run_id", "run.id"), ("rank", "run.rank")):
        if name in hook.facts and not is_known[name]:
            hint = f"set {key}, or take it out of actions.hook"
            raise ConfigError(f"the hook wants {{{name}}}, and nothing says what that is", hint)
    return hook


def check_hook(config: Config, environ: Mapping[str, str], argv: Sequence[str]) -> None:
    """Raise ConfigError when the hook uses a fact that will be unknown for a trainer that is started like this."""
    make_hook(config, environ, resolve_run_identity(config, environ, argv, "of the history"), time.monotonic)


class InterruptLock:
    """Of several memwatch that watch one trainer, one interrupts it: a second signal would end the save of the first.

    It is held by the first that asks, until it ends. It is an abstract Unix socket: no file is left behind.
    """

    def __init__(self, target: Target, uid: int | None) -> None:
        """`uid`: the trainer's user, who may hold it too, as root may: others could keep a run from being saved."""
        self._address = f"\0memwatch-interrupts-{target.pid}-{target.start_ticks}"
        self._trusted = {0, os.geteuid(), uid}
        self._listener: socket.socket | None = None

    def refusal(self) -> str | None:
        """Return why this memwatch may not interrupt; None: it may, also where no lock can be had."""
        if self._listener is not None:
            return None
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listener.bind(self._address)
            listener.listen(1)
        except OSError:
            listener.close()
            return "another memwatch watches this trainer, and interrupts it" if self._is_held() else None
        self._listener = listener
        return None

    def _is_held(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as asking:
            try:
                asking.connect(self._address)
            except BlockingIOError:  # others ask, too
                return True
            except OSError:
                return False
            return peer_uid(asking) in self._trusted

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
