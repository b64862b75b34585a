"""Rules that turn evidence into named causes of growth, with what to do. No finding without evidence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from memwatch.core.census import UNNAMED
from memwatch.core.evidence import Evidence
from memwatch.core.examination import Driver, Finding, Growth
from memwatch.core.holdings import ARRAYS, MATERIAL, Holding, Situation, holdings
from memwatch.core.model import HOST
from memwatch.core.sentence import main_less
from memwatch.core.units import format_bytes

EXPLAINS = 0.5  # of the growth of memory: what leaves more of it open is not all of the cause
FLAT = 0.2  # of the growth of memory: Python's objects that grow by less do not explain it
NEARLY = 0.8  # of the growth of a generation: what objects left, where that is the cause
GPU = "gpu"  # all of them together
TENSORS = ("torch.Tensor", "torch.nn.parameter.Parameter")

_ENVIRONMENT = re.compile(r"env(ironment)?s?$|^Env|VecEnv|Wrapper$|Simulator$|Gym", re.IGNORECASE)
_FIGURE = re.compile(r"^(Figure|FigureManager\w*|AxesSubplot|Axes)$")
_LOSS = re.compile(r"loss|grad|graph", re.IGNORECASE)
_MEMBER = re.compile(
    r"agent|individual|genome|policy|member|organism|population|actor|critic|net(work)?$|model$", re.IGNORECASE
)


def conclude(evidence: Evidence, situation: Situation) -> tuple[list[Finding], list[Driver]]:
    """What grows and why, the largest first; and what counts its items."""
    memory, on_gpus = evidence.memory(), list(_of_gpus(evidence, situation))
    if memory is None:
        return on_gpus, []
    held = list(holdings(evidence, situation, memory))
    findings = [found for one in held if (found := _of_holding(one, situation)) is not None]
    findings += _of_arrays(evidence, situation, memory)
    in_attributes = sum(one.growth.per_unit for one in held)
    known = in_attributes + sum(one.per_unit for one in evidence.filled())
    if known < EXPLAINS * memory.per_unit and memory.per_unit >= situation.threshold_bytes / evidence.stride:
        findings += _of_rest(evidence, situation, memory, memory.per_unit - known, in_attributes)
    findings.sort(key=lambda one: -one.growth.per_unit)
    return findings + on_gpus, [one.driver for one in held if one.driver is not None]


def confidence(sure: float, steps: int) -> float:
    """Half of the doubt goes with each step in which it rose."""
    return round(sure * (1.0 - 0.5**steps), 2)


# --- what an attribute holds ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """A cause, when it is one, and what to do about it."""

    cause: str
    title: str
    fits: Callable[[Holding], bool]
    remedy: str  # {name}: the attribute; {unit}
    sure: float  # how much is believed of it with all evidence


def _is_called(pattern: re.Pattern[str]) -> Callable[[Holding], bool]:
    return lambda one: bool(pattern.search(one.type.rpartition(".")[2]))


def _is_population(one: Holding) -> bool:
    """Of those that are in use, a part or all stays each time."""
    is_member = _MEMBER.search(one.type) or _MEMBER.search(one.way)
    return bool(is_member) and one.elsewhere >= 2 and 0.2 * one.elsewhere <= one.per_unit <= 1.5 * one.elsewhere


RULES: tuple[Rule, ...] = (
    Rule(
        "figures_not_closed",
        "figures are drawn and never closed",
        _is_called(_FIGURE),
        "close each figure when it is saved: plt.close(figure); {name} keeps them",
        0.95,
    ),
    Rule(
        "environments_recreated",
        "environments are made anew and kept",
        _is_called(_ENVIRONMENT),
        "make them once and call reset(), or close() and drop the old ones: {name} keeps them",
        0.9,
    ),
    Rule(
        "graph_retained",
        "losses or tensors are kept with all that they were computed from",
        lambda one: one.type in TENSORS or _is_called(_LOSS)(one),
        "keep the number alone: append loss.item(), or detach().cpu(), to {name}",
        0.9,
    ),
    Rule(
        "old_population_kept",
        "members of old populations are kept",
        _is_population,
        "keep scores, or the best few, instead of whole members: {name} holds those of every {unit}",
        0.85,
    ),
    Rule(
        "unbounded_container",
        "a container grows without a bound",
        lambda _: True,
        "bound it, as with collections.deque(maxlen=...), or write it out and clear it each {unit}: {name}",
        0.8,
    ),
)


def _of_holding(one: Holding, situation: Situation) -> Finding | None:
    """Why an attribute grows; None where it fills up to a capacity for which there is room."""
    if one.driver is not None and one.driver.capacity is not None:
        return _of_capacity(one, one.driver, situation)
    rule = next(rule for rule in RULES if rule.fits(one))
    return _finding(one, rule, rule.remedy.format(name=one.name, unit=situation.unit), situation)


CANNOT_FIT = Rule("buffer_cannot_fit", "a buffer fills that can never fit", lambda _: False, "", 0.95)


def _of_capacity(one: Holding, by: Driver, situation: Situation) -> Finding | None:
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
    return _finding(one, CANNOT_FIT, remedy, situation, facts)


def _finding(one: Holding, rule: Rule, remedy: str, situation: Situation, facts: Sequence[str] = ()) -> Finding:
    growth = one.growth
    sizes = f"{format_bytes(growth.before)} at {situation.unit} {growth.since:g}, {format_bytes(growth.after)} now"
    return Finding(
        cause=rule.cause,
        title=rule.title,
        resource=HOST,
        growth=growth,
        share=one.share,
        phase=one.phase,
        type=one.type,
        count_before=one.before,
        count_after=one.after,
        holder=one.way,
        remedy=remedy,
        confidence=confidence(rule.sure, growth.steps),
        evidence=(*facts, f"{one.name} holds {sizes}", f"that is {one.share:.0%} of the growth of memory"),
    )


# --- growth that no attribute holds ---------------------------------------------------------------------------------


def _of_arrays(evidence: Evidence, situation: Situation, memory: Growth) -> Iterator[Finding]:
    """Arrays that were made at their full size and take memory as they are filled: together they need too much."""
    grown, latest, room = evidence.filled(), evidence.spaced[-1], situation.headroom_bytes
    per_unit, full = sum(one.per_unit for one in grown), sum(latest.filled[one.name][1] for one in grown)
    before, after = sum(one.before for one in grown), sum(one.after for one in grown)
    worth = max(situation.threshold_bytes / evidence.stride, MATERIAL * memory.per_unit)
    if room is None or full - after <= room or per_unit < worth:
        return
    most = grown[0]
    growth = Growth(most.name, before, after, per_unit, most.since, most.steps)
    names = ", ".join(main_less(one.name) for one in grown)
    facts = (f"{names}: {format_bytes(after)} of {format_bytes(full)} are in memory, {format_bytes(room)} are left",)
    yield _other(FILLED, growth, situation, facts, holder=most.name, type_=ARRAYS[0])


@dataclass(frozen=True, slots=True)
class Other:
    """A cause that is no attribute's."""

    cause: str
    title: str
    remedy: str
    sure: float


