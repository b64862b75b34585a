"""The dashboard of one run: where its memory goes, when it ends, and why."""

from __future__ import annotations

from collections.abc import Iterator

from generator import panels as p
from generator.fleet import STATES, VERDICTS
from generator.queries import RUN, Line, code, filled, selector
from memwatch.core.snapshot import Verdict, WatchState
from memwatch.outputs.metrics import metric_registry as f

a = selector(RUN)
_RESOURCE = "{{resource}}"
_UP: p.Names = {0: ("fails", p.RED), 1: ("works", p.GREEN)}
REPEATED = "Memory: $resource"  # a row for each resource
COLLAPSED = ("Readings", "GPUs", "Ranks", "memwatch")  # opened by who needs them


def rows() -> Iterator[tuple[str, list[p.Panel]]]:
    """The title of each row, and its panels from left to right."""
    yield "Now", list(_now())
    yield REPEATED, list(_memory())
    yield "Generations", list(_generations())
    yield "Causes of growth", list(_causes())
    yield "Readings", list(_readings())
    yield "GPUs", list(_gpus())
    yield "Ranks", list(_ranks())
    yield "memwatch", list(_memwatch())


def _now() -> Iterator[p.Panel]:
    state = code(a, f.STATE, (one.value for one in WatchState), "job, instance")
    yield p.figure("State", Line(state), names=STATES)
    yield p.figure("Would interrupt", Line(a(f.ARMED)), names=p.NO_YES, unit="none")
    yield p.figure("Time to the limit", Line(f"min({a(f.OOM_ETA)})"), steps=p.SOON, none="not in sight")
    yield p.figure("In generation", Line(f"min({a(f.OOM_GENERATION)})"), unit="none", none="not in sight")
    yield p.figure("Memory limit in use", Line(f"max({filled(a)})"), unit="percentunit", steps=p.FILLED)
    yield p.figure("Causes found", Line(f"count({a(f.FINDING_CONFIDENCE)})"), unit="none", none="0")
    yield p.timeline("State", Line(state, "state"), STATES, height=3)
    verdict = code(a, f.VERDICT, (one.value for one in Verdict), "job, instance, resource")
    yield p.timeline("Verdict", Line(verdict, _RESOURCE), VERDICTS, height=3)


def _memory() -> Iterator[p.Panel]:
    soon = f"{a(f.MEMORY_USED)} + {a(f.GROWTH_PER_SECOND)} * on (job, instance) group_left () {a(f.WARN_HORIZON)}"
    yield p.chart(
        "Memory and its limit",
        Line(a(f.MEMORY_USED), "used"),
        Line(a(f.MEMORY_LIMIT), "limit: {{origin}}", "limit"),
        Line(soon, "at the warn horizon, as it grows now", "forecast"),
        Line(a(f.MEMORY_PEAK), "peak", "bound"),
        Line(a(f.MEMORY_BASELINE), "first reading", "bound"),
        note="The limit may count more than what is used: what is left is the headroom.",
        width=24,
    )
    yield p.chart(
        "Time to the limit",
        Line(a(f.OOM_ETA), "most likely"),
        Line(a(f.OOM_ETA_LOW), "5 % are earlier", "bound"),
        Line(a(f.OOM_ETA_HIGH), "5 % are later", "bound"),
        Line(a(f.WARN_HORIZON), "warned from here on", "limit"),
        note="A forecast that holds falls by a second each second.",
        width=8,
    )
    yield p.chart(
        "Generation at the limit",
        Line(a(f.OOM_GENERATION), "most likely"),
        Line(a(f.OOM_GENERATION_LOW), "5 % are earlier", "bound"),
        Line(a(f.OOM_GENERATION_HIGH), "5 % are later", "bound"),
        Line(a(f.GENERATIONS_PLANNED), "the last that is planned", "limit"),
        width=8,
    )
    yield p.chart("Headroom", Line(a(f.MEMORY_HEADROOM), "headroom"), width=8)
    yield p.chart(
        "Growth a generation",
        Line(a(f.GROWTH_PER_GENERATION), "as estimated", "forecast"),
        Line(a(f.GENERATION_DELTA), "the last that ended"),
        width=8,
    )
    yield p.chart("Growth by phase", Line(a(f.PHASE_GROWTH), "{{phase}}"), width=8, stack=True)
    yield p.chart("Peak of a generation", Line(a(f.GENERATION_PEAK), "the last that ended"), width=8)


