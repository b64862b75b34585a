"""Whether real programs of each CPython handle SIGINT, as read from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.measurements import SignalHandling
from memwatch.diagnosis.signal_handling import catches_after, catching_line, read_signal_handling
from memwatch.errors import SourceError
from support.processes import python, running
from support.pythons import NAMES, OWN, PROGRAMS, needed_python
from support.stopwatch import CpuStopwatch

PROGRAM = PROGRAMS / "interrupted.py"
LINES = PROGRAM.read_text().splitlines()
NOT_HANDLED = SignalHandling("SIGINT", False, reason="no handler, no `except KeyboardInterrupt`")


def line_of(text: str, after: str) -> int:
    """The number of the first line with this text after another."""
    first = LINES.index(after)
    return next(number for number, line in enumerate(LINES, 1) if number > first and text in line)


HANDLED = {
    "handler": ("save_on_signal", line_of("def save_on_signal", LINES[0])),
    "method": ("stop", line_of("def stop", LINES[0])),
    "caught": ("caught", line_of("except", "def caught():")),
    "bare": ("bare", line_of("except", "def bare():")),
    "finally_saves": ("finally_saves", line_of("save_checkpoint()", "    finally:")),
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("reaction", [*HANDLED, "nothing", "passed_on", "elsewhere", "thread"])
def test_what_handles_sigint_is_found(name: str, reaction: str) -> None:
    with running([*needed_python(name).command, str(PROGRAM), reaction]) as process:
        found = read_signal_handling(process.pid, "SIGINT")
    if reaction not in HANDLED:
        assert found == NOT_HANDLED
        return
    function, line = HANDLED[reaction]
    assert found.handled
    assert found.where.removeprefix("Trainer.") == f"{function} (interrupted.py:{line})"


@pytest.mark.parametrize("name", NAMES)
def test_without_a_source_the_names_in_the_code_decide(name: str) -> None:
    command = needed_python(name).program("interrupted.py")
    for reaction, handled in (("caught", True), ("handler", True), ("nothing", False)):
        with running([*command, reaction]) as process:
            assert read_signal_handling(process.pid, "SIGINT").handled is handled


def test_a_handler_of_another_signal_is_that_signals() -> None:
    with running([sys.executable, str(PROGRAM), "term"]) as process:
        assert read_signal_handling(process.pid, "SIGINT") == NOT_HANDLED
        assert read_signal_handling(process.pid, "SIGTERM").where.startswith("save_on_signal (interrupted.py:")


def test_a_relative_path_is_the_programs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.read_text())
    old = needed_python("3.8").command  # later ones make the path absolute
    with running([*old, "train.py", "bare"], cwd=tmp_path) as process:
        assert read_signal_handling(process.pid, "SIGINT").where.startswith("bare (train.py:")


def test_a_source_that_was_changed_since_the_start_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM.read_text())
    with running([sys.executable, str(file), "bare"]) as process:
        assert read_signal_handling(process.pid, "SIGINT").handled
        os.utime(file, (time.time() + 5, time.time() + 5))
        assert read_signal_handling(process.pid, "SIGINT") == NOT_HANDLED, "by its names, which show no bare except"


def test_while_modules_are_imported_it_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    with running(python("import sys; sys.path.insert(0, '.'); import slow"), cwd=tmp_path) as process:
        found = read_signal_handling(process.pid, "SIGINT")
    assert found.handled is None and "importing" in found.reason


def test_a_handler_in_c_is_not_judged() -> None:
    code = """
import ctypes, signal, time
libc = ctypes.CDLL(None)
handle = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: None)
signal.signal(signal.SIGINT, signal.SIG_IGN)
libc.signal(2, handle)
print("ready", flush=True)
time.sleep(60)
"""
    with running(python(code)) as process:
        found = read_signal_handling(process.pid, "SIGINT")
    assert found.handled is None and "C" in found.reason


def test_what_is_no_python_is_refused() -> None:
    with running(["sh", "-c", "echo ready; exec sleep 60"]) as process, pytest.raises(SourceError, match="CPython"):
        read_signal_handling(process.pid, "SIGINT")


def test_the_program_runs_on_and_a_look_is_cheap() -> None:
    look = "import sys, time; from memwatch.diagnosis.signal_handling import read_signal_handling as look; "
    look += "print(look(int(sys.argv[1]), 'SIGINT').handled, time.process_time())"
    watch = CpuStopwatch()
    with running([sys.executable, str(PROGRAM), "caught"]) as process:
        command = [sys.executable, "-c", look, str(process.pid)]
        said = subprocess.run(command, capture_output=True, text=True, check=True)
        assert process.poll() is None
    handled, seconds = said.stdout.split()
    assert handled == "True" and float(seconds) < 0.3 * watch.slowness, "with its imports"


@pytest.mark.parametrize(("caught", "handled"), [("KeyboardInterrupt", None), ("ValueError", False)])
def test_before_the_code_that_catches_it_it_is_not_known(tmp_path: Path, caught: str, handled: bool | None) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        f"import time\nprint('ready', flush=True)\ntime.sleep(60)\ntry:\n    train()\nexcept {caught}:\n    1\n"
    )
    with running([sys.executable, str(file)]) as process:
        assert read_signal_handling(process.pid, "SIGINT").handled is handled


# --- clauses ---------------------------------------------------------------------------------------------------------

NESTED = """
def outer():
    try:
        def inner():
            work()
        inner()
    except KeyboardInterrupt:
        save()
    else:
        later()
"""
TWO = """
try:
    try:
        work()
    except ValueError:
        pass
    other()
except BaseException as error:
    report(error)
    self.save_model()
    raise
"""
LIBRARY = """
try:
    work()
except KeyboardInterrupt:
    process.kill()
    raise
"""


@pytest.mark.parametrize(
    ("source", "first", "line", "is_library", "clause"),
    [
        (NESTED, 2, 6, False, 7),  # in the call of inner()
        (NESTED, 4, 5, False, None),  # the frame of inner() has no clause of its own
        (NESTED, 2, 10, False, None),  # an else is not covered
        (TWO, 1, 4, False, 8),
        (TWO, 1, 9, False, None),
        (TWO.replace("save_model", "close"), 1, 4, False, None),  # it passes the exception on
        (LIBRARY, 1, 3, False, 4),
        (LIBRARY, 1, 3, True, None),
        ("try:\n    work()\nexcept builtins.KeyboardInterrupt:\n    pass\n", 1, 2, False, 3),
        ("try:\n    work()\nexcept Exception:\n    pass\n", 1, 2, False, None),
        ("try:\n    work()\nexcept (ValueError, BaseException):\n    stop()\n", 1, 2, True, 3),
        ("try:\n    work(\n", 1, 2, False, None),  # no Python
    ],
)
def test_the_clause_around_a_line(source: str, first: int, line: int, is_library: bool, clause: int | None) -> None:
    assert catching_line(source, first, line, is_library) == clause


@pytest.mark.parametrize(
    ("first", "line", "comes"),
    [(2, 2, True), (2, 3, False), (4, 5, False), (0, 1, False)],
)
def test_a_clause_further_down(first: int, line: int, comes: bool) -> None:
    assert catches_after(NESTED, first, line) is comes


@given(st.text(), st.integers(-5, 50), st.integers(-5, 50))
def test_any_text_is_judged(source: str, first: int, line: int) -> None:
    assert catching_line(f"try:\n{source}", first, line) is None or line >= first
