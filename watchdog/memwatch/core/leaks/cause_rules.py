"""Growth that no attribute holds: of filled arrays, GPUs, workers, shared memory, the allocator, C code.

Rules that turn evidence into named causes of growth, with what to do. No finding without evidence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from memwatch.core.examination import (
    ARRAY_TYPES,
    LOCAL_VARIABLE_PREFIX,
    NDARRAY,
    TENSORS,
    UNNAMED_HOLDER_PREFIX,
    Finding,
    Growth,
    GrowthDriver,
)
from memwatch.core.leaks import leak_causes
from memwatch.core.leaks.examination_history import ExaminationHistory
from memwatch.core.leaks.growth_attribution import (
    AttributeGrowth,
    DiagnosisContext,
    attribute_growths,
    min_reported_growth,
)
from memwatch.core.leaks.leak_causes import LeakCause
from memwatch.core.text_and_units import format_bytes, without_main_module

EXPLAINS = 0.5  # of the growth of memory: what leaves more of it open is not all of the cause
MAX_FLAT_SHARE = 0.2  # of the growth of memory: Python's objects that grow by less do not explain it
SEVERAL = 4  # generations: so long objects may come and go in each before an examination meets them
NEARLY = 0.8  # of the growth of a generation: what objects left, where that is the cause
ALL_GPUS = "gpu"  # all of them together
FIGURE = re.compile(r"^(Figure|FigureManager\w*|AxesSubplot|Axes)$")


def array_findings(evidence: ExaminationHistory, situation: DiagnosisContext, memory: Growth) -> Iterator[Finding]:
    """Arrays that were made at their full size and take memory as they are filled: together they need too much."""
    grown, latest, room = evidence.filling_arrays(), evidence.comparable[-1], situation.headroom_bytes
    per_unit, full = sum(one.per_unit for one in grown), sum(latest.filled[one.name][1] for one in grown)
    before, after = sum(one.before for one in grown), sum(one.after for one in grown)
    worth = min_reported_growth(situation, memory)
    if room is None or full - after <= room or per_unit < worth:
        return
    most = grown[0]
    growth = Growth(most.name, before, after, per_unit, most.since, most.steps)
    names = ", ".join(without_main_module(one.name) for one in grown)
    facts = (f"{names}: {format_bytes(after)} of {format_bytes(full)} are in memory, {format_bytes(room)} are left",)
    yield leak_causes.FILLED.finding(growth, situation.phase, facts, holder=most.name, type_=NDARRAY)


def gpu_findings(evidence: ExaminationHistory, situation: DiagnosisContext) -> Iterator[Finding]:
    """What is used on GPUs, beside the tensors that a census finds there: allocated, beside reserved."""
    used, tensors, latest = evidence.gpu_growth(), evidence.gpu_tensor_growth(), evidence.comparable[-1:]
    if used is None or used.per_unit < situation.threshold_bytes or not latest[0].on_gpu:
        return
    facts = (f"{format_bytes(used.after)} are used, of which tensors take {format_bytes(latest[0].on_gpu)}",)
    if tensors is None or tensors.per_unit < MAX_FLAT_SHARE * used.per_unit:
        yield leak_causes.GPU_CACHE.finding(used, situation.phase, facts, resource=ALL_GPUS)
    elif tensors.per_unit >= EXPLAINS * used.per_unit:
        holder = _holder_of_tensors(evidence)
        yield leak_causes.GPU_TENSORS.finding(
            used, situation.phase, facts, type_=TENSORS[0], holder=holder, resource=ALL_GPUS
        )


def unattributed_findings(
    evidence: ExaminationHistory, situation: DiagnosisContext, memory: Growth, rest: float, in_attributes: float
) -> Iterator[Finding]:
    """Growth that attributes leave open: copies of workers, shared memory, Python's objects, what is not Python's."""
    shared = next((one for one in evidence.kinds() if one.name == "shared memory"), None)
    heap = evidence.python_heap_growth()
    grown, first, latest = memory.after - memory.before, evidence.record_at(memory.since), evidence.comparable[-1]
    graphs, of_python = evidence.graph_tensor_growth(), 0.0 if heap is None else heap.per_unit
    tensors = sum(one.per_unit for one in evidence.types_growing_in_bytes() if one.name in TENSORS)
    if graphs is not None and (of_python < EXPLAINS * rest or tensors >= EXPLAINS * of_python):
        yield _of_graphs(evidence, situation, memory, graphs)
    elif (copied := latest.cow_bytes - first.cow_bytes) >= EXPLAINS * grown:
        yield leak_causes.WORKERS.finding(
            memory, situation.phase, (f"{format_bytes(copied)} were copied in that time",)
        )
    elif shared is not None and shared.per_unit >= EXPLAINS * rest:
        yield leak_causes.SHARED_MEMORY.finding(
            shared, situation.phase, (f"it takes {_size(shared.before, shared.after)}",)
        )
    elif figures := [one for one in evidence.types_growing_in_count() if FIGURE.search(one.name.rpartition(".")[2])]:
        yield _of_figures(situation, memory, figures)
    elif heap is not None and heap.per_unit - in_attributes >= EXPLAINS * rest:
        yield _of_objects(evidence, situation, heap)
    elif latest.heap_bytes - first.heap_bytes < MAX_FLAT_SHARE * grown and (
        evidence.has_seen_within or len(evidence.comparable) >= SEVERAL
    ):
        yield _of_other_memory(evidence, situation, memory)


def _of_graphs(evidence: ExaminationHistory, situation: DiagnosisContext, memory: Growth, graphs: Growth) -> Finding:
    """What a graph holds, no attribute does: tensors that were saved for a backward pass that never comes."""
    facts = (f"{graphs.after:,} tensors keep their graph, {graphs.before:,} at {situation.unit} {graphs.since:g}",)
    counts = (graphs.before, graphs.after)
    holder = _holder_of_tensors(evidence)
    return leak_causes.GRAPHS.finding(memory, situation.phase, facts, type_=TENSORS[0], counts=counts, holder=holder)


def _holder_of_tensors(evidence: ExaminationHistory) -> str:
    """The attribute that holds the most of those that there are more of."""
    first, latest = evidence.comparable[0], evidence.comparable[-1]
    risen = {
        way: count - first.path_counts.get((name, way), 0)
        for (name, way), count in latest.path_counts.items()
        if name in TENSORS and not way.startswith(UNNAMED_HOLDER_PREFIX)
    }
    return max(risen, key=lambda way: risen[way], default="")


def _of_figures(situation: DiagnosisContext, memory: Growth, figures: Sequence[Growth]) -> Finding:
    """What a figure is drawn on is C++'s memory, most often more than its Python objects. pyplot's have a manager."""
    names = [one.name.rpartition(".")[2] for one in figures]
    most = figures[names.index("Figure")] if "Figure" in names else figures[0]
    holder = "matplotlib.pyplot" if any(name.startswith("FigureManager") for name in names) else ""
    facts = (f"{most.after:,} are open, {most.before:,} at {situation.unit} {most.since:g}",)
    return leak_causes.PYPLOT_FIGURES.finding(
        memory, situation.phase, facts, type_=most.name, counts=(most.before, most.after), holder=holder
    )


def _of_objects(evidence: ExaminationHistory, situation: DiagnosisContext, heap: Growth) -> Finding:
    """Of the types that there are more and more of: what no attribute holds, else the one that takes the most."""
    latest, risen = evidence.comparable[-1], {one.name: one for one in evidence.types_growing_in_count()}
    facts = (f"Python's objects take {_size(heap.before, heap.after)}",)
    if not risen:
        return leak_causes.HELD_BY_LOCAL_OR_NATIVE.finding(heap, situation.phase, facts)
    loose = [
        (type_, way)
        for type_, way in latest.path_counts
        if type_ in risen and way.startswith((UNNAMED_HOLDER_PREFIX, LOCAL_VARIABLE_PREFIX))
    ]
    if loose:
        name, holder = min(loose, key=_how_plain)
    else:
        name = max(risen, key=lambda one: latest.sizes.get(one, 0))
        ways = {way: count for (type_, way), count in latest.path_counts.items() if type_ == name}
        holder = max(ways, key=lambda way: ways[way], default="")
    counts = (risen[name].before, risen[name].after)
    function, _, variable = holder.removeprefix(LOCAL_VARIABLE_PREFIX).partition(": ")
    remedy = (
        f"bound or clear {variable.partition('[')[0]}, in {function}"
        if holder.startswith(LOCAL_VARIABLE_PREFIX)
        else ""
    )
    return leak_causes.HELD_BY_LOCAL_OR_NATIVE.finding(
        heap, situation.phase, facts, type_=name, counts=counts, holder=holder, remedy=remedy
    )


def _size(before: int, after: int) -> str:
    return f"{format_bytes(after)}, {format_bytes(after - before, signed=True)} in that time"


def _how_plain(held: tuple[str, str]) -> tuple[bool, int]:
    """A class before arrays and Python's own types; then the nearest."""
    type_, way = held
    return type_ in ARRAY_TYPES or "." not in type_, len(way)