def _generations() -> Iterator[p.Panel]:
    yield p.chart(
        "Generation", Line(a(f.GENERATION), "under way"), Line(a(f.GENERATIONS_PLANNED), "planned", "limit"), width=8
    )
    yield p.chart("Length of a generation", Line(a(f.GENERATION_DURATION), "the last that ended"), width=8)
    yield p.timeline("Phase", Line(a(f.PHASE), "{{phase}}"), {1: ("under way", p.BLUE)}, width=8, height=8)
    yield p.chart(
        "Levels in the log",
        Line(a(f.LOG_VALUE), "{{name}}"),
        Line(a(f.LOG_CAPACITY), "{{name}}, at most", "limit"),
        width=8,
    )
    yield p.chart(
        "Checkpoints",
        Line(a(f.CHECKPOINT_SECONDS), "time that one takes: {{origin}}"),
        Line(f"time() - {a(f.LAST_CHECKPOINT)}", "since the last"),
        unit="s",
        width=8,
    )
    yield p.timeline("Expectations", Line(a(f.EXPECTATION_MET), "{{expectation}}"), p.NO_YES, width=8, height=8)


def _causes() -> Iterator[p.Panel]:
    columns = {"growth": Line(_by(f.FINDING_GROWTH)), "confidence": Line(_by(f.FINDING_CONFIDENCE))}
    looks = {"growth": {"unit": "decbytes"}, "confidence": {"unit": "percentunit"}}
    yield p.listing(
        "Findings", columns, labels=f.FINDING_GROWTH.labels, looks=looks, sort="growth", descending=True, height=6
    )
    yield p.chart("Attributes", Line(a(f.ATTRIBUTE_BYTES), "{{path}}"))
    yield p.chart("Objects", Line(a(f.PYTHON_OBJECTS), "{{type}}"))
    yield p.chart("Memory by kind", Line(a(f.MEMORY_KIND), "{{kind}}"), stack=True)
    yield p.chart(
        "Python objects and tensors", Line(a(f.PYTHON_BYTES), "Python"), Line(a(f.TORCH_STORAGE), "tensors: {{device}}")
    )


def _by(family: f.MetricFamily) -> str:
    """With its own labels alone, for a table."""
    return f"max by ({', '.join(family.labels)}) ({a(family)})"


def _readings() -> Iterator[p.Panel]:
    yield p.chart(
        "Process tree",
        Line(a(f.TREE_USED), "used, by {{accounting}}"),
        Line(a(f.TREE_ROOT_RSS), "RSS of the trainer"),
        Line(a(f.TREE_ANON), "anonymous"),
        Line(a(f.TREE_FILE), "files"),
        Line(a(f.TREE_SHMEM), "shared"),
        Line(a(f.TREE_SWAP), "swap"),
        Line(a(f.TREE_MEMBER_BYTES), "members that are no children"),
        Line(a(f.TREE_ROOT_VIRTUAL), "address space of the trainer", "bound"),
        Line(a(f.TREE_ERROR), "standard error", "bound"),
    )
    charged = f"{a(f.CGROUP_USAGE)} - {a(f.CGROUP_RECLAIMABLE)}"
    yield p.chart(
        "Cgroups",
        Line(charged, "{{path}}"),
        Line(a(f.CGROUP_LIMIT), "limit of {{path}}", "limit"),
        Line(a(f.CGROUP_OTHERS), "others in {{path}}", "bound"),
        Line(a(f.CGROUP_SWAP), "swap of its own", "bound"),
        note="Every level up to the root, without the page cache that the kernel can give back.",
    )
    yield p.chart(
        "Host",
        Line(a(f.HOST_AVAILABLE), "available"),
        Line(a(f.HOST_SWAP_FREE), "free swap"),
        Line(a(f.HOST_MEMORY), "main memory", "limit"),
        width=8,
    )
    yield p.chart(
        "Copied on write",
        Line(a(f.TREE_COW), "copied"),
        Line(f"{a(f.TREE_COW_GROWTH)} * 3600", "per hour", "forecast"),
        width=8,
    )
    yield p.chart(
        "Processes",
        Line(a(f.TREE_PROCESSES), "of the tree"),
        Line(a(f.TREE_MEMBERS), "of it no children"),
        width=4,
    )
    yield p.chart(
        "OOM kills", Line(f"increase({a(f.CGROUP_OOM_KILLS)}[$__rate_interval])", "in its cgroup", "bars"), width=4
    )


