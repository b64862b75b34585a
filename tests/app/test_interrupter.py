"""An interrupt reaches the trainer by a signal, by the hook, or by both; and by the signal where the hook fails."""

from __future__ import annotations

import os
import socket
import time
from contextlib import closing
from pathlib import Path

import pytest

from memwatch.actions.interrupt_hook import SYSTEM, Hook
from memwatch.app.interrupter import Interrupter, InterruptLock
from memwatch.core.events import Attached, Escalate, HookRan, Interrupt, Signalled, Signalling
from memwatch.core.measurements import RunIdentity, Target
from memwatch.errors import SourceError
from memwatch.sources.checkpoint_watch import CheckpointWatch
from support.mainjob import until
from support.watch import TARGET, Watch

ASKED = Interrupt(5.0, "host", "no room for another generation")


class World:
    """The trainer's signals, and the moments at which it was asked to save, in their order."""

    def __init__(self, folder: Path) -> None:
        self.calls: list[str] = []
        self.hooked = folder / "hooked"
        self.error: SourceError | None = None

    def announce(self, planned: Signalling) -> None:
        """Told before it is done."""
        assert not self.hooked.exists()
        self.calls.append(f"to come: {planned.signal_or_hook}")

    def send_signal(self, signal_name: str) -> None:
        if self.error is not None:
            raise self.error
        assert not self.hooked.exists(), "the signal goes first"
        self.calls.append(signal_name)

    def asked(self, before_ns: int) -> None:
        self.calls.append("asked")

    def interrupter(self, *words: str, **options: object) -> Interrupter:
        words = words or ("sh", "-c", f'echo "$MEMWATCH_RANK $MEMWATCH_REASON $1" >> {self.hooked}', "sh", "{pid}")
        hook = Hook(words, SYSTEM, {}, now=lambda: ASKED.t)
        watch = Watch()
        watch.feed(Attached(0.0, TARGET, "python main.py", run=RunIdentity("job-7", "a", 3)))
        state = watch.engine.snapshot
        return Interrupter(self, lambda: "SIGINT", on_sent=self.asked, hook=hook, state=state, **options)  # type: ignore[arg-type]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_signal_goes_first_and_the_hook_follows(world: World) -> None:
    interrupter = world.interrupter()
    [told] = interrupter.execute(ASKED)
    assert isinstance(told, Signalled) and not told.instead and told.hook.endswith("sh 100")
    assert world.calls == ["SIGINT", "asked"]
    [ran] = interrupter.wait_for_hook(lambda: False)
    assert isinstance(ran, HookRan) and ran.error == ""
    assert world.hooked.read_text() == "3 no room for another generation 100\n"


def test_in_place_of_the_signal_nothing_is_sent(world: World) -> None:
    interrupter = world.interrupter(hook_replaces_signal=True)
    [told] = interrupter.execute(ASKED)
    assert isinstance(told, Signalled) and told.instead and told.signal == "SIGINT"
    assert world.calls == ["asked"]
    until(world.hooked.exists)


@pytest.mark.parametrize(
    "action", [Interrupt(5.0, "host", "again", by_signal=True), Escalate(5.0, "SIGTERM", "no checkpoint")]
)
def test_it_has_one_turn_and_what_follows_is_signalled(world: World, action: Interrupt | Escalate) -> None:
    [told] = world.interrupter(hook_replaces_signal=True).execute(action)
    assert told == Signalled(5.0, "SIGTERM" if isinstance(action, Escalate) else "SIGINT")
    assert not world.hooked.exists()


@pytest.mark.parametrize("instead", [False, True])
def test_a_dry_run_starts_nothing(world: World, instead: bool) -> None:
    interrupter = world.interrupter(hook_replaces_signal=instead, dry_run=True)
    [told] = interrupter.execute(ASKED)
    assert isinstance(told, Signalled) and told.dry_run and told.hook
    assert world.calls == [] and interrupter.wait_for_hook(lambda: False) == ()
    assert interrupter.unreachable_reason() == "a dry run: nothing is sent"


def gone(folder: Path) -> str:
    """A program that is there until the hook is made."""
    program = folder / "stop-job"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("instead", [False, True])
def test_the_signal_is_sent_where_the_hook_cannot_be_started(world: World, tmp_path: Path, instead: bool) -> None:
    program = gone(tmp_path)
    interrupter = world.interrupter(program, hook_replaces_signal=instead)
    Path(program).unlink()
    told = interrupter.execute(ASKED)
    assert Signalled(5.0, "SIGINT") in told
    [failed] = [one for one in told if isinstance(one, HookRan)]
    assert failed.status is None and "No such file" in failed.error
    assert world.calls == ["SIGINT", "asked"]


def test_a_signal_that_cannot_be_sent_leaves_the_hook(world: World) -> None:
    world.error = SourceError("not permitted")
    [told] = world.interrupter().execute(ASKED)
    assert isinstance(told, Signalled) and told.error == "not permitted" and told.hook
    until(world.hooked.exists)


