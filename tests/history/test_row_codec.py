from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.events import Event, Sampled, SourceChanged
from memwatch.core.measurements import Limit, Sample, Usage
from memwatch.history.row_codec import decode_event, decode_sample, encode_event, encode_sample

EVENTS = [kind for kind in get_args(Event) if kind is not Sampled]
st.register_type_strategy(float, st.floats(-2e11, 2e11))  # of times; there are no others that count for anything
st.register_type_strategy(int, st.integers(-(2**62), 2**62))
sizes = st.integers(-(2**63) + 1, 2**63 - 1)
printable = st.text(st.characters(exclude_categories=["Cs"]))
limits = st.builds(Limit, sizes, printable, sizes)


@pytest.mark.parametrize("kind", EVENTS)
@given(data=st.data())
def test_every_event_comes_back_exactly(kind: type[Event], data: st.DataObject) -> None:
    event = data.draw(st.builds(kind))
    name, json = encode_event(event)
    assert decode_event(name, json) == event


@given(st.lists(st.builds(Usage, printable.filter(bool), sizes, st.none() | limits)))
def test_usages_come_back_exactly(usages: list[Usage]) -> None:
    sample = Sample(tuple(usages), accounting="rss")
    assert decode_sample(list(encode_sample(sample))) == sample


def test_what_sqlite_cannot_hold_is_bounded() -> None:
    usage = Usage("h\udcff", 2**64 - 1, Limit(2**64, "cgroup /\udcff", -(2**70)))
    (row,) = encode_sample(Sample((usage,)))
    assert row == ("h\\udcff", 2**63 - 1, 2**63 - 1, "cgroup /\\udcff", -(2**63) + 1, None)


@pytest.mark.parametrize("figure", ['"t":1e12', '"t":1,"index":1e30', '"t":1,"total":' + "9" * 40])
def test_a_figure_that_nobody_counts_to_is_no_event(figure: str) -> None:
    assert decode_event("GenerationSeen", b'{"t":1,"index":1,"total":9}') is not None
    assert decode_event("GenerationSeen", f'{{"index":1,{figure}}}'.encode()) is None


@given(st.binary(max_size=50))
def test_a_row_that_is_not_understood_is_no_event(json: bytes) -> None:
    found = decode_event("SourceChanged", json)
    assert found is None or isinstance(found, SourceChanged)
    assert decode_event("FromTheFuture", json) is None