def _ranks() -> Iterator[p.Panel]:
    yield p.chart("Memory by rank", Line(a(f.RANK_USED), "rank {{rank}}"), note="Below an agent such as torchrun.")
    part, ranks, cards = (Line(_by(family)) for family in (f.RUN, f.RANK, f.RANK_GPU))
    hidden = {"is": p.HIDDEN}
    yield p.listing("Part of run", {"is": part}, labels=f.RUN.labels, looks=hidden, width=4)
    yield p.listing("Ranks", {"is": ranks}, labels=f.RANK.labels, looks=hidden, width=4)
    yield p.listing("GPUs of ranks", {"is": cards}, labels=f.RANK_GPU.labels, looks=hidden, width=4)


def _gpus() -> Iterator[p.Panel]:
    yield p.chart(
        "Memory of GPUs",
        Line(a(f.GPU_USED), "{{gpu}}: the trainer, {{attribution}}"),
        Line(a(f.GPU_DEVICE_USED), "{{gpu}}: anybody"),
        Line(a(f.GPU_DEVICE_MEMORY), "{{gpu}}", "limit"),
        width=16,
    )
    cards = {"used": Line(_by(f.GPU))}
    yield p.listing("GPUs", cards, labels=f.GPU.labels, looks={"used": p.HIDDEN}, width=8)


def _memwatch() -> Iterator[p.Panel]:
    yield p.timeline("Sources", Line(a(f.SOURCE_UP), "{{source}}"), _UP, width=8, height=8)
    yield p.chart(
        "Age of the sample",
        Line(a(f.SAMPLE_AGE), "age"),
        Line(a(f.PACE), "time to the next, at most", "bound"),
        width=8,
    )
    yield p.chart(
        "What it costs",
        Line(f"rate({a(f.PROCESS_CPU)}[$__rate_interval])", "memwatch"),
        Line(f"rate({a(f.EXAMINATION_CPU)}[$__rate_interval])", "examinations"),
        Line(f"rate({a(f.SURVEY_CPU)}[$__rate_interval])", "of it, for samples of pages"),
        unit="percentunit",
        note="Shares of a core.",
        width=8,
    )
    yield p.chart("Its memory", Line(a(f.PROCESS_RESIDENT), "resident"), width=8)
    counted = {
        "turns": f.TICKS,
        "pages looked at": f.SURVEY_PAGES,
        "failed answers": f.PAGE_FAILURES,
        "refused requests": f.WEB_REFUSALS,
        "failed handshakes": f.WEB_HANDSHAKE_FAILURES,
        "source failures": f.SOURCE_FAILURES,
    }
    rates = [Line(f"rate({a(family)}[$__rate_interval])", name) for name, family in counted.items()]
    yield p.chart("What it does", *rates, unit="cps", width=8)
    watched = {"watched": Line(_by(f.TARGET))}
    yield p.listing("What it watches", watched, labels=f.TARGET.labels, looks={"watched": p.HIDDEN}, width=8)
