"""What lines are worth."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest

from traces.forecasters import FORECASTERS
from traces.judge import figures, judge

SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces"


def truth(**more: Any) -> dict[str, Any]:
    """A run of ten generations of 100 s that dies at 1000 s."""
    leak = {"leak": 1, "growing": 0.5}
    known: dict[str, Any] = {
        "id": "x",
        "family": "f",
        "resource": "host",
        "oom_t": 1000.0,
        "ckpt_s": 10.0,
        "t_start": 0.0,
        "gen_s": 100.0,
        "limit": 1000,
        "eta": [250.0, 500.0, 750.0, 900.0],
        "verdicts": [{"t": 500.0, "state": "leak", "credit": leak}],
        "slopes": [{"t": 500.0, "bytes_per_gen": 100.0}],
        "savable": True,
    }
    return {**known, **more}


def line(t: float, **more: Any) -> dict[str, Any]:
    return {"t": t, "resource": "host", "eta_s": 1000.0 - t, "verdict": "leak", "growth_per_gen": 100.0, **more}


def test_an_interrupt_saves_where_a_checkpoint_still_fits_and_its_earliness_is_waste() -> None:
    saved = judge(truth(), [line(100.0), line(890.0, action="interrupt"), line(950.0, action="interrupt")])
    assert (saved.outcome, saved.interrupt_t) == ("saved", 890.0)
    assert saved.waste == pytest.approx(0.1)
    assert saved.waste_generations == pytest.approx(1.0)
    assert judge(truth(), [line(990.0, action="interrupt")]).outcome == "MISSED"
    assert judge(truth(), []).outcome == "MISSED"
    assert judge(truth(savable=False), []).outcome == "lost"
    assert judge(truth(oom_t=None, eta=[]), [line(1.0, action="interrupt")]).outcome == "FALSE INTERRUPT"
    assert judge(truth(oom_t=None, eta=[]), [line(1.0)]).outcome == "quiet"


def test_waste_is_counted_from_the_start_of_the_process() -> None:
    assert judge(truth(t_start=500.0), [line(890.0, action="interrupt")]).waste == pytest.approx(0.2)
    assert judge(truth(t_start=500.0), [line(400.0, action="interrupt")]).waste == pytest.approx(0.59)


def test_an_eta_counts_from_its_own_line_and_silence_is_a_double_error() -> None:
    judged = judge(truth(), [line(240.0, eta_s=760.0), line(500.0, eta_s=750.0), line(750.0, eta_s=None)])
    assert judged.eta_errors == pytest.approx((0.0, 0.5, 2.0, 2.0))
    assert judged.quarter_error == 0.0
    assert judged.late_errors == pytest.approx((0.5, 2.0, 2.0))


def test_lines_of_another_resource_do_not_count_but_their_interrupt_does() -> None:
    judged = judge(truth(), [line(100.0, resource="gpu0"), line(890.0, resource="gpu0", action="interrupt")])
    assert judged.outcome == "saved"
    assert set(judged.eta_errors) == {2.0}


def test_an_open_interval_covers_what_is_beyond_and_is_infinitely_wide() -> None:
    lines = [line(250.0, eta_lo_s=700.0, eta_hi_s=800.0), line(500.0, eta_lo_s=400.0), line(750.0, eta_hi_s=200.0)]
    judged = judge(truth(), lines)
    assert judged.covered == (True, True, False, False)
    assert judged.widths[0] == pytest.approx(100 / 750)
    assert math.isinf(judged.widths[1])


def test_growth_is_compared_with_at_least_half_a_percent_of_the_limit() -> None:
    still = truth(slopes=[{"t": 500.0, "bytes_per_gen": 0.0}])
    assert judge(still, [line(1.0, growth_per_gen=1.0)]).growth_errors == pytest.approx((0.2,))
    assert judge(truth(), [line(1.0, growth_per_gen=None)]).growth_errors == (2.0,)


def test_a_phantom_is_an_end_nearer_than_what_was_watched_where_nothing_grows() -> None:
    flat = {"oom_t": None, "eta": [], "verdicts": [{"t": 500.0, "state": "stable", "credit": {"stable": 1}}]}
    assert judge(truth(**flat), [line(500.0, eta_s=400.0)]).phantoms == (True,)
    assert judge(truth(**flat), [line(500.0, eta_s=600.0)]).phantoms == (False,)
    assert judge(truth(**flat), [line(500.0, eta_s=None)]).phantoms == (False,)
    assert judge(truth(), [line(500.0)]).phantoms == ()


def test_times_do_not_go_back_in_what_is_judged() -> None:
    judged = judge(truth(), [line(600.0, eta_s=1.0), line(240.0, eta_s=400.0)])
    assert judged.eta_errors[2] == pytest.approx(0.0)


def test_figures_are_shares_of_what_they_are_about() -> None:
    saved = judge(truth(), [line(0.0), line(890.0, action="interrupt")])
    missed, lost = judge(truth(), [line(0.0)]), judge(truth(savable=False), [])
    false = judge(truth(oom_t=None, eta=[]), [line(0.0, action="interrupt")])
    total = figures([saved, missed, lost, false])
    assert (total.traces, total.dying, total.missed, total.false) == (4, 3, 1, 1)
    assert (total.missed_share, total.false_share) == (0.5, 1.0)
    assert total.waste == pytest.approx(0.1)
    assert total.wrong == ("x", "x")
    assert figures([]).as_dict()["waste"] is None


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no labelled traces in {SHARED}")
@pytest.mark.parametrize("name", ["static95", "predict_linear", "theil_sen"])
def test_the_rule_is_that_of_the_shared_scorer(name: str) -> None:
    spec = importlib.util.spec_from_file_location("score_traces", SHARED / "score_traces.py")
    assert spec is not None and spec.loader is not None
    shared = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shared)
    for path in sorted((SHARED / "data").glob("*.json")):
        told = json.loads(path.read_text())
        lines = FORECASTERS[name](path.with_suffix(".csv.gz"), told["ckpt_s"])
        theirs, ours = shared.judge(told, lines), judge(told, lines)
        assert ours.outcome.split()[0] == theirs["outcome"].split()[0].rstrip(","), path.stem
        assert ours.waste == pytest.approx(theirs.get("waste")), path.stem
        assert list(ours.eta_errors) == pytest.approx(theirs["eta_err"]), path.stem
        assert list(ours.covered) == theirs["covered"], path.stem
        assert list(ours.verdicts) == theirs["verdict"], path.stem
        assert list(ours.growth_errors) == pytest.approx(theirs["growth_err"]), path.stem
