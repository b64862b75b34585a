from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memwatch.core.proc_stat import parse_stat

HOSTILE = b"1234 (foo) Z ) S 77 1234 1234 0 -1 4194308 9 0 0 0 3 1 0 0 20 0 1 0 5555 18446744073709551615 9"
WHOLE = HOSTILE + b" 18446744073709551615 11 0 13" + b" 0" * 23 + b" 9"


def test_the_name_ends_at_the_last_parenthesis():
    found = parse_stat(WHOLE)
    assert (found.pid, found.name, found.state, found.parent_pid, found.start_ticks) == (1234, "foo) Z ", "S", 77, 5555)
    assert (found.layout, found.wait_status) == ((11, 13), 9)
    assert found.is_exiting, "PF_EXITING"
    assert not found.dead
    assert not found.kernel_thread


def test_what_an_old_kernel_does_not_write_is_unknown():
    found = parse_stat(HOSTILE)
    assert (found.layout, found.wait_status) == (None, None)


def test_a_process_that_runs_on_is_not_ending():
    found = parse_stat(Path("/proc/self/stat").read_bytes())
    assert not found.is_exiting
    assert found.layout is not None
    assert all(found.layout)


FIELDS = st.sampled_from([*WHOLE.split(), b"-1", b"nan", b"1_0", b"9" * 5000, b"\xc2\xb2", b")"])


@given(
    st.binary(max_size=120)
    | st.binary(max_size=20).map(lambda name: WHOLE.replace(b"foo) Z ", name))
    | st.lists(FIELDS).map(lambda fields: b"7 (x) S " + b" ".join(fields))
)
@example(b"7 (foo) Z ) S 1 " + b"18446744073709551615 " * 48)
def test_any_bytes_give_a_stat_or_a_value_error(data):
    try:
        found = parse_stat(data)
    except ValueError:
        return
    assert len(found.state) == 1
    numbers = (
        found.pid,
        found.parent_pid,
        found.flags,
        found.start_ticks,
        found.wait_status or 0,
        *(found.layout or ()),
    )
    assert all(0 <= number < 10**20 for number in numbers)


def test_a_negative_number_is_none():
    with pytest.raises(ValueError, match="-5"):
        parse_stat(HOSTILE.replace(b"5555", b"-5"))
