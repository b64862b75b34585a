"""The ways in which a trainer may end, each played for real on a stage; what is known of the end is returned."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from support.mainjob import until
from trust.stage import PATIENCE_SECONDS, PROGRAMS, Stage
from trust.truth import Facts

Kind = Callable[[Stage], Facts]
LIMIT_MB = 150
LIMIT = ("--limit", f"{LIMIT_MB}MB")
MEMORY_ERROR, CUDA_OOM = "memory_error", "cuda_oom"
DEVICES = ("torch", "jax", "tensorflow", "hip", "cublas")
FATAL = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP)
BAD_ALLOC = """
#include <new>
#include <vector>
int main() { std::vector<char*> kept; for (;;) kept.push_back(new char[1ull << 46]); }
"""
PARENTS = ("pid", "reaps", "never", "leaves")
ALONE = ("pid", "run")


def ending(*words: str) -> tuple[str, ...]:
    """tests/programs/ending.py, which ends in this way."""
    return (sys.executable, "-S", "-u", str(PROGRAMS / "ending.py"), *words)


def leaking(stage: Stage, on_signal: str, generations: int = 60) -> tuple[str, ...]:
    """tests/programs/leak.py, which leaks 10 to 14 MB in 0.2 to 0.4 s, by exec from a shell that waits."""
    size, seconds = stage.chance.uniform(10, 14), stage.chance.uniform(0.2, 0.4)
    words = ("-S", "-u", str(PROGRAMS / "leak.py"), on_signal, str(generations), f"{size:.1f}", f"{seconds:.2f}")
    return shell(WAITING + 'exec "$@"', sys.executable, *words)


def shell(script: str, *words: str) -> tuple[str, ...]:
    """A shell that says its PID, and then does this; "$@" are the words."""
    begin = "echo $$ > pid; "
    return ("sh", "-c", begin + script, "sh", *words)


WAITING = "while [ ! -e go ]; do sleep 0.02; done; "


# --- by itself ------------------------------------------------------------------------------------------------------


def by_itself(*words: str, **facts: Any) -> Kind:
    """A way of ending.py."""
    return lambda stage: stage.play(ending(*words), ways=("pid", "run", "serve", "reaps", "never", "leaves"), **facts)


def fails(stage: Stage) -> Facts:
    return stage.play(ending("exits", str(stage.chance.choice((1, 2, 3, 77, 255)))))


def device_fails(stage: Stage) -> Facts:
    return stage.play(ending("device", stage.chance.choice(DEVICES)), failure=CUDA_OOM)


def survived(*then: str, **facts: Any) -> Kind:
    """A failed allocation that is caught, a moment before it ends in another way."""

    def play(stage: Stage) -> Facts:
        how = stage.chance.choice(("retries", "logs", *DEVICES[:3]))
        return stage.play(ending("survives", how, f"{stage.chance.choice((0.0, 0.3)):.1f}", *then), **facts)

    return play


def long_survived(stage: Stage) -> Facts:
    then = stage.chance.choice((("raises",), ("exits", "1"), ("exits", "3"), ("aborts",)))
    return stage.play(ending("survives_long", f"{stage.chance.uniform(0, 0.5):.1f}", *then))


def throws_bad_alloc(stage: Stage) -> Facts:
    source, program = stage.folder.path / "throws.cc", stage.folder.path / "throws"
    source.write_text(BAD_ALLOC)
    stage.run("g++", "-O0", "-o", str(program), str(source))
    return stage.play(ending("throws", str(program)), failure=MEMORY_ERROR)


def lies(stage: Stage) -> Facts:
    then = stage.chance.choice((("exits",), ("exits", "1"), ("raises",), ("aborts",)))
    return stage.play(ending("lies", "0.1", *then))


def another_program(stage: Stage) -> Facts:
    script = stage.chance.choice(("exit 6", "exit 0", 'kill -USR2 "$$"', 'perl -e "die q(no data)"'))
    return stage.play(shell(WAITING + script))


def becomes_another(stage: Stage) -> Facts:
    script = stage.chance.choice(("sleep 0.3; exit 4", "exit 0", 'kill -SEGV "$$"'))
    return stage.play(ending("becomes", "sh", "-c", script))


def shell_around(*words: str, **facts: Any) -> Kind:
    """The trainer that is watched is a shell, and what ends is its child."""
    return lambda stage: stage.play(shell('"$@"; exit $?', *_below(words)), **facts)


def _below(words: Sequence[str]) -> tuple[str, ...]:
    """ending.py, which leaves the PID to the shell above it."""
    return ("env", "ENDING_PID_FILE=child", *ending(*words))


# --- by somebody's signal -------------------------------------------------------------------------------------------


def somebodys_signal(stage: Stage) -> Facts:
    number = stage.chance.choice(FATAL)
    return stage.play(
        ending("waits"), ways=("pid", "serve", "leaves", "never", "reaps", "run"), act=lambda: stage.send(number)
    )


def signal_near_the_limit(stage: Stage) -> Facts:
    stage.confine(LIMIT_MB)
    stage.blind = stage.chance.random() < 0.3
    size, number = stage.chance.randint(115, 132), stage.chance.choice((signal.SIGKILL, signal.SIGTERM))

    def act() -> None:
        until(stage.wrote("full"), PATIENCE_SECONDS)
        time.sleep(stage.chance.uniform(0, 0.4))
        stage.send(number)

    return stage.play(ending("fills", str(size)), "--dry-run", ways=ALONE, act=act)


def somebodys_interrupt_that_saves(stage: Stage) -> Facts:
    """Long before memwatch would."""
    number = signal.SIGINT

    def act() -> None:
        until(stage.wrote("Generation 2"), PATIENCE_SECONDS)
        stage.send(number)

    command = leaking(stage, stage.chance.choice(("saves", "slowly", "leaves")))
    return stage.play(command, "--limit", "4GB", ways=("pid",), act=act)


def kills_the_child(stage: Stage) -> Facts:
    """A shell says 137 of it, and nobody killed the shell."""

    def act() -> None:
        until((stage.folder.path / "child").exists, PATIENCE_SECONDS)
        stage.run("sh", "-c", "kill -KILL $(cat child)")

    return stage.play(shell('"$@"; exit $?', *_below(("waits",))), act=act)


# --- by the kernel --------------------------------------------------------------------------------------------------


def killed_by_kernel(*ways: str, blind: bool = False, arguments: Sequence[str] = ()) -> Kind:
    """At the limit of its own cgroup."""

    def play(stage: Stage) -> Facts:
        stage.confine(LIMIT_MB)
        stage.blind = blind
        return stage.play(ending("grows"), *arguments, ways=ways)

    return play


def worker_killed(*then: str, blind: bool = False, sent: int = 0) -> Kind:
    """The kernel kills a worker; the trainer goes on, and then ends in another way, or by somebody's signal."""

    def play(stage: Stage) -> Facts:
        stage.confine(LIMIT_MB)
        stage.blind = blind

        def act() -> None:
            if sent:
                until(stage.wrote("going on"), PATIENCE_SECONDS)
                time.sleep(stage.chance.uniform(0.0, 1.0))
                stage.send(sent)

        wait = f"{stage.chance.choice((0.0, 0.3, 1.0)):.1f}"
        return stage.play(ending("worker", wait, *then), "--dry-run", ways=ALONE, act=act, kills=0)

    return play