def _of_other_memory(evidence: ExaminationHistory, situation: DiagnosisContext, memory: Growth) -> Finding:
    """Where Python's objects left as much as memory grows by, and that stayed in use, the allocator keeps it."""
    first, latest = evidence.record_at(memory.since).heap_bytes, evidence.comparable[-1].heap_bytes
    facts = (f"Python's objects take {_size(first, latest)}",)
    for left in evidence.freed_within_generation:
        grown = memory.per_unit * (left.units or evidence.stride)
        if left.since >= memory.since and left.kept_bytes >= max(EXPLAINS * left.bytes, NEARLY * grown):
            kept = f"{format_bytes(left.bytes)} of them went, and memory kept {format_bytes(left.kept_bytes)} of that"
            return leak_causes.FRAGMENTS.finding(memory, situation.phase, (*facts, kept))
    return leak_causes.NATIVE.finding(memory, situation.phase, facts)


_ENVIRONMENT = re.compile(r"env(ironment)?s?$|^Env|VecEnv|Wrapper$|Simulator$|Gym", re.IGNORECASE)
_LOSS = re.compile(r"loss|grad|graph", re.IGNORECASE)
_MEMBER = re.compile(
    r"agent|individual|genome|policy|member|organism|population|actor|critic|net(work)?$|model$", re.IGNORECASE
)


