"""The dashboard of all runs: which of them needs somebody, and how they went."""

from __future__ import annotations

from collections.abc import Iterator

from generator import panels as p
from generator.queries import FLEET, Line, code, filled, selector
from memwatch.core.measurements import HOST
from memwatch.core.snapshot import Verdict, WatchState
from memwatch.outputs.metrics import metric_registry as f

STATES = p.states(WatchState, (p.GREEN, p.ORANGE, p.RED, p.BLUE, p.RED, p.GREY, p.YELLOW))
VERDICTS = p.states(Verdict, (p.GREY, p.GREEN, p.BLUE, p.YELLOW, p.RED))
ONE_RUN = (
    "/d/memwatch-run?var-datasource=${datasource}"
    "&var-job=${__data.fields.job}&var-instance=${__value.raw}&${__url_time_range}"
)  # from a cell with an instance

a = selector(FLEET)
in_pod = selector(f'{FLEET},pod!=""')  # labels of a node's memwatch, or of Prometheus that found the pod
_BY = "job, instance"
_RUN = "{{instance}}"
_ETA = f"min by ({_BY}) ({a(f.OOM_ETA)})"
_GROWTH = f"max by ({_BY}) ({a(f.GROWTH_PER_SECOND, resource=HOST)}) * 3600"


def rows() -> Iterator[tuple[str, list[p.Panel]]]:
    """The title of each row, and its panels from left to right."""
    yield "Now", [*_figures(), _runs()]
    yield "Nodes and pods", [_nodes(), _pods()]
    yield "Memory", list(_memory())
    yield "Many ranks, many nodes", list(_jobs())
    yield "What happened", list(_happened())


def _figures() -> Iterator[p.Panel]:
    yield p.figure("Runs", Line(f"sum({a(f.TARGET_UP)})"), unit="none", note="Trainers that are watched and run.")
    yield p.figure("Next out of memory", Line(f"min({a(f.OOM_ETA)})"), steps=p.SOON, none="not in sight")
    warned = f"sum(max by ({_BY}) ({a(f.WARNED)}))"
    yield p.figure("Warned", Line(warned), unit="none", steps=p.ANY_IS_BAD, none="0")
    unarmed = f"sum((1 - {a(f.ARMED)}) and on ({_BY}) {a(f.TARGET_UP)} == 1)"
    yield p.figure(
        "Would not be interrupted",
        Line(unarmed),
        unit="none",
        steps=p.ANY_IS_BAD,
        none="0",
        note="memwatch only warns of these.",
    )
    failing = f"sum(1 - {a(f.SOURCE_UP)})"
    yield p.figure("Sources failing", Line(failing), unit="none", steps=p.ANY_IS_BAD, none="0")
    interrupts = f"sum(increase({a(f.INTERRUPTS)}[$__range]))"
    yield p.figure("Interrupts", Line(interrupts), unit="none", note="In the time shown.", none="0")


def _runs() -> p.Panel:
    columns = {
        "up": Line(f"max by ({_BY}) ({a(f.TARGET_UP)})"),
        "state": Line(code(a, f.STATE, (one.value for one in WatchState), _BY)),
        "would interrupt": Line(f"max by ({_BY}) ({a(f.ARMED)})"),
        "verdict": Line(code(a, f.VERDICT, (one.value for one in Verdict), _BY, resource=HOST)),
        "memory limit in use": Line(f"max by ({_BY}) ({filled(a)})"),
        "time to the limit": Line(_ETA),
        "growth per hour": Line(_GROWTH),
        "generation": Line(f"max by ({_BY}) ({a(f.GENERATION)})"),
        "of": Line(f"max by ({_BY}) ({a(f.GENERATIONS_PLANNED)})"),
        "causes found": Line(f"count by ({_BY}) ({a(f.FINDING_CONFIDENCE)})"),
        "sources failing": Line(f"sum by ({_BY}) (1 - {a(f.SOURCE_UP)})"),
    }
    looks = {
        "instance": p.linked("This run in detail", ONE_RUN),
        "up": p.named(p.NO_YES),
        "state": p.named(STATES),
        "would interrupt": p.named(p.NO_YES),
        "verdict": p.named(VERDICTS),
        "memory limit in use": p.coloured("percentunit", p.FILLED),
        "time to the limit": p.coloured("s", p.SOON),
        "growth per hour": {"unit": "decbytes"},
        "sources failing": p.coloured("none", p.ANY_IS_BAD),
    }
    note = (
        "A memwatch watches one trainer: a run is one scrape target. Verdict and growth are those of main memory; "
        "the limit and the time those of the resource that is worst off."
    )
    return p.listing(
        "All runs", columns, labels=("instance", "job"), looks=looks, note=note, height=10, sort="time to the limit"
    )