FILLED = Other(
    "buffer_cannot_fit",
    "arrays were made larger than memory, and take it as they are filled",
    "give the buffer a smaller capacity, or smaller items: float16 or uint8, indices or views of shared data",
    0.95,
)
WORKERS = Other(
    "workers_copy_pages",
    "forked workers copy the pages that they inherited",
    "keep the data set in arrays or shared memory instead of lists of Python objects, or use fewer workers",
    0.8,
)
SHARED = Other(
    "shared_memory",
    "shared memory grows",
    "look for batches that are passed between processes and kept: prefetch_factor, queues, files in /dev/shm",
    0.6,
)
FIGURES = Other(
    "figures_not_closed",
    "figures are drawn and never closed",
    "close each figure when it is saved: plt.close(figure)",
    0.8,
)
ELSEWHERE = Other(
    "held_by_local_or_native",
    "objects are kept by a local variable or by C code",
    "look at the local variables of functions that run all the time, the main loop first",
    0.6,
)
FRAGMENTS = Other(
    "fragmentation",
    "the allocator keeps memory that objects have left",
    "try MALLOC_ARENA_MAX=2, or jemalloc; make large temporary arrays once, or in a process of their own",
    0.6,
)
NATIVE = Other(
    "native_leak",
    "memory grows that no Python object takes",
    "look at C extensions and their versions; memray --native or heaptrack name the allocation",
    0.6,
)


