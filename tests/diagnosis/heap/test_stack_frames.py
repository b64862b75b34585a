"""What the threads of each CPython do, read from outside, beside what it and py-spy tell."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.examination import StackFrame
from memwatch.diagnosis.heap.cpython_runtime import find_interpreter
from memwatch.diagnosis.heap.program_modules import is_installed
from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.diagnosis.heap.stack_frames import Frames, ThreadState, id_in_own_namespace, line_of
from memwatch.diagnosis.thread_stacks import read_stacks
from memwatch.errors import TargetGoneError
from support.processes import running
from support.pythons import NAMES, needed_python

CODE = (Path(__file__).parents[2] / "programs" / "frames.py").read_text().splitlines()


def command(name: str) -> list[str]:
    return needed_python(name).program("frames.py")


@contextmanager
def frames_of(pid: int) -> Iterator[Frames]:
    with closing(RemoteMemory(pid)) as memory:
        yield Frames(memory, find_interpreter(memory))


def eventually(look: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not look():
        assert time.monotonic() < end
        time.sleep(0.01)


def sources(frames: tuple[StackFrame, ...]) -> list[str]:
    """The lines of the program that they are in, without the library's."""
    return [CODE[frame.line - 1].strip() for frame in frames if frame.file == "<string>"]


@pytest.mark.parametrize("name", NAMES)
def test_each_thread_is_in_its_line(name: str) -> None:
    with running(command(name)) as process, frames_of(process.pid) as frames:

        def stacks() -> list[tuple[StackFrame, ...]]:
            return [frames.resolve_stack(frames.stack(thread)) for thread in frames.threads()]

        # Where no core is free, the main thread comes late to its loop.
        eventually(lambda: sources(stacks()[0])[1:] == ["spin()"] and "time.sleep(" in sources(stacks()[-1]))
        spins, waits = stacks()
        assert sources(spins)[1:] == ["spin()"] and sources(spins)[0] in ("while True:", "count += 1")
        assert sources(waits)[0] == "time.sleep(" and sources(waits)[-2:][-1] in ("pass", "for _ in batches():")
        assert [frame.function.rpartition(".")[2] for frame in waits[-3:]] == ["run", "_bootstrap_inner", "_bootstrap"]
        assert all(frame.installed for frame in waits[-3:]) and not any(frame.installed for frame in spins)
        tasks = {int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()}
        assert (
            {thread.tid for thread in frames.threads()}
            == tasks
            == {id_in_own_namespace(f"/proc/{task}", 0) for task in tasks}
        )
        assert frames.threads()[0].tid == process.pid
        process.kill()
        process.wait()
        with pytest.raises(TargetGoneError):
            frames.stack(ThreadState(0x1000, 0, 0)) or frames.threads()


@pytest.mark.parametrize("name", NAMES)
def test_each_instruction_is_in_its_line(name: str) -> None:
    shown = subprocess.run([*command(name), "lines"], capture_output=True, check=True, timeout=60).stdout
    minor = int(name.rpartition(".")[2])
    checked = 0
    for table, first, lines in json.loads(shown):
        for offset, line in lines:
            assert line_of(bytes.fromhex(table), first, offset, minor) == line
            checked += 1
    assert checked > 1000


def test_py_spy_sees_the_same() -> None:
    with running(command("3.11")) as process, frames_of(process.pid) as frames:
        eventually(lambda: len(frames.threads()) == 2)
        (theirs,) = [one for one in read_stacks(process.pid) if any(frame.function == "load" for frame in one.frames)]
        ours = frames.resolve_stack(frames.stack(frames.threads()[-1]))
        assert [(one.function, one.line) for one in ours] == [(one.function, one.line) for one in theirs.frames]


@given(st.binary(max_size=200), st.integers(0, 1 << 20), st.integers(0, 1 << 20), st.integers(8, 15))
def test_any_table_gives_a_line(table: bytes, first: int, offset: int, minor: int) -> None:
    assert isinstance(line_of(table, first, offset, minor), int)


def test_a_thread_that_is_none_does_nothing() -> None:
    waiting = [sys.executable, "-c", "print('ready', flush=True); input()"]
    with running(waiting) as process, frames_of(process.pid) as frames:
        (thread,) = frames.threads()
        assert frames.stack(ThreadState(thread.address, thread.interpreter + 8, thread.tid)) == ()
        assert frames.stack(ThreadState(8, thread.interpreter, thread.tid)) == ()
        assert frames.resolve_stack(((8, 8), (thread.address, 0))) == ()


def test_what_is_installed_is_told_from_the_program(tmp_path: Path) -> None:
    for package in ("site/numpy/core", "site/numpy-2.1.dist-info", "mine/trainer"):
        (tmp_path / package).mkdir(parents=True)
    for module in ("site/numpy/__init__.py", "site/numpy/core/__init__.py", "mine/trainer/__init__.py"):
        (tmp_path / module).touch()
    assert is_installed("/site/numpy/core/shapes.py", str(tmp_path)) and is_installed("/site/six.py", str(tmp_path))
    assert not is_installed("/mine/trainer/loop.py", str(tmp_path)) and not is_installed("<string>", str(tmp_path))
    assert is_installed("/usr/lib/python3.11/threading.py") and is_installed("<frozen runpy>")
    assert is_installed("/opt/venv/lib/python3.12/site-packages/torch/nn.py")
