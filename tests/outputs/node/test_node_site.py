"""What a node shows of watches that come, end and die."""

from __future__ import annotations

from dataclasses import replace

from memwatch.core.measurements import Target
from memwatch.core.trainer_rules import Workload
from memwatch.outputs.node.node_site import MOST_ENDED, NodeSite
from memwatch.outputs.node.state_channel import TrainerState
from support.snapshots import FakeClock, make_dead, make_snapshot


def site(ended_seconds: float = 1e9) -> NodeSite:
    end = make_dead().exited
    assert end is not None
    return NodeSite(FakeClock(end.t + 10.0), ("pod",), ended_seconds, lambda: 0.0)


def state(pid: int, *, has_ended: bool = False) -> TrainerState:
    snapshot = make_dead() if has_ended else make_snapshot()
    snapshot = replace(snapshot, target=Target("boot", pid, 1))
    return TrainerState(pid, "watch", Workload(), snapshot, is_finished=has_ended)


def test_a_watch_that_died_is_shown_no_more_and_an_end_stays() -> None:
    shown = site()
    for one in (state(1), state(2, has_ended=True), state(3)):
        shown.receive(one)
    shown.forget(1)
    shown.forget(2)
    shown.forget(9)
    assert [one.pid for one in shown.states()] == [3, 2]
    assert shown.find_route("/trainers/1/") is None and shown.find_route("/trainers/2/") is not None


def test_the_latest_ends_are_kept_and_for_so_long() -> None:
    shown = site()
    for pid in range(1, MOST_ENDED + 20):
        shown.receive(state(pid, has_ended=True))
    assert len(shown.states()) == MOST_ENDED
    brief = site(ended_seconds=5.0)
    brief.receive(state(1, has_ended=True))
    assert not brief.states()


def test_what_is_no_page_of_it_has_none() -> None:
    shown = site()
    shown.receive(state(7))
    for path in (
        "/trainers/",
        "/trainers/x/",
        "/trainers/8/",
        "/trainers/7/no",
        "/trainers/7/trainers/7/",
        "/trainers",
    ):
        assert shown.find_route(path) is None, path
    for path in ("/", "/metrics", "/trainers/7/", "/trainers/7/metrics", "/trainers/7"):
        assert shown.find_route(path) is not None, path


def test_a_watch_that_nobody_asked_for_a_while_is_healthy_if_it_answers_now() -> None:
    clock = FakeClock(1e6)
    shown = NodeSite(clock, ("pod",), 1e9, lambda: 0.0)
    answers: list[TrainerState] = []

    def refresh(pids: object) -> None:
        for one in answers:
            shown.receive(one)

    shown.refresh = refresh
    shown.receive(state(7))
    ask = shown.find_route("/trainers/7/-/healthy")
    clock.t += 3600.0
    assert ask is not None and ask("").code == 503
    answers.append(state(7))
    assert ask("").code == 200