GRAPHS = Other(
    "graph_retained",
    "tensors are kept with the graph that they were computed by",
    "keep the number alone: append loss.item(), or detach().cpu(), instead of the tensor",
    0.9,
)


GPU_CACHE = Other(
    "gpu_cache",
    "torch's cache on the GPU grows, its tensors do not",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and tensors of like shapes each time",
    0.6,
)
GPU_TENSORS = Other(
    "gpu_tensors_kept",
    "ever more tensors stay on the GPU",
    "detach() and move to the CPU what is kept, or drop it: a list, a metric, a loss with its graph",
    0.8,
)


def _of_gpus(evidence: Evidence, situation: Situation) -> Iterator[Finding]:
    """What is used on GPUs, beside the tensors that a census finds there: allocated, beside reserved."""
    used, tensors, latest = evidence.gpu(), evidence.on_gpu(), evidence.spaced[-1:]
    if used is None or used.per_unit < situation.threshold_bytes / evidence.stride or not latest[0].on_gpu:
        return
    facts = (f"{format_bytes(used.after)} are used, of which tensors take {format_bytes(latest[0].on_gpu)}",)
    if tensors is None or tensors.per_unit < FLAT * used.per_unit:
        yield replace(_other(GPU_CACHE, used, situation, facts), resource=GPU)
    elif tensors.per_unit >= EXPLAINS * used.per_unit:
        holder = _holder_of_tensors(evidence)
        yield replace(_other(GPU_TENSORS, used, situation, facts, type_=TENSORS[0], holder=holder), resource=GPU)


def _of_rest(
    evidence: Evidence, situation: Situation, memory: Growth, rest: float, in_attributes: float
) -> Iterator[Finding]:
    """Growth that attributes leave open: copies of workers, shared memory, Python's objects, what is not Python's."""
    shared = next((one for one in evidence.kinds() if one.name == "shared memory"), None)
    heap = evidence.heap()
    grown, first, latest = memory.after - memory.before, evidence.at(memory.since), evidence.spaced[-1]
    graphs, of_python = evidence.graphs(), 0.0 if heap is None else heap.per_unit
    tensors = sum(one.per_unit for one in evidence.sizes() if one.name in TENSORS)
    if graphs is not None and (of_python < EXPLAINS * rest or tensors >= EXPLAINS * of_python):
        yield _of_graphs(evidence, situation, memory, graphs)
    elif (copied := latest.cow_bytes - first.cow_bytes) >= EXPLAINS * grown:
        yield _other(WORKERS, memory, situation, (f"{format_bytes(copied)} were copied in that time",))
    elif shared is not None and shared.per_unit >= EXPLAINS * rest:
        yield _other(SHARED, shared, situation, (f"it takes {_size(shared.before, shared.after)}",))
    elif figures := [one for one in evidence.types() if _FIGURE.search(one.name.rpartition(".")[2])]:
        yield _of_figures(situation, memory, figures)
    elif heap is not None and heap.per_unit - in_attributes >= EXPLAINS * rest:
        yield _of_objects(evidence, situation, heap)
    elif latest.heap_bytes - first.heap_bytes < FLAT * grown:
        yield _of_other_memory(evidence, situation, memory)


def _of_graphs(evidence: Evidence, situation: Situation, memory: Growth, graphs: Growth) -> Finding:
    """What a graph holds, no attribute does: tensors that were saved for a backward pass that never comes."""
    facts = (f"{graphs.after:,} tensors keep their graph, {graphs.before:,} at {situation.unit} {graphs.since:g}",)
    counts = (graphs.before, graphs.after)
    holder = _holder_of_tensors(evidence)
    return _other(GRAPHS, memory, situation, facts, type_=TENSORS[0], counts=counts, holder=holder)