def find_causes(evidence: ExaminationHistory, situation: DiagnosisContext) -> tuple[list[Finding], list[GrowthDriver]]:
    """What grows and why, the largest first; and what counts its items."""
    situation = replace(situation, threshold_bytes=situation.threshold_bytes / evidence.stride)
    memory, on_gpus = evidence.memory_growth(), list(gpu_findings(evidence, situation))
    if memory is None:
        return on_gpus, []
    held = list(attribute_growths(evidence, situation, memory))
    findings = [found for one in held if (found := _of_holding(one, situation)) is not None]
    findings += array_findings(evidence, situation, memory)
    in_attributes = sum(one.growth.per_unit for one in held)
    known = in_attributes + sum(one.per_unit for one in evidence.filling_arrays())
    held_once = evidence.held_since(memory.since) / (memory.after - memory.before)  # by one that is full by now, say
    if max(known / memory.per_unit, held_once) < EXPLAINS and memory.per_unit >= situation.threshold_bytes:
        findings += unattributed_findings(evidence, situation, memory, memory.per_unit - known, in_attributes)
    findings.sort(key=lambda one: -one.growth.per_unit)
    return findings + on_gpus, [one.driver for one in held if one.driver is not None]


def _is_called(pattern: re.Pattern[str]) -> Callable[[AttributeGrowth], bool]:
    return lambda one: bool(pattern.search(one.type.rpartition(".")[2]))


def _is_population(one: AttributeGrowth) -> bool:
    """Of those that are in use, a part or all stays each time."""
    is_member = _MEMBER.search(one.type) or _MEMBER.search(one.reference_path)
    return bool(is_member) and one.elsewhere >= 2 and 0.2 * one.elsewhere <= one.per_unit <= 1.5 * one.elsewhere


RULES: tuple[tuple[LeakCause, Callable[[AttributeGrowth], bool]], ...] = (
    (leak_causes.FIGURES, _is_called(FIGURE)),
    (leak_causes.ENVIRONMENTS, _is_called(_ENVIRONMENT)),
    (leak_causes.LOSSES, lambda one: one.type in TENSORS or _is_called(_LOSS)(one)),
    (leak_causes.POPULATION, _is_population),
    (leak_causes.UNBOUNDED, lambda _: True),
)


def _of_holding(one: AttributeGrowth, situation: DiagnosisContext) -> Finding | None:
    """Why an attribute grows; None where it fills up to a capacity for which there is room."""
    if one.driver is not None and one.driver.capacity is not None:
        return _of_capacity(one, one.driver, situation)
    cause = next(cause for cause, fits in RULES if fits(one))
    return _finding(one, cause, cause.remedy.format(name=one.name, unit=situation.unit), situation)


def _of_capacity(one: AttributeGrowth, by: GrowthDriver, situation: DiagnosisContext) -> Finding | None:
    room = situation.headroom_bytes
    if room is None or by.full_bytes is None or by.limit_value is None or by.full_bytes - one.growth.after <= room:
        return None
    each, most = format_bytes(by.bytes_per_unit), f"{by.limit_value:,.0f}"
    remedy = (
        f"give {one.name} a capacity below {most}, or make its items smaller (each takes {each}): "
        "indices or views of shared data instead of copies, float16 or uint8"
    )
    facts = (
        f"{by.name}: {by.value:,.0f} of {by.capacity:,.0f}, {each} each",
        f"full it needs {format_bytes(by.full_bytes)}; the limit falls at about {most}",
    )
    return _finding(one, leak_causes.CANNOT_FIT, remedy, situation, facts)


def _finding(
    one: AttributeGrowth, cause: LeakCause, remedy: str, situation: DiagnosisContext, facts: Sequence[str] = ()
) -> Finding:
    growth = one.growth
    sizes = f"{format_bytes(growth.before)} at {situation.unit} {growth.since:g}, {format_bytes(growth.after)} now"
    evidence = (*facts, f"{one.name} holds {sizes}", f"that is {one.share:.0%} of the growth of memory")
    counts = (one.before, one.after)
    return cause.finding(
        growth,
        one.phase,
        evidence,
        type_=one.type,
        counts=counts,
        holder=one.reference_path,
        share=one.share,
        remedy=remedy,
    )