def _nodes() -> p.Panel:
    of_node = f"on ({_BY}) group_left (node) max by ({_BY}, node) ({a(f.RUN)})"
    columns = {
        "runs": Line(f"sum by (node) (max by ({_BY}) ({a(f.TARGET_UP)}) * {of_node})"),
        "warned": Line(f"sum by (node) (max by ({_BY}) ({a(f.WARNED)}) * {of_node})"),
        "memory limit in use": Line(f"max by (node) (max by ({_BY}) ({filled(a)}) * {of_node})"),
        "growth per hour": Line(f"sum by (node) ({_GROWTH} * {of_node})"),
        "time to the limit": Line(f"min by (node) ({_ETA} * {of_node})"),
    }
    looks = {
        "warned": p.coloured("none", p.ANY_IS_BAD),
        "memory limit in use": p.coloured("percentunit", p.FILLED),
        "growth per hour": {"unit": "decbytes"},
        "time to the limit": p.coloured("s", p.SOON),
    }
    note = "Limit and time are those of the run of the node that is worst off; the growth is that of all its runs."
    return p.listing("Nodes", columns, labels=("node",), looks=looks, note=note, width=10, sort="time to the limit")


def _pods() -> p.Panel:
    labels = ("namespace", "pod", "container", "instance", "job")
    by = ", ".join(labels)
    columns = {
        "memory": Line(f"max by ({by}) ({in_pod(f.MEMORY_USED, resource=HOST)})"),
        "needs to finish": Line(f"max by ({by}) ({in_pod(f.NEEDED, resource=HOST)})"),
        "growth per hour": Line(f"max by ({by}) ({in_pod(f.GROWTH_PER_SECOND, resource=HOST)}) * 3600"),
        "time to the limit": Line(f"min by ({by}) ({in_pod(f.OOM_ETA)})"),
    }
    looks = {
        "instance": p.linked("This run in detail", ONE_RUN),
        **{name: {"unit": "decbytes"} for name in ("memory", "needs to finish", "growth per hour")},
        "time to the limit": p.coloured("s", p.SOON),
    }
    note = "Main memory; the time is that of the resource that runs out first."
    return p.listing("Pods", columns, labels=labels, looks=looks, note=note, width=14, sort="time to the limit")


def _memory() -> Iterator[p.Panel]:
    yield p.bars("Who runs out first", Line(f"sort({_ETA})", _RUN), p.SOON, note="The soonest first.")
    yield p.chart(
        "Memory limit in use",
        Line(f"max by ({_BY}) ({filled(a)})", _RUN),
        unit="percentunit",
        note="Of the resource that is worst off.",
        steps=p.FILLED,
    )
    yield p.chart("Growth per hour", Line(_GROWTH, _RUN), unit="decbytes", note="Of main memory.")
    yield p.chart("Time to the limit", Line(_ETA, _RUN))


def _jobs() -> Iterator[p.Panel]:
    part = f"max by ({_BY}, run_id, node, rank) ({a(f.RUN)})"
    eta = f"{a(f.OOM_ETA)} * on ({_BY}) group_left (run_id, node, rank) {part}"
    of_run = f"on ({_BY}) group_left (run_id) {part}"
    columns = {
        "nodes watched": Line(f"count by (run_id) (count by (run_id, node) ({a(f.RUN)}))"),
        "of": Line(f"max by (run_id) ({a(f.RUN_NODES)} * {of_run})"),
        "ranks below agents": Line(f"count by (run_id) ({a(f.RANK)} * {of_run})"),
        "time to the limit": Line(f"min by (run_id) ({eta})"),
    }
    yield p.listing(
        "Runs by their launcher's id",
        columns,
        labels=("run_id",),
        looks={"time to the limit": p.coloured("s", p.SOON)},
        note="One memwatch watches one node, or one rank of it.",
        width=10,
        sort="time to the limit",
    )
    first = {"in": Line(f"bottomk by (run_id) (1, max by (run_id, node, rank, instance, job, resource) ({eta}))")}
    looks = {"instance": p.linked("This run in detail", ONE_RUN), "in": p.coloured("s", p.SOON)}
    labels = ("run_id", "node", "rank", "resource", "instance", "job")
    note = "Main memory runs out for a node; its dashboard has the memory of each rank, and its GPUs."
    yield p.listing("First to run out", first, labels=labels, looks=looks, note=note, width=14, sort="in")


def _happened() -> Iterator[p.Panel]:
    counted = {
        "warned": f.WARNINGS,
        "interrupted": f.INTERRUPTS,
        "saved": f.SAVES,
        "escalated": f.ESCALATIONS,
        "hooks": f.HOOKS,
        "hooks that failed": f.HOOK_FAILURES,
    }
    lines = [Line(f"sum(increase({a(family)}[$__rate_interval]))", name, "bars") for name, family in counted.items()]
    yield p.chart("Warnings and interrupts", *lines, unit="none", stack=True)
    yield p.chart("Sources failing", Line(f"sum by ({_BY}) (1 - {a(f.SOURCE_UP)})", _RUN), unit="none")
    ended = f"max by ({_BY}, {', '.join(f.TARGET_EXIT.labels)}) (last_over_time({a(f.TARGET_EXIT)}[$__range]))"
    yield p.listing(
        "How runs ended",
        {"ended": Line(ended)},
        labels=("instance", "job", *f.TARGET_EXIT.labels),
        looks={"instance": p.linked("This run in detail", ONE_RUN), "ended": p.HIDDEN},
        note="In the time shown, as far as it was scraped: `daemon.linger_seconds`.",
        width=12,
    )
    own = f"rate({a(f.PROCESS_CPU)}[$__rate_interval]) and on ({_BY}) {a(f.BUILD)}"
    yield p.chart("What memwatch costs", Line(own, _RUN), unit="percentunit", note="Share of a core.")
