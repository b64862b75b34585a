"""Two watchers of one trainer, as real sockets."""

from __future__ import annotations

import os
import socket
from contextlib import closing

from memwatch.actions.interrupt_lock import InterruptLock
from memwatch.core.measurements import Target

TARGET = Target("python", os.getpid(), 7)


def test_only_the_first_may_interrupt_until_it_ends() -> None:
    with closing(InterruptLock(TARGET, None)) as first, closing(InterruptLock(TARGET, None)) as second:
        assert first.refusal() is None
        assert second.refusal() == "another memwatch watches this trainer, and interrupts it"
        assert first.refusal() is None
        first.close()
        assert second.refusal() is None
        assert first.refusal() is None, "it holds what it held"


def test_a_later_process_with_the_same_number_is_another_trainer() -> None:
    with (
        closing(InterruptLock(TARGET, None)) as first,
        closing(InterruptLock(Target("a", TARGET.pid, 8), None)) as second,
    ):
        assert (first.refusal(), second.refusal()) == (None, None)


def test_an_address_that_nobody_listens_at_keeps_no_run_from_being_saved() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as squatter:
        squatter.bind(f"\0memwatch-interrupts-{TARGET.pid}-{TARGET.start_ticks}")
        with closing(InterruptLock(TARGET, None)) as lock:
            assert lock.refusal() is None
