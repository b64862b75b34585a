"""A run of the history: loaded, its state at the end is as it was; judged again, its notices are as they were."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memwatch.app.engine_settings import EngineSettings
from memwatch.app.load_and_replay_run import REPLAY_INTERVAL_SECONDS, RejudgedWatch, load_run, rejudge
from memwatch.cli.main import main
from memwatch.config.settings import Config
from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import NO_DIAGNOSIS, Engine
from memwatch.core.events import Attached, Event, Interrupt, Notice, Sampled, Signalled
from memwatch.core.leaks.examination_schedule import DiagnosisPolicy
from memwatch.errors import ConfigError, ExitCode
from memwatch.history import stored_runs
from memwatch.history.event_store import HistoryStore
from memwatch.outputs.terminal.command_progress import ProgressBar
from support.recorded import GB, Recording, record

SETTINGS = EngineSettings(Policy(), DiagnosisPolicy(), ("growth < 5GB/generation",))
LEAK = Recording(generations=12, samples=60, limit=100 * GB, killed_in=9.5)


def watched(path: Path, events: Iterator[Event], settings: EngineSettings = SETTINGS) -> list[Notice]:
    """Judge, and keep all of it as a daemon does; what was told."""
    store, engine, told = HistoryStore.open(path), settings.make_engine(), list[Notice]()
    for event in events:
        if isinstance(event, Attached):
            event = replace(event, run_id=store.open_run("key", event, event.t).run_id)  # noqa: PLW2901
            store.record_engine(settings.to_record(), event.t)
            for earlier in stored_runs.events_to_replay(store.path, event.run_id):
                engine.feed(earlier)
        fed: list[Event] = [event]
        actions = engine.feed(event)
        if any(isinstance(action, Interrupt) for action in actions):
            fed.append(Signalled(event.t, "SIGINT"))
            actions += engine.feed(fed[-1])
        notices = [action for action in actions if isinstance(action, Notice)]
        store.append(fed, notices)
        told += notices
    store.close()
    return told


def again(path: Path) -> list[RejudgedWatch]:
    [run] = stored_runs.stored_runs(path)
    return list(rejudge(path, run, lambda share: None))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


# --- loaded ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", [0, 1])
def test_what_is_known_at_the_end_is_what_was_known_then(tmp_path: Path, gpus: int) -> None:
    recording = Recording(killed_in=13.4, limit=160 * GB, gpus=gpus, samples=400)
    config = Config()
    live = Engine(config.policy, diagnosis=config.diagnosis_policy)
    for event in recording.events():
        live.feed(event)
    record(tmp_path / "h.db", recording)
    [run] = stored_runs.stored_runs(tmp_path / "h.db")
    found, then = (
        load_run(tmp_path / "h.db", run, config, ProgressBar("reading")).end,
        live.snapshot(),
    )
    assert run.was_examined and then.diagnosis is not None and then.diagnosis.findings
    assert found.diagnosis == then.diagnosis
    for one, other in zip(found.resources, then.resources, strict=True):
        assert (one.generations, one.peak_bytes, one.timeline) == (other.generations, other.peak_bytes, other.timeline)
    assert found.sentence == then.sentence


def test_a_run_that_was_not_examined_is_recalled_in_stretches(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    record(path, Recording(generations=4, samples=2000, examined=False))
    [run] = stored_runs.stored_runs(path)
    assert not run.was_examined
    engine, fed = Engine(Config().policy, diagnosis=NO_DIAGNOSIS), 0
    for told in stored_runs.event_batches(path, run):
        for event in engine.events_to_feed(told, REPLAY_INTERVAL_SECONDS):
            engine.feed(event)
            fed += 1
    assert fed < 500
    assert load_run(path, run, Config(), ProgressBar("x")).end.resources == engine.snapshot().resources


# --- judged again ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", [0, 1])
def test_each_event_comes_out_as_it_was_told(path: Path, gpus: int, capsys: pytest.CaptureFixture[str]) -> None:
    told = watched(path, replace(LEAK, gpus=gpus).events())
    assert {"forecast", "warn", "interrupt", "finding", "breach", "exited"} <= {one.event for one in told}
    [one] = again(path)
    assert one.difference is None and len(one.recomputed) == len(told)
    assert main(["replay", str(path)]) == ExitCode.ENDED
    assert f"replayed 1 watch: each of {len(told)} events as it was reported" in capsys.readouterr().out


def test_a_decision_tells_what_it_stood_on(path: Path) -> None:
    told = watched(path, LEAK.events())
    [interrupt] = [one for one in told if one.event == "interrupt"]
    samples, threshold = interrupt.fields["samples"], interrupt.fields["threshold"]
    assert len(samples) == 16 and samples[-1][:2] == [interrupt.t, interrupt.fields["used"]]
    assert threshold["lead_s"] > threshold["checkpoint_s"] > 0
    assert threshold["odds_within_next"] > 1 - threshold["confidence"]
    warn = next(one for one in told if one.event == "warn")
    assert warn.fields["eta_s"] <= warn.fields["threshold"]["horizon_s"] and len(warn.fields["samples"]) == 16


def test_a_run_tells_why_it_was_interrupted_or_not(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = watched(path, LEAK.events())
    [interrupt] = [one for one in told if one.event == "interrupt"]

    def why(time: str) -> dict[str, Any]:
        assert main(["replay", str(path), "--json", "--why", time]) == ExitCode.ENDED
        return json.loads(capsys.readouterr().out)

    found, begun = why(str(interrupt.t)), why("1")
    assert (found["reason"], found["headroom"]) == (interrupt.fields["kind"], interrupt.fields["headroom"])
    assert (begun["verdict"], begun["reason"]) == ("warming_up", None)


def test_each_watch_is_judged_from_what_it_found(path: Path) -> None:
    events = list(LEAK.events())
    third = len(events) // 3
    for part in (events[:third], events[third : 2 * third], events[2 * third :]):
        watched(path, iter([replace(events[0], t=part[0].t), *part] if part[0] is not events[0] else part))
    found = again(path)
    assert [one.difference for one in found] == [None] * 3
    assert [one.recomputed[0].text.split(":")[0] for one in found] == ["watching", "watching again", "watching again"]


def test_every_look_counts(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = watched(path, LEAK.events())
    [interrupt] = [one for one in told if one.event == "interrupt"]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE samples SET used = used + 1 WHERE t = ?", (interrupt.t,))
    [one] = again(path)
    assert one.difference is not None
    then, now = one.difference
    assert then is not None and now is not None and then.fields != now.fields
    assert main(["replay", "--json", str(path)]) == ExitCode.INTERNAL
    assert "the replay differs from what was reported (watch 1 of 1" in capsys.readouterr().err


def test_it_is_judged_by_the_settings_of_that_time_and_by_no_others(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched(path, LEAK.events(), replace(SETTINGS, policy=Policy(act=False, warn_horizon_seconds=60.0)))
    [one] = again(path)
    assert one.difference is None and not any(notice.event == "interrupt" for notice in one.recomputed)
    assert main(["replay", str(path), "--limit", "3GB"]) == ExitCode.USAGE
    assert "memwatch export" in capsys.readouterr().err


def test_settings_of_another_memwatch_are_refused(path: Path) -> None:
    watched(path, LEAK.events())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("""UPDATE watches SET version = '9.9', settings = '{"policy": 3}'""")
    with pytest.raises(ConfigError, match=r"memwatch 9\.9 judged by other settings"):
        again(path)


def test_a_run_that_was_not_wholly_kept_is_told(path: Path) -> None:
    watched(path, LEAK.events())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM watches")
    with pytest.raises(ConfigError, match="did not keep all of it"):
        again(path)


def test_a_name_of_a_run_goes_with_a_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("t,rss,limit\n0,1,2\n")
    assert main(["replay", "--run", "x", str(trace)]) == ExitCode.USAGE
    assert "--run" in capsys.readouterr().err


def test_looks_between_the_seconds_are_kept(path: Path) -> None:
    told = watched(path, replace(LEAK, seconds=0.05, samples=400, generations=4, killed_in=None).events())
    [run] = stored_runs.stored_runs(path)
    kept = sum(isinstance(event, Sampled) for event in stored_runs.events_to_replay(path, run.run_id))
    assert kept == 4 * 400 and told
    assert [one.difference for one in again(path)] == [None]