def shell_whose_child_is_killed_by_kernel(stage: Stage) -> Facts:
    stage.confine(LIMIT_MB)
    return stage.play(shell('"$@"; exit $?', *_below(("grows",))), "--dry-run", ways=ALONE, child_killed=True, kills=0)


def shell_whose_child_is_killed_after_a_worker(stage: Stage) -> Facts:
    """The kernel kills a worker; later somebody kills the child of the shell, which says 137."""
    stage.confine(LIMIT_MB)

    def act() -> None:
        until(stage.wrote("going on"), PATIENCE_SECONDS)
        time.sleep(stage.chance.uniform(0.3, 2.0))
        stage.run("sh", "-c", "kill -KILL $(cat child)")

    command = shell('"$@"; exit $?', *_below(("worker", "0", "waits")))
    return stage.play(command, "--dry-run", ways=ALONE, act=act, kills=0)


def neighbour_killed(*then: str, sent: int = 0, blind: bool = False) -> Kind:
    """The kernel kills a process of others in the same cgroup, as the trainer ends otherwise."""

    def play(stage: Stage) -> Facts:
        stage.confine(LIMIT_MB)
        stage.blind = blind
        first = ("sh", "-c", 'echo 1000 > /proc/self/oom_score_adj; exec "$@"', "sh", sys.executable, "-S", "-c")
        stage.beside(stage.words([*first, "import time; kept = b'x' * 50_000_000; time.sleep(60)"]))

        def act() -> None:
            stage.beside(stage.words([*first, "b'x' * 10**9"])).wait()
            if sent:
                time.sleep(stage.chance.uniform(0.0, 0.5))
                stage.send(sent)

        return stage.play(ending(*then), "--dry-run", ways=ALONE, act=act, kills=0)

    return play


