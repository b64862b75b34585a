"""Stacks by the real py-spy."""

from __future__ import annotations

import json
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.diagnosis.thread_stacks import parse_stacks, read_stacks
from memwatch.errors import SourceError
from support.processes import running

TWO = """
import threading, time
def wait():
    time.sleep(60)
def step():
    print("ready", flush=True)
    while True:
        pass
threading.Thread(target=wait, name="loader", daemon=True).start()
step()
"""


def test_each_thread_is_told_with_what_it_does() -> None:
    with running([sys.executable, "-c", TWO]) as process:
        threads = {thread.frames[0].function: thread for thread in read_stacks(process.pid)}
    assert {"wait", "step"} <= threads.keys()
    assert threads["step"].active and not threads["wait"].active
    assert threads["step"].frames[0].file == "<string>" and threads["step"].frames[0].line in (7, 8)
    assert [frame.function for frame in threads["step"].frames] == ["step", "<module>"]


def test_a_process_that_is_no_python_is_refused() -> None:
    with running(["sh", "-c", "echo ready; exec sleep 60"]) as process, pytest.raises(SourceError, match="py-spy"):
        read_stacks(process.pid)


@given(
    st.binary()
    | st.recursive(st.none() | st.text(), lambda i: st.lists(i) | st.dictionaries(st.text(), i)).map(
        lambda tree: json.dumps(tree).encode()
    )
)
def test_any_answer_is_read_or_refused(raw: bytes) -> None:
    with suppress(SourceError):
        parse_stacks(raw)


def test_names_are_made_printable() -> None:
    frame = {"name": "a\x1b[31m", "short_filename": None, "filename": "b\n", "line": 3}
    (thread,) = parse_stacks(json.dumps([{"thread_name": None, "active": 1, "frames": [frame]}]).encode())
    assert thread.name == "" and thread.frames[0].function == "a" and "\n" not in thread.frames[0].file
