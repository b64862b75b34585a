"""`memwatch run` that starts a trainer again: to the end of a leaking one, and no longer than it gains something."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from memwatch.history import stored_runs
from support.mainjob import Folder, Memwatch, memwatch, until

pytestmark = pytest.mark.integration

PROGRAM = Path(__file__).parents[1] / "programs" / "resuming.py"
POLICY = "policy: {confirmation_seconds: 0.2, checkpoint_seconds: 0.5}\n"
LEAKING = ("12", "12", "0.6", "0")  # generations, MB and seconds of each, MB to begin with
TOO_LARGE = ("12", "1", "0.6", "200")
LIMIT = ("--limit", "110MB")  # of which half of the generations fit


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


Start = Callable[..., Memwatch]


@pytest.fixture
def start(folder: Folder) -> Iterator[Start]:
    """`memwatch run` with these options of the resuming trainer with these arguments; it ends with the test."""
    with ExitStack() as held:

        def begin(
            *options: str,
            trainer: tuple[str, ...] = LEAKING,
            listen: str = "none",
            more: str = "",
            before: tuple[str, ...] = (),
        ) -> Memwatch:
            path = folder.path / "memwatch.yaml"
            path.write_text(f"{POLICY}{more}listen: {listen}\nmemory: {{interval_seconds: 0.1}}\n")
            words = ("run", "--config", str(path), "--json", *options, "--", *command(*trainer))
            return held.enter_context(memwatch(folder, *words, before=before))

        yield begin


def command(*arguments: str, program: Path = PROGRAM) -> tuple[str, ...]:
    return (sys.executable, "-S", str(program), *arguments)


def resuming(*trainer: str, program: Path = PROGRAM) -> tuple[str, str]:
    return ("--resume-with", shlex.join(command(*trainer, "--resume", program=program)))


def done(folder: Folder) -> list[int]:
    """The generations that were completed, in their order."""
    path = folder.path / "done"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def attempts(watch: Memwatch) -> list[int]:
    return [one["attempt"] for one in watch.named("attached")]


# --- to the end -----------------------------------------------------------------------------------------------------


def test_a_leaking_trainer_gets_to_its_end(folder: Folder, start: Start) -> None:
    other = folder.path / "resume.py"
    shutil.copy(PROGRAM, other)
    watch = start(*LIMIT, *resuming(*LEAKING, program=other))
    assert watch.wait() == 0, watch.said()
    assert done(folder) == list(range(1, 13)), "each generation once"
    assert attempts(watch) == list(range(len(watch.named("restarting")) + 1))
    assert 1 <= len(watch.named("restarting")) <= 4
    assert [one["cause"] for one in watch.named("exited")][-2:] == ["interrupted_saved", "completed"]
    assert watch.err.read_text().count("Generation 1 / 12") == 1, "the output of all of them"
    [run] = stored_runs.stored_runs(folder.history)
    assert run.attempts == len(attempts(watch)), "one run, though another program resumed it"
    told = [one.event for one in stored_runs.notices(folder.history, run)]
    assert told.count("restarting") == len(attempts(watch)) - 1


def test_without_a_history_it_is_the_same_run_too(folder: Folder, start: Start) -> None:
    watch = start(*LIMIT, *resuming(*LEAKING), "--history", "none")
    assert watch.wait() == 0, watch.said()
    assert attempts(watch)[:2] == [0, 1]
    assert done(folder) == list(range(1, 13))


def test_without_the_wish_nothing_is_started_again(folder: Folder, start: Start) -> None:
    watch = start(*LIMIT)
    assert watch.wait() == 130, watch.said()
    assert watch.events()[-1]["event"] == "exited"


# --- no longer than it gains something ------------------------------------------------------------------------------


def test_a_limit_below_the_baseline_ends_it_after_one_restart(folder: Folder, start: Start) -> None:
    watch = start(*LIMIT, *resuming(*TOO_LARGE), trainer=TOO_LARGE)
    assert watch.wait() == 130, watch.said()
    assert attempts(watch) == [0, 1]
    last = watch.events()[-1]
    assert (last["event"], last["restarts"]) == ("gave_up", 1)
    assert "gave up after restart 1: it gained no generation" in last["text"]
    assert "the limit of 110.0 MB is too low for this program" in last["text"]


def test_a_trainer_that_begins_anew_each_time_ends_it_too(folder: Folder, start: Start) -> None:
    watch = start(*LIMIT, "--max-restarts", "5")
    assert watch.wait() == 130, watch.said()
    assert attempts(watch) in ([0, 1], [0, 1, 2])  # by chance, one comes a generation further than the one before
    assert "does not go on from its checkpoint" in watch.events()[-1]["reason"]


def test_no_more_than_max_restarts(folder: Folder, start: Start) -> None:
    many = ("60", *LEAKING[1:])
    watch = start(*LIMIT, *resuming(*many), "--max-restarts", "1", trainer=many)
    assert watch.wait() == 130, watch.said()
    assert attempts(watch) == [0, 1]
    assert watch.named("restarting")[0]["text"].startswith("restart 1 of 1 in 2 s: python")
    assert watch.events()[-1]["reason"] == "it needs another one, and --max-restarts allows no more"


def test_another_end_is_the_end(folder: Folder, start: Start) -> None:
    watch = start("--max-restarts", "5", trainer=("1", "1", "0.2", "not a number"))
    assert watch.wait() == 1
    assert attempts(watch) in ([], [0])
    assert watch.events()[-1]["event"] == "exited"


# --- told to end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_pause_ends_it(folder: Folder, start: Start, number: signal.Signals) -> None:
    watch = start("--limit", "80MB", *resuming(*LEAKING))
    until(lambda: len(watch.named("restarting")) == 2)
    watch.process.send_signal(number)
    assert watch.wait(3.0) == 130, "the second pause is 4 s long\n" + watch.said()
    assert attempts(watch) == [0, 1]
    assert "memwatch: asked to end by a signal: the trainer is not started again" in watch.err.read_text()


def test_another_signal_during_the_pause_does_not(folder: Folder, start: Start) -> None:
    watch = start(*LIMIT, *resuming(*LEAKING))
    until(lambda: watch.named("restarting"))
    watch.process.send_signal(signal.SIGUSR1)
    until(lambda: attempts(watch) == [0, 1])
    assert watch.named("attached")[1]["t"] - watch.named("restarting")[0]["t"] > 1.9, "nor does it shorten it"


def test_a_signal_during_a_watch_goes_to_the_trainer_and_ends_it_all(folder: Folder, start: Start) -> None:
    watch = start(*LIMIT, *resuming(*LEAKING))
    until(lambda: attempts(watch) == [0, 1])
    until(lambda: len(watch.err.read_text().split("Checkpoint saved")[-1].splitlines()) > 1)
    watch.process.send_signal(signal.SIGINT)  # it saves, as when memwatch asks for it
    assert watch.wait() == 130, watch.said()
    assert attempts(watch) == [0, 1]
    assert not watch.named("gave_up")


# --- what lasts -----------------------------------------------------------------------------------------------------


def status(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status.json", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def test_the_endpoint_answers_during_the_pause_and_lingering_does_not_lengthen_it(folder: Folder, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    listen, linger = f"'127.0.0.1:{port}'", "daemon: {linger_seconds: 600}\n"
    watch = start(*LIMIT, *resuming(*LEAKING), listen=listen, more=linger)
    until(lambda: watch.named("restarting"))
    assert status(port)["exited"]["cause"] == "interrupted_saved"
    until(lambda: attempts(watch) == [0, 1], 10)
    until(lambda: status(port)["attempt"] == 1)
    assert sum("metrics and status" in one["text"] for one in watch.named("note")) == 1, "it was there all the while"


def test_a_trainer_started_again_has_the_limits_of_the_first(folder: Folder, start: Start) -> None:
    show = "import resource; print('descriptors:', resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    few = ("sh", "-c", 'ulimit -Sn 500; exec "$0" "$@"')
    watch = start(*LIMIT, "--resume-with", shlex.join((sys.executable, "-S", "-c", show)), before=few)
    assert watch.wait() == 0, watch.said()
    assert watch.err.read_text().splitlines()[-1] == "descriptors: 500"