def killed_beside_a_neighbour(stage: Stage) -> Facts:
    """The cgroup is shared, and the trainer is what the kernel kills."""
    stage.confine(LIMIT_MB)
    stage.beside(stage.words(_below(("fills", "60"))))
    return stage.play(ending("grows"), "--dry-run", ways=ALONE)


# --- by memwatch ----------------------------------------------------------------------------------------------------


def interrupted(on_signal: str, more: str = "", ways: Sequence[str] = ("pid", "run")) -> Kind:
    """As it leaks."""

    def play(stage: Stage) -> Facts:
        facts = stage.play(leaking(stage, on_signal), *LIMIT, *stage.configured(more), ways=ways)
        return stage.with_checkpoint(facts)

    return play


def interrupted_in_its_cgroup(*on_signal: str) -> Kind:
    """What saves takes all memory that there is."""

    def play(stage: Stage) -> Facts:
        stage.confine(LIMIT_MB)
        stage.blind = stage.chance.random() < 0.3
        facts = stage.play(leaking(stage, stage.chance.choice(on_signal)), *stage.configured(), ways=("pid",))
        return stage.with_checkpoint(facts)

    return play


def killed_while_saving(stage: Stage) -> Facts:
    def act() -> None:
        until((stage.folder.path / "saving").exists, PATIENCE_SECONDS)
        time.sleep(stage.chance.uniform(0.0, 2.4))
        stage.send_if_there(signal.SIGKILL)

    facts = stage.play(leaking(stage, "slowly"), *LIMIT, *stage.configured(), ways=("pid",), act=act)
    return stage.with_checkpoint(facts)


def ranks_interrupted(stage: Stage) -> Facts:
    """An agent as torchrun's passes the signal on and ends with an error."""
    command = (sys.executable, "-S", "-u", str(PROGRAMS / "parent.py"), "elastic")
    on_signal = stage.chance.choice(("saves", "slowly"))
    facts = stage.play((*command, *leaking(stage, on_signal)), *LIMIT, *stage.configured(), ways=("pid",))
    return stage.with_checkpoint(facts)


def ranks_fail(stage: Stage) -> Facts:
    command = (sys.executable, "-S", "-u", str(PROGRAMS / "parent.py"), "elastic")
    words, failure = stage.chance.choice(((("device", "torch"), CUDA_OOM), (("exits", "3"), ""), (("raises",), "")))
    return stage.play((*command, *_below(words)), ways=("pid", "run"), failure=failure)


def another_program_interrupted(stage: Stage) -> Facts:
    """Perl dies of the first signal."""
    script = '$|=1; for (1..60) { print "Generation $_\\n"; push @k, "x" x 12_000_000; select(undef,undef,undef,.3) }'
    command = shell(WAITING + 'exec perl -e "$1"', script)
    return stage.play(command, *LIMIT, *stage.configured(), ways=("pid",))


# --- with memwatch away ---------------------------------------------------------------------------------------------


def while_stopped(stage: Stage) -> Facts:
    """memwatch is stopped (SIGSTOP) as the trainer ends."""
    stage.confine(LIMIT_MB)
    words, sent = stage.chance.choice(
        (
            (("exits", "3"), 0),
            (("grows",), 0),
            (("waits",), signal.SIGKILL),
            (("waits",), signal.SIGTERM),
            (("exits",), 0),
        )
    )
    stage.way = stage.chance.choice(("pid", "reaps"))
    stage.start(ending(*words), "" if stage.way == "pid" else stage.way)
    watch = stage.attach("--dry-run")
    watch.process.send_signal(signal.SIGSTOP)
    stage.let_go()
    if sent:
        stage.send(sent)
    stage.await_gone()
    time.sleep(stage.chance.choice((0.2, 1.0, 7.0)))
    watch.process.send_signal(signal.SIGCONT)
    stage.await_end(watch)
    return stage.facts()