def test_a_hook_in_place_of_the_signal_needs_no_permission_to_signal(world: World) -> None:
    assert (
        world.interrupter(hook_replaces_signal=True, unreachable=lambda: "no permission").unreachable_reason() is None
    )
    assert world.interrupter(unreachable=lambda: "no permission").unreachable_reason() == "no permission"


@pytest.mark.parametrize(
    "action", [ASKED, Interrupt(5.0, "host", "again", by_signal=True), Escalate(5.0, "SIGTERM", "no checkpoint")]
)
def test_a_signal_is_announced_before_it_is_sent(world: World, action: Interrupt | Escalate) -> None:
    world.interrupter().execute(action, world.announce)
    name = "SIGTERM" if isinstance(action, Escalate) else "SIGINT"
    assert world.calls == [f"to come: {name}", name, "asked"]


def test_a_hook_in_place_of_the_signal_is_announced_and_the_signal_where_it_cannot_be_started(
    world: World, tmp_path: Path
) -> None:
    interrupter = world.interrupter("sh", "-c", f"touch {world.hooked}", hook_replaces_signal=True)
    interrupter.execute(ASKED, world.announce)
    until(world.hooked.exists)
    assert world.calls == [f"to come: the hook sh -c 'touch {world.hooked}'", "asked"]
    world.hooked.unlink()
    world.calls.clear()
    program = gone(tmp_path)
    interrupter = world.interrupter(program, hook_replaces_signal=True)
    Path(program).unlink()
    interrupter.execute(ASKED, world.announce)
    assert world.calls == [f"to come: the hook {program}", "to come: SIGINT", "SIGINT", "asked"]


def test_nothing_is_announced_that_will_not_be_done(world: World) -> None:
    for instead in (False, True):
        world.interrupter(hook_replaces_signal=instead, dry_run=True).execute(ASKED, world.announce)

    Interrupter(world, choose_none).execute(ASKED, world.announce)
    assert world.calls == []


def choose_none() -> str:
    raise SourceError("the trainer ignores SIGINT and SIGTERM")


def test_a_trainer_that_ignores_every_signal_is_reached_by_a_hook_alone(world: World) -> None:
    assert Interrupter(world, choose_none).unreachable_reason() == "the trainer ignores SIGINT and SIGTERM"
    assert (
        Interrupter(world, lambda: "SIGINT", unreachable=lambda: "no permission").unreachable_reason()
        == "no permission"
    )
    assert world.interrupter("true", hook_replaces_signal=True).unreachable_reason() is None
    assert world.interrupter("true").unreachable_reason() is None


# --- what it brought about ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", range(8))
def test_a_trainer_as_quick_as_the_signal_has_saved_after_it(tmp_path: Path, phase: int) -> None:
    """Files are stamped by a clock that stands still for milliseconds: their time may be before that of the signal."""

    class Quick:
        def send_signal(self, signal_name: str) -> None:
            file = os.open(tmp_path / "state.ckpt", os.O_CREAT | os.O_WRONLY)
            os.write(file, b"weights")
            os.close(file)

    watch = CheckpointWatch(os.getpid(), (), str(tmp_path))
    watch.poll(0.0)
    time.sleep(phase / 1000)
    Interrupter(
        Quick(), lambda: "SIGINT", on_sent=lambda before_ns: watch.discard_before_signal(1.0, before_ns)
    ).execute(ASKED)
    [seen] = watch.checkpoints_at_exit(2.0, killed=False)
    assert "state.ckpt" in seen.evidence
    watch.close()


# --- of several watchers one interrupts

WATCHED = Target("python", os.getpid(), 7)


def test_only_the_first_may_interrupt_until_it_ends() -> None:
    with closing(InterruptLock(WATCHED, None)) as first, closing(InterruptLock(WATCHED, None)) as second:
        assert first.refusal() is None
        assert second.refusal() == "another memwatch watches this trainer, and interrupts it"
        assert first.refusal() is None
        first.close()
        assert second.refusal() is None
        assert first.refusal() is None, "it holds what it held"


def test_a_later_process_with_the_same_number_is_another_trainer() -> None:
    with (
        closing(InterruptLock(WATCHED, None)) as first,
        closing(InterruptLock(Target("a", WATCHED.pid, 8), None)) as second,
    ):
        assert (first.refusal(), second.refusal()) == (None, None)


def test_an_address_that_nobody_listens_at_keeps_no_run_from_being_saved() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as squatter:
        squatter.bind(f"\0memwatch-interrupts-{WATCHED.pid}-{WATCHED.start_ticks}")
        with closing(InterruptLock(WATCHED, None)) as lock:
            assert lock.refusal() is None


def test_who_may_not_interrupt_sends_nothing(world: World) -> None:
    interrupter = Interrupter(world, lambda: "SIGINT", refusal=lambda: "another does")
    (signalled,) = interrupter.execute(ASKED, world.announce)
    assert interrupter.unreachable_reason() == "another does"
    assert (signalled.error, world.calls) == ("another does", [])
