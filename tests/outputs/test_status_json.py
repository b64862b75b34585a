"""The snapshot as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import fields

from hypothesis import given, settings
from hypothesis import strategies as st

from memwatch.core.measurements import Limit, Usage
from memwatch.core.snapshot import Forecast, Gauge, Snapshot, Trend, Verdict
from memwatch.outputs.status_json import STATUS_SCHEMA_VERSION, jsonable, snapshot_to_dict
from support.snapshots import make_dead, make_snapshot, make_view


def test_every_field_of_the_snapshot_is_there():
    shown = snapshot_to_dict(make_snapshot(gpus=1))
    missing = {field.name for field in fields(Snapshot)} - set(shown)
    assert missing == {"command"}
    assert shown["target"]["command"] == make_snapshot().command
    assert (shown["schema"], shown["up"], shown["state"]) == (STATUS_SCHEMA_VERSION, True, "warned")
    handling = {"signal": "SIGINT", "handled": True, "where": "save_on_signal (main.py:88)", "reason": ""}
    assert shown["signal_handling"] == handling


def test_a_resource_has_the_names_of_replay():
    shown = snapshot_to_dict(make_snapshot(3))["resources"][0]
    assert shown["verdict"] == "leak"
    assert shown["growth_per_gen"] == 12.9e9
    assert (shown["eta_s"], shown["eta_lo_s"], shown["eta_hi_s"], shown["oom_gen"]) == (18600, 16200, 21000, 13)
    assert (shown["limit"], shown["limit_origin"]) == (175 * 10**9, "cgroup /kubepods/pod7")
    assert shown["finishes"] is False
    assert [row["index"] for row in shown["generations"]] == [1, 2, 3]
    assert shown["generations"][0]["delta_bytes"] == 12.9e9
    assert shown["generations"][0]["phases"][0]["phase"] == "evaluate"


def test_a_long_ledger_is_cut_to_the_newest():
    shown = snapshot_to_dict(make_snapshot(1000))["resources"][0]
    assert [row["index"] for row in shown["generations"]] == list(range(801, 1001))
    assert shown["generations_left_out"] == 800


def test_zero_stays_zero_and_unknown_is_null():
    view = make_view(
        0,
        usage=Usage("host", 0, Limit(0, "host", 0)),
        trend=Trend("flat", 0.0, None, 0.0),
        forecast=Forecast(0.0, None, math.inf),
    )
    shown = snapshot_to_dict(make_snapshot(resources=(view,), target=None))
    assert shown["target"] is None
    resource = shown["resources"][0]
    assert (resource["limit"], resource["headroom"], resource["growth_per_s"], resource["eta_s"]) == (0, 0, 0, 0)
    assert (resource["growth_per_gen"], resource["eta_lo_s"], resource["eta_hi_s"]) == (None, None, None)
    bare = snapshot_to_dict(
        make_snapshot(resources=(make_view(0, usage=Usage("host", 5, None), trend=None, forecast=None),))
    )
    assert bare["resources"][0]["limit"] is None
    assert bare["resources"][0]["model"] is None


def test_the_end_is_told():
    shown = snapshot_to_dict(make_dead())
    assert shown["up"] is False
    assert shown["exited"]["cause"] == "oom_cgroup"
    assert shown["exited"]["evidence"][0] == "memory.events oom_kill 0 -> 1"


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.sampled_from(Verdict)
    | st.binary()
    | st.builds(Gauge, st.text(), st.floats(), st.none() | st.floats(), st.floats()),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(st.characters()) | st.integers(), inner),
    max_leaves=10,
)


@settings(deadline=None)
@given(anything)
def test_whatever_a_notice_carries_can_be_written_and_read_again(value):
    plain = jsonable(value)
    text = json.dumps(plain, allow_nan=False)
    assert json.loads(text.encode()) == plain
    text.encode()