def while_killed(stage: Stage) -> Facts:
    """memwatch is killed, the trainer ends, memwatch is started again: it has missed that."""
    stage.start(ending("exits", "3"))
    stage.attach().kill()
    stage.let_go()
    facts = stage.facts()
    stage.watch("--pid", str(stage.pid)).wait(PATIENCE_SECONDS)
    return facts


def after_a_kill(stage: Stage) -> Facts:
    """memwatch is killed and started again before the end; what it knew of failed allocations is old."""
    stage.start(ending("survives", stage.chance.choice(("retries", "logs", "torch")), "9", "raises"))
    first = stage.attach()
    stage.let_go()
    until(stage.wrote("emory"), PATIENCE_SECONDS)
    time.sleep(0.4)
    first.kill()
    stage.await_end(stage.watch("--pid", str(stage.pid)))
    return stage.facts()


def interrupted_after_a_kill(stage: Stage) -> Facts:
    """memwatch is killed during the leak and started again."""
    stage.start(leaking(stage, stage.chance.choice(("saves", "leaves"))))
    arguments = (*LIMIT, *stage.configured())
    first = stage.attach(*arguments)
    stage.let_go()
    time.sleep(stage.chance.uniform(0.0, 1.5))
    first.kill()
    stage.await_end(stage.watch("--pid", str(stage.pid), *arguments))
    return stage.with_checkpoint(stage.facts())


def as_it_saves_memwatch_is_killed(stage: Stage) -> Facts:
    """memwatch is killed right after its interrupt, and started again."""
    stage.start(leaking(stage, "at_length"))
    arguments = (*LIMIT, *stage.configured(save_seconds=8.0))
    first = stage.attach(*arguments)
    stage.let_go()
    until((stage.folder.path / "saving").exists, PATIENCE_SECONDS)
    first.kill()
    stage.await_end(stage.watch("--pid", str(stage.pid), *arguments))
    return stage.with_checkpoint(stage.facts())


def before_it_is_attached(stage: Stage) -> Facts:
    """memwatch is just being started."""
    stage.let_go()
    if stage.chance.random() < 0.3:
        stage.way, status = "run", stage.chance.choice((0, 3))
        stage.watch("run", "--", *ending("exits", str(status))).wait(PATIENCE_SECONDS)
        return Facts(status)
    words = stage.chance.choice((("exits", "3"), ("exits",), ("raises",), ("aborts",)))
    stage.start(ending("lies", f"{stage.chance.uniform(0.0, 0.5):.2f}", *words))
    stage.await_end(stage.watch("--pid", str(stage.pid)))
    return stage.facts()


def early_kill_by_kernel(stage: Stage) -> Facts:
    """It meets its limit as memwatch begins."""
    stage.confine(LIMIT_MB)
    stage.let_go()
    watch = stage.watch("run", "--dry-run", "--", *stage.words(ending("grows")))
    stage.way = "run"
    watch.wait(PATIENCE_SECONDS)
    return Facts(None, "SIGKILL", kills=stage.kills())


def second_attempt(*then: str) -> Kind:
    """The attempt before, in the same log and history, ended by a failed allocation; this one ends otherwise."""

    def play(stage: Stage) -> Facts:
        first = stage.chance.choice((("allocates",), ("device", "torch")))
        stage.let_go()
        stage.start(ending("lies", "0.9", *first))
        stage.await_end(stage.watch("--pid", str(stage.pid)))
        stage.await_gone()
        (stage.folder.path / "go").unlink()
        stage.facts()
        stage.start(ending(*then))
        watch = stage.attach()
        stage.let_go()
        stage.await_end(watch)
        return stage.facts()

    return play