def _holder_of_tensors(evidence: Evidence) -> str:
    """The attribute that holds the most of those that there are more of."""
    first, latest = evidence.spaced[0], evidence.spaced[-1]
    risen = {
        way: count - first.ways.get((name, way), 0)
        for (name, way), count in latest.ways.items()
        if name in TENSORS and not way.startswith(UNNAMED)
    }
    return max(risen, key=lambda way: risen[way], default="")


def _of_figures(situation: Situation, memory: Growth, figures: Sequence[Growth]) -> Finding:
    """What a figure is drawn on is C++'s memory, most often more than its Python objects. pyplot's have a manager."""
    names = [one.name.rpartition(".")[2] for one in figures]
    most = figures[names.index("Figure")] if "Figure" in names else figures[0]
    holder = "matplotlib.pyplot" if any(name.startswith("FigureManager") for name in names) else ""
    facts = (f"{most.after:,} are open, {most.before:,} at {situation.unit} {most.since:g}",)
    return _other(FIGURES, memory, situation, facts, type_=most.name, counts=(most.before, most.after), holder=holder)


def _of_objects(evidence: Evidence, situation: Situation, heap: Growth) -> Finding:
    """Of the types that there are more and more of: what no attribute holds, else the one that takes the most."""
    latest, risen = evidence.spaced[-1], {one.name: one for one in evidence.types()}
    facts = (f"Python's objects take {_size(heap.before, heap.after)}",)
    if not risen:
        return _other(ELSEWHERE, heap, situation, facts)
    loose = [(type_, way) for type_, way in latest.ways if type_ in risen and way.startswith(UNNAMED)]
    if loose:
        name, holder = min(loose, key=_how_plain)
    else:
        name = max(risen, key=lambda one: latest.sizes.get(one, 0))
        ways = {way: count for (type_, way), count in latest.ways.items() if type_ == name}
        holder = max(ways, key=lambda way: ways[way], default="")
    counts = (risen[name].before, risen[name].after)
    return _other(ELSEWHERE, heap, situation, facts, type_=name, counts=counts, holder=holder)


def _size(before: int, after: int) -> str:
    return f"{format_bytes(after)}, {format_bytes(after - before, signed=True)} in that time"


def _how_plain(held: tuple[str, str]) -> tuple[bool, int]:
    """A class before arrays and Python's own types; then the nearest."""
    type_, way = held
    return type_ in ARRAYS or "." not in type_, len(way)


def _of_other_memory(evidence: Evidence, situation: Situation, memory: Growth) -> Finding:
    """Where Python's objects left as much as memory grows by, and that stayed in use, the allocator keeps it."""
    first, latest = evidence.at(memory.since).heap_bytes, evidence.spaced[-1].heap_bytes
    facts = (f"Python's objects take {_size(first, latest)}",)
    for left in evidence.left:
        grown = memory.per_unit * (left.units or evidence.stride)
        if left.since >= memory.since and left.kept_bytes >= max(EXPLAINS * left.bytes, NEARLY * grown):
            kept = f"{format_bytes(left.bytes)} of them went, and memory kept {format_bytes(left.kept_bytes)} of that"
            return _other(FRAGMENTS, memory, situation, (*facts, kept))
    return _other(NATIVE, memory, situation, facts)


def _other(
    cause: Other,
    growth: Growth,
    situation: Situation,
    evidence: Sequence[str] = (),
    *,
    type_: str = "",
    counts: tuple[int, int] | None = None,
    holder: str = "",
) -> Finding:
    return Finding(
        cause=cause.cause,
        title=cause.title,
        resource=HOST,
        growth=growth,
        share=None,
        phase=situation.phase,
        type=type_,
        count_before=counts[0] if counts else None,
        count_after=counts[1] if counts else None,
        holder=holder,
        remedy=cause.remedy,
        confidence=confidence(cause.sure, growth.steps),
        evidence=tuple(evidence),
    )
