from __future__ import annotations

import gc
import math
import os
from dataclasses import astuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources import procfs
from memwatch.sources.kernel_files import HeldValue, parse_count
from memwatch.sources.procfs import HostReader, read_children, read_stat, read_tasks
from support.fakeproc import FakeProc
from support.processes import WAIT, python, running


def flat(value):
    if value is None or isinstance(value, str):
        return []
    if isinstance(value, int | float):
        return [value]
    values = value if isinstance(value, tuple) else astuple(value)
    return [number for part in values for number in flat(part)]


PARSERS = [
    (procfs.parse_statm, b"1251 1024 787 193 0 270 0\n"),
    (procfs.parse_status, b"Name:\tx\nVmSwap:\t18446744073709551615 kB\n"),
    (procfs.parse_limits, b"Max data size             1844674407370955161518446744073709551615 unlimited bytes\n"),
    (procfs.parse_pids, b"10788 10789 18446744073709551615"),
    (procfs.parse_last_pid, b"0.06 0.02 0.00 1/110 7950\n"),
    (procfs.parse_meminfo, b"MemTotal: 1 kB\nMemAvailable: 18446744073709551615 kB\nSwapFree: 0 kB\n"),
]


@pytest.mark.parametrize(("parse", "real"), PARSERS)
def test_any_bytes_give_finite_numbers_or_a_named_error(parse, real):
    @given(
        st.binary() | st.lists(st.sampled_from([*real.split(), b"-1", b"nan", b"1e999", b"\n", b")"])).map(b" ".join)
    )
    @example(real)
    def check(raw):
        try:
            numbers = flat(parse(raw))
        except SourceError:
            return
        assert all(math.isfinite(number) and 0 <= number < 2**64 for number in numbers)

    check()


def test_statm_in_bytes():
    statm = procfs.parse_statm(b"1251 1024 787 193 0 270 0\n")
    assert (statm.size_bytes, statm.resident_bytes) == (1251 * 4096, 1024 * 4096)
    assert (statm.shared_bytes, statm.data_bytes) == (787 * 4096, 270 * 4096)


def test_minus_one_as_the_kernel_writes_it_is_an_error_not_a_size():
    with pytest.raises(SourceError, match="18446744073709551615"):
        procfs.parse_statm(b"18446744073709551615 1 1 1 0 1 0\n")


def test_limits():
    raw = (
        b"Max data size             4294967296           unlimited            bytes     \n"
        b"Max address space         unlimited            unlimited            bytes     \n"
    )
    assert procfs.parse_limits(raw) == (None, 2**32)


def test_host_memory(tmp_path):
    fake = FakeProc(tmp_path / "proc")
    host = HostReader(str(fake))
    assert astuple(host.read_memory(0.0)) == (1000 * 1024, 800 * 1024, 0)
    fake.write("meminfo", "MemTotal: 1000 kB\n")
    with pytest.raises(SourceError, match="MemAvailable"):
        host.read_memory(1.0)
    host.close()


def test_what_is_gone_is_gone_and_what_is_broken_says_so(tmp_path):
    fake = FakeProc(tmp_path / "proc")
    with pytest.raises(TargetGoneError, match="no process 10"):
        read_stat(10, str(fake))
    fake.write("10/stat", "10 (python")
    with pytest.raises(SourceError, match="10/stat"):
        read_stat(10, str(fake))
    assert read_children(10, str(fake)) == []


def test_what_cannot_be_read_leaves_nothing_that_only_the_collector_would_find(tmp_path):
    fake = FakeProc(tmp_path / "proc")
    fake.write("10/task", "no folder")
    gc.collect()
    for _ in range(10):
        with pytest.raises(SourceError, match="10/task"):
            read_tasks(10, str(fake))
    assert gc.collect() == 0


def test_children_of_all_threads():
    code = "import subprocess, threading\n"
    code += "start = lambda: subprocess.Popen(['sleep', '60'])\n"
    code += "thread = threading.Thread(target=start)\nthread.start()\nthread.join()\nstart()\n"
    with running(python(code + WAIT)) as program:
        children = read_children(program.pid)
        try:
            assert [read_stat(pid).parent_pid for pid in children] == [program.pid] * 2
        finally:
            for pid in children:
                os.kill(pid, 9)


def test_a_value_is_parsed_when_the_file_says_something_else(tmp_path):
    path, parsed = tmp_path / "file", []

    def parse(raw: bytes) -> int:
        parsed.append(raw)
        return parse_count(raw)

    value = HeldValue(str(path), parse)
    for raw in (b"12", b"12", b"x", b"x", b"12", b"34"):
        path.write_bytes(raw)
        if raw == b"x":
            with pytest.raises(SourceError):
                value.read_value()
        else:
            assert value.read_value() == int(raw)
    assert parsed == [b"12", b"x", b"x", b"34"]
    value.close()