def in_a_container(stage: Stage) -> Facts:
    """PIDs are not the kernel's own there."""
    stage.confine(LIMIT_MB)
    space = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    watch = stage.watch("run", "--dry-run", *stage.configured(), "--", *stage.words(ending("grows")), before=space)
    until((stage.folder.path / "pid").exists, PATIENCE_SECONDS)
    stage.await_looks(watch)
    stage.let_go()
    watch.wait(PATIENCE_SECONDS)
    return Facts(None, "SIGKILL", kills=stage.kills())


# --------------------------------------------------------------------------------------------------------------------

KINDS: Mapping[str, Kind] = {
    "completed": by_itself("exits"),
    "failed": fails,
    "exception": by_itself("raises"),
    "MemoryError": by_itself("allocates", failure=MEMORY_ERROR),
    "GPU out of memory": device_fails,
    "Java heap": by_itself("java", failure=MEMORY_ERROR),
    "bad_alloc": throws_bad_alloc,
    "survived, completed": survived("exits"),
    "survived, exception": survived("raises"),
    "survived, status 3": survived("exits", "3"),
    "survived, aborted": survived("aborts"),
    "survived a generation": long_survived,
    "aborted": by_itself("aborts"),
    "crashed": by_itself("crashes"),
    "log lies": lies,
    "another program": another_program,
    "exec": becomes_another,
    "shell, failed": shell_around("exits", "5"),
    "shell, MemoryError": shell_around("allocates", failure=MEMORY_ERROR),
    "shell, child crashed": shell_around("crashes"),
    "shell, child killed": kills_the_child,
    "somebody's signal": somebodys_signal,
    "somebody's signal near the limit": signal_near_the_limit,
    "somebody's interrupt": somebodys_interrupt_that_saves,
    "OOM killer": killed_by_kernel("pid", "serve", "run", arguments=("--dry-run",)),
    "OOM killer, memwatch acting": killed_by_kernel("pid", "run"),
    "OOM killer, parents": killed_by_kernel("reaps", "never", "leaves", arguments=("--dry-run",)),
    "OOM killer, no kernel log": killed_by_kernel("pid", "reaps", blind=True, arguments=("--dry-run",)),
    "worker killed, completed": worker_killed("exits"),
    "worker killed, failed": worker_killed("exits", "4"),
    "worker killed, somebody's SIGKILL": worker_killed("waits", sent=signal.SIGKILL),
    "worker killed, somebody's SIGKILL, no kernel log": worker_killed("waits", sent=signal.SIGKILL, blind=True),
    "shell, child killed by OOM killer": shell_whose_child_is_killed_by_kernel,
    "shell, worker killed, child killed": shell_whose_child_is_killed_after_a_worker,
    "neighbour killed, SIGKILL": neighbour_killed("waits", sent=signal.SIGKILL),
    "neighbour killed, SIGKILL, no kernel log": neighbour_killed("waits", sent=signal.SIGKILL, blind=True),
    "neighbour killed, failed": neighbour_killed("lies", "0.8", "exits", "2"),
    "OOM killer, shared cgroup": killed_beside_a_neighbour,
    "interrupted, saves": interrupted("saves"),
    "interrupted, saves slowly": interrupted("slowly"),
    "interrupted, leaves": interrupted("leaves"),
    "interrupted, escalated": interrupted("shrugs"),
    "interrupted, saves at SIGTERM": interrupted("late"),
    "interrupted, killed": interrupted("stubborn", ", kill: true"),
    "interrupted, MemoryError": interrupted("fails"),
    "interrupted, OOM killer": interrupted_in_its_cgroup("dies_saving", "dies_unnamed"),
    "interrupted, saved, OOM killer": interrupted_in_its_cgroup("dies_saved"),
    "interrupted, somebody's SIGKILL": killed_while_saving,
    "interrupted, ranks": ranks_interrupted,
    "ranks fail": ranks_fail,
    "interrupted, another program": another_program_interrupted,
    "memwatch stopped": while_stopped,
    "memwatch killed": while_killed,
    "memwatch killed, survived": after_a_kill,
    "memwatch killed, interrupted": interrupted_after_a_kill,
    "memwatch killed as it saves": as_it_saves_memwatch_is_killed,
    "before it is attached": before_it_is_attached,
    "OOM killer at once": early_kill_by_kernel,
    "second attempt, failed": second_attempt("exits", "3"),
    "second attempt, exception": second_attempt("raises"),
    "container, OOM killer": in_a_container,
}
