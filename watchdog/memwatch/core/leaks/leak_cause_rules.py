"""The rules that find the causes of growth.

There is no finding without evidence: growth that no rule explains stays without a cause.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from memwatch.core.examination import (
    ARRAY_TYPES,
    CYCLES_HOLDER_PREFIX,
    ITEM_ENDS,
    KEY_END,
    LOCAL_VARIABLE_PREFIX,
    NDARRAY,
    TENSORS,
    UNNAMED_HOLDER_PREFIX,
    Finding,
    Growth,
    GrowthDriver,
)
from memwatch.core.forecast.piecewise_trend import LEAST_RISE
from memwatch.core.leaks.examination_history import MIN_STEPS, ExaminationHistory, ExaminationRecord
from memwatch.core.leaks.growth_attribution import (
    AttributeGrowth,
    DiagnosisContext,
    attribute_growths,
    min_reported_growth,
)
from memwatch.core.leaks.leak_cause_catalogue import (
    CANNOT_FIT,
    CIRCLE_OF_GRADIENTS,
    COMPILED,
    CYCLES,
    DEEPENING,
    DEFAULT_ARGUMENT,
    ENVIRONMENTS,
    EXCEPTIONS,
    FIGURES,
    FILLED,
    FILLS,
    FRAGMENTS,
    GPU_CACHE,
    GPU_TENSORS,
    GRAPHS,
    HELD_BY_LOCAL_OR_NATIVE,
    KEPT,
    LOSSES,
    MEMBERS,
    MODEL,
    NATIVE,
    OTHERS,
    POPULATION,
    PYPLOT_FIGURES,
    SHARED_MEMORY,
    STATE,
    SUM_OF_GRAPHS,
    SUSPECTED,
    UNBOUNDED,
    UNCOLLECTED,
    VAGUE,
    WORKERS,
    LeakCause,
)
from memwatch.core.text_and_units import format_bytes, since_text, without_main_module

EXPLAINS = 0.5  # A cause has to explain at least this share of the growth of memory (chosen).
# Or this share, if nothing else is known, with less confidence: of lists of tensors, half may be the allocator's.
MAY_EXPLAIN = 0.25
MAX_FLAT_SHARE = 0.2  # Objects that grow by less than this share of the growth of memory do not explain it (chosen).
SEVERAL = 4  # Generations in which one sees objects that live for a part of each, and growth that ends (chosen).
MIN_UNFILLED_SHARE = 0.01  # Share of an array that is at least not filled yet (chosen: estimates err by less).
NEARLY = 0.8  # Share of a generation's growth that freed objects must account for in a fragmented heap (chosen).
STEADY_SECONDS = 15.0  # after the first of two whole heaps, from which on memory grew steadily to the second (chosen)
# Two attributes hold the same where their shares of the growth exceed one together, and are alike (chosen).
OVERLAP, ALIKE_RATES = 1.2, 0.85
MIN_LEFT = 2  # times that objects went and their memory stayed: one look may have missed what another sees (chosen)
# Growth outside Python's heap is named after so long: at first, libraries fill caches of their own (seen: for 55 s).
NATIVE_SECONDS = 60.0
ALL_GPUS = "gpu"  # the resource of findings on all GPUs together
_FIGURE = re.compile(r"^(Figure|FigureManager\w*|AxesSubplot|Axes)$")
# Types, and what holds, one for each version of a compiled function: of JAX, TensorFlow, Numba and torch.compile.
_COMPILED = re.compile(
    r"\.(?:LoadedExecutable|ConcreteFunction|FunctionCache\._primary|LP_LLVMModule|RootGuardManager)$"
)
_BOOSTER = re.compile(r"^(?:xgboost|lightgbm|_?catboost)\..*(?:Booster|CatBoost(?:Classifier|Regressor|Ranker)?)$")
_ENVIRONMENT = re.compile(r"env(ironment)?s?$|^Env|VecEnv|Wrapper$|Simulator$|Gym", re.IGNORECASE)
_BUFFER = re.compile(r"\._buffers\['(\w+)'\]$")  # of a torch module, which is kept from step to step
# A path that begins so names no container, but one of many.
_SOME_CONTAINER = ("collections.deque[", "collections.OrderedDict[", "collections.defaultdict[", "collections.Counter[")
_METRIC = re.compile(r"metric|\bAverageMeter$", re.IGNORECASE)
_METHOD = f"{UNNAMED_HOLDER_PREFIX}method "
_LOOSE = (UNNAMED_HOLDER_PREFIX, LOCAL_VARIABLE_PREFIX, CYCLES_HOLDER_PREFIX)  # of paths that begin at no attribute
_TRACEBACK = ".tb_frame"  # in the path to what a traceback keeps
_MEMBER = re.compile(
    r"agent|individual|genome|policy|member|organism|population|actor|critic|net(work)?$|model$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Causes:
    """What is known of the causes of growth."""

    findings: list[Finding]  # the largest first
    drivers: list[GrowthDriver]  # levels that count the items of growing attributes
    explained: bool  # memory does not grow, or what names lead to explains its growth
    history: ExaminationHistory  # from which this is known


def find_causes(heaps: ExaminationHistory, names: ExaminationHistory, context: DiagnosisContext) -> Causes:
    """Find the causes of growth: by whole heaps where these have shown it, else by names that explain it."""
    memory, beside = names.memory_growth(), list[Finding]()
    if memory is not None:
        beside = list(_neighbour_findings(names, context, memory))
        memory = _own_growth(memory, sum(one.growth.per_unit for one in beside))
    filling = list(_filling_findings(names, context))
    attributes = [] if memory is None else _attributes(names, context, memory)
    known = 0.0 if memory is None else _known_growth(names, attributes) / memory.per_unit
    fills = sum(one.growth.per_unit for one in filling)
    is_calm = memory is None or _is_small(memory, names, context)
    explained = is_calm or (memory is not None and max(known, fills / memory.per_unit) >= EXPLAINS)
    found = list[Finding]()
    # A graph that becomes deeper holds more and more by itself.
    deepening = names.deepening_graphs()
    graphs = None if any(one.steps >= SEVERAL for one in deepening) else _growth_of_graphs(names)
    if memory is not None and known >= EXPLAINS and not is_calm:
        found = _held_findings(names, context, memory, attributes)
    elif memory is not None and not is_calm and graphs is not None and _are_kept(names):
        found, known, explained = [_graph_finding(names, context, memory, graphs)], 1.0, True
    elif memory is not None and not is_calm and known < MAY_EXPLAIN:
        explained = explained or bool(deepening)  # a look or two more will tell
        suspected = _sum_of_graphs(names, context, memory) or _growing_list(names, context, memory)
        found = [] if suspected is None else [suspected]
    heaps.required_rises = 1 if _is_steady(memory, names, heaps) else MIN_STEPS
    named_drivers = [attribute.driver for attribute in attributes if attribute.driver is not None]
    if heaps.memory_growth() is not None or (not found and heaps.records and heaps.latest_t >= names.latest_t):
        findings, drivers = _heap_causes(heaps, names, context)
        if known >= EXPLAINS and memory is not None:
            are_newer = heaps.latest_t < names.latest_t
            findings = _with_names(findings, found, (1.0 - known) * memory.per_unit, are_newer)
            drivers = named_drivers if are_newer else drivers
        taken = {one.growth.name for one in findings}
        return Causes([*(one for one in filling if one.growth.name not in taken), *findings], drivers, explained, heaps)
    if not found and memory is not None and not is_calm and MAY_EXPLAIN <= known < EXPLAINS:
        part = _held_findings(names, context, memory, attributes)
        found = [replace(one, confidence=round(one.confidence * known / EXPLAINS, 2)) for one in part]
    found = sorted((*beside, *found), key=lambda finding: -finding.growth.per_unit)
    return Causes([*filling, *found], named_drivers, explained, heaps if heaps.records and not found else names)


def _is_steady(memory: Growth | None, names: ExaminationHistory, heaps: ExaminationHistory) -> bool:
    """Whether looks at names saw memory grow at one rate all the time between two whole heaps, which then suffice."""
    if memory is None or memory.steps < SEVERAL or len(heaps.comparable) < 2:
        return False
    return names.record_at(memory.since).t <= heaps.comparable[-2].t + STEADY_SECONDS


def _with_names(findings: Sequence[Finding], found: Sequence[Finding], rest: float, are_newer: bool) -> list[Finding]:
    """Join the findings of a whole heap with those that names lead to, which lead deeper than to what holds all.

    Of the former, one of no specific cause is left out that claims more than the `rest` of bytes per unit which names
    leave; and, where names are newer, one of which they say the cause now.
    """
    named = {one.growth.name for one in found}
    told = {one.growth.name for one in found if one.cause not in VAGUE} if are_newer else set()
    specific = [one for one in findings if one.cause not in VAGUE and one.growth.name not in told]
    vague = [one for one in findings if one.cause in VAGUE and one.growth.name not in named]
    kept = [*specific, *(one for one in vague if one.growth.per_unit <= rest)]
    taken = {one.growth.name for one in kept}
    joined = [*kept, *(one for one in found if one.growth.name not in taken)]
    return sorted(joined, key=lambda finding: -finding.growth.per_unit)


def _is_small(memory: Growth, history: ExaminationHistory, context: DiagnosisContext) -> bool:
    """Whether growth is too slow to be told, or too little of it was seen yet where generations are short.

    After a warning no growth is too slow, if it is more than noise.
    """
    threshold = context.threshold_bytes
    least_risen = max(threshold, LEAST_RISE * memory.after)
    return memory.per_unit < history.per_unit(threshold) or memory.risen < least_risen


def _attributes(history: ExaminationHistory, context: DiagnosisContext, memory: Growth) -> list[AttributeGrowth]:
    context = replace(context, threshold_bytes=history.per_unit(context.threshold_bytes))
    return list(attribute_growths(history, context, memory))


def _held_findings(
    history: ExaminationHistory, context: DiagnosisContext, memory: Growth, attributes: Sequence[AttributeGrowth]
) -> list[Finding]:
    """Find why attributes grow, and which arrays fill that will not fit."""
    graphs, found = _growth_of_graphs(history), list[Finding]()
    for attribute, others in _without_aliases(attributes, history):
        if (one := _attribute_finding(attribute, history, context, graphs)) is not None:
            also = (f"the same is held by {', '.join(others)}",) if others else ()
            found.append(replace(one, evidence=(*one.evidence, *also)))
    return [*found, *_array_findings(history, context, memory)]


def _without_aliases(
    attributes: Sequence[AttributeGrowth], history: ExaminationHistory
) -> list[tuple[AttributeGrowth, list[str]]]:
    """Return each growing attribute with the names of those that hold the same: together they exceed the growth.

    What gains items comes before what leads to it, then the program's own, then the shortest path.
    """
    items = history.comparable[-1].items if history.comparable else {}
    found: list[tuple[AttributeGrowth, list[str]]] = []
    for one in sorted(
        attributes,
        key=lambda one: (one.growth.name not in items, not one.growth.name.startswith("__main__."), len(one.name)),
    ):
        for other, names in found:
            rates = one.growth.per_unit, other.growth.per_unit
            if one.share + other.share > OVERLAP and min(rates) >= ALIKE_RATES * max(rates):
                names.append(one.name)
                break
        else:
            found.append((one, []))
    return sorted(found, key=lambda held: -held[0].growth.per_unit)


def _known_growth(history: ExaminationHistory, attributes: Sequence[AttributeGrowth]) -> float:
    """Return the bytes per unit by which attributes grow and arrays fill."""
    in_attributes = sum(attribute.growth.per_unit for attribute in attributes)
    return in_attributes + sum(array.per_unit for array in history.filling_arrays())


def _heap_causes(
    history: ExaminationHistory, names: ExaminationHistory, context: DiagnosisContext
) -> tuple[list[Finding], list[GrowthDriver]]:
    """Find the causes of growth, the largest first, and the levels that count the items of growing attributes."""
    memory = history.memory_growth()
    is_small = memory is not None and _is_small(memory, history, context)
    context = replace(context, threshold_bytes=history.per_unit(context.threshold_bytes))
    on_gpus = list(_gpu_findings(history, context))
    if memory is None:
        return on_gpus, []
    beside, least = list(_neighbour_findings(history, context, memory)), MAX_FLAT_SHARE * memory.per_unit
    memory = _own_growth(memory, sum(one.growth.per_unit for one in beside))
    attributes = list(attribute_growths(history, context, memory))
    is_own = memory.per_unit >= max(context.threshold_bytes, least)
    findings = list[Finding]()
    if not is_small:
        # What each of ever more objects has does not grow by itself: it is sought first why there are more.
        rest = [attribute for attribute in attributes if not attribute.is_of_each_owner]
        if is_own and len(rest) < len(attributes):
            findings = _growth_findings(history, names, context, memory, rest, is_explained=False)
        if not any(one.cause not in VAGUE for one in findings):
            risen_once = history.held_since(memory.since) / memory.risen  # e.g. in a buffer that is full now
            is_explained = not is_own or risen_once >= EXPLAINS
            findings = _growth_findings(history, names, context, memory, attributes, is_explained=is_explained)
    # Of objects that nothing is known to hold, a later examination may find the holder.
    findings = [
        one for one in findings if one.holder or one.cause not in VAGUE or one.growth.steps >= _least_steps(one)
    ]
    findings += beside
    findings.sort(key=lambda finding: -finding.growth.per_unit)
    return findings + on_gpus, [attribute.driver for attribute in attributes if attribute.driver is not None]


def _has_seen_several(history: ExaminationHistory) -> bool:
    """Whether objects of a part of a generation, and growth that ends, would have been seen."""
    return history.has_seen_within or len(history.comparable) >= SEVERAL


def _least_steps(finding: Finding) -> int:
    """Return how many rises memory needs before memwatch reports a finding that names no holder."""
    return SEVERAL if finding.cause == HELD_BY_LOCAL_OR_NATIVE.name else MIN_STEPS


def _growth_findings(
    history: ExaminationHistory,
    names: ExaminationHistory,
    context: DiagnosisContext,
    memory: Growth,
    attributes: Sequence[AttributeGrowth],
    *,
    is_explained: bool,
) -> list[Finding]:
    """Find why attributes grow, and what else takes the memory that they leave."""
    findings = _held_findings(history, context, memory, attributes)
    known = _known_growth(history, attributes)
    if is_explained or known >= EXPLAINS * memory.per_unit:
        return findings
    if known < MAX_FLAT_SHARE * memory.per_unit:  # It does not explain the growth, and may be what fills at first.
        tracked = {growth.name for growth in history.tracked()}
        findings = [one for one in findings if one.cause not in VAGUE or one.growth.name in tracked]
    in_attributes = sum(attribute.growth.per_unit for attribute in attributes)
    findings += _unattributed_findings(history, context, memory, memory.per_unit - known, in_attributes)
    if findings[-1:] and findings[-1].cause in (NATIVE.name, MODEL.name):
        kept = _kept_finding(history, names, context, memory)
        if kept is None or _has_seen_several(history):  # What objects keep may end, as what each frame has but once.
            findings[-1] = kept or findings[-1]
        else:
            findings.pop()
    if findings[-1:] and findings[-1].cause == GRAPHS.name:  # The graph holds others, which no name leads to.
        findings[-1] = replace(findings[-1], holder=findings[-1].holder or _holder_of_graphs(names))
    if findings[-1:] and (kept := _sum_of_graphs(names, context, memory)) is not None:
        findings[-1] = _with_sum(findings[-1], kept)
    return findings


# --- growth that is not the trainer's --------------------------------------------------------------------------------


def _neighbour_findings(history: ExaminationHistory, context: DiagnosisContext, memory: Growth) -> Iterator[Finding]:
    """Name growth of main memory that processes beside the trainer's own tree take."""
    if (known := context.neighbours) is None:
        return
    seconds = history.seconds_per_unit(memory.since)
    for cause, rate in ((OTHERS, known.others_per_second), (MEMBERS, known.members_per_second)):
        per_unit = min(rate * seconds, memory.per_unit)
        if per_unit < min_reported_growth(context, memory):
            continue
        share = per_unit / memory.per_unit
        grown = round(share * memory.risen)
        holder = known.largest_member if cause is MEMBERS else known.largest_other
        name = f"{holder.name} (pid {holder.pid})" if holder is not None else "no single process"
        growth = Growth(name, 0, grown, per_unit, memory.since, memory.steps)
        facts = [f"that is {share:.0%} of the growth of memory"]
        if holder is not None:
            facts.insert(0, f"{name} takes {format_bytes(holder.bytes)} of the cgroup now")
        found = cause.finding(growth, None, *facts, share=share)
        yield found if holder is None else replace(found, title=f"{cause.title}: {name}")


def _own_growth(memory: Growth, beside: float) -> Growth:
    """The growth without the bytes per unit that others take."""
    share = max(0.0, 1.0 - beside / memory.per_unit)
    grown = max(1, round(share * memory.risen))
    return replace(memory, after=memory.before + grown, per_unit=max(1.0, share * memory.per_unit))


# --- growth that an attribute holds -----------------------------------------------------------------------------------


def _is_called(pattern: re.Pattern[str]) -> Callable[[AttributeGrowth], bool]:
    return lambda attribute: bool(pattern.search(attribute.type.rpartition(".")[2]))


def _is_population(attribute: AttributeGrowth) -> bool:
    """Whether a part or all of the members that are in use elsewhere is added in each generation."""
    is_member = _MEMBER.search(attribute.type) or _MEMBER.search(attribute.reference_path)
    elsewhere = attribute.elsewhere
    return bool(is_member) and elsewhere >= 2 and 0.2 * elsewhere <= attribute.per_unit <= 1.5 * elsewhere


RULES: tuple[tuple[LeakCause, Callable[[AttributeGrowth], bool]], ...] = (
    (CYCLES, lambda attribute: attribute.reference_path.startswith(CYCLES_HOLDER_PREFIX)),
    (DEFAULT_ARGUMENT, lambda attribute: ".__defaults__" in attribute.growth.name),
    (FIGURES, _is_called(_FIGURE)),
    (ENVIRONMENTS, _is_called(_ENVIRONMENT)),
    (EXCEPTIONS, lambda attribute: _TRACEBACK in attribute.reference_path),
    (STATE, lambda attribute: bool(_METRIC.search(attribute.growth.name.rpartition(".")[0]))),
    (POPULATION, _is_population),
    (UNBOUNDED, lambda _: True),
)


def _attribute_finding(
    attribute: AttributeGrowth, history: ExaminationHistory, context: DiagnosisContext, graphs: Growth | None
) -> Finding | None:
    """Say why an attribute grows; None where that is not known yet, or it fills up to a capacity that fits.

    `graphs`: the growth in number of all tensors that keep their graph.
    """
    driver, growth, facts = attribute.driver, attribute.growth, tuple[str, ...]()
    if driver is not None and driver.capacity is not None:
        full, headroom = driver.full_bytes, context.headroom_bytes
        if headroom is None or full is None or driver.limit_value is None or full - growth.after <= headroom:
            return None
        each, most = format_bytes(driver.bytes_per_unit), f"{driver.limit_value:,.0f}"
        cause = CANNOT_FIT
        remedy = (
            f"give {_in_code(growth.name)} a capacity below {most}, or make its items smaller (each takes {each}): "
            "indices or views of shared data instead of copies, float16 or uint8"
        )
        facts = (
            f"{driver.name}: {driver.value:,.0f} of {driver.capacity:,.0f}, {each} each",
            f"full it needs {format_bytes(full)}; the limit falls at about {most}",
        )
    else:
        # as state that is made when it is first needed, or what a function works with
        if growth.steps < SEVERAL and (attribute.has_halved or not attribute.gains_objects):
            return None
        if growth.steps < MIN_STEPS and not attribute.gains_items:  # it leads to much of the program, or is new
            return None
        if attribute.was_full and attribute.share < EXPLAINS:  # Its items become larger.
            return None
        cause = next(cause for cause, fits in RULES if fits(attribute))
        cause = _cycles(history) if cause is CYCLES else cause
        if graphs is not None and 0.0 < EXPLAINS * attribute.tensors_per_unit <= graphs.per_unit:
            cause = LOSSES
        remedy = cause.remedy.format(name=_in_code(growth.name), unit=context.unit)
        if cause is UNBOUNDED and growth.name.startswith(LOCAL_VARIABLE_PREFIX):
            cause, remedy = HELD_BY_LOCAL_OR_NATIVE, f"bound or clear {_in_code(growth.name)}"
    sizes = (
        f"{format_bytes(growth.before)} at {since_text(growth.since, context.unit)}, {format_bytes(growth.after)} now"
    )
    return cause.finding(
        growth,
        attribute.phase,
        *facts,
        f"{attribute.name} holds {sizes}",
        f"that is {attribute.share:.0%} of the growth of memory",
        type_=attribute.type,
        counts=(attribute.before, attribute.after),
        holder=attribute.reference_path,
        share=attribute.share,
        remedy=remedy,
    )


# --- growth that no attribute holds -----------------------------------------------------------------------------------


def _filling_findings(history: ExaminationHistory, context: DiagnosisContext) -> Iterator[Finding]:
    """Find arrays that were allocated at their full size and fill between two looks: their growth ends when full."""
    records = [record for record in history.records if record.filled][-3:]  # a look may miss an array, or its name
    fills = dict[str, tuple[int, int, int, float]]()  # bytes before, now, and when full; growth per unit
    for path in dict.fromkeys(path for record in records[-2:] for path in record.filled):
        seen = [record for record in records if path in record.filled]
        before, latest = seen[-2:][0], seen[-1]
        (first, _), (there, size) = before.filled[path], latest.filled[path]
        if size - there > MIN_UNFILLED_SHARE * size and there > first:
            units = latest.position - before.position
            fills[path] = first, there, size, (there - first) / (units if units > 0 else history.stride)
    if not fills:
        return
    befores, theres, sizes, rates = zip(*fills.values(), strict=True)
    size, there = sum(sizes), sum(theres)
    rest = size - there
    if rest < context.threshold_bytes:
        return
    headroom = context.headroom_bytes
    most = max(fills, key=lambda path: fills[path][2])
    growth = Growth(most, sum(befores), there, sum(rates), records[-2].position, 1)
    names = ", ".join(without_main_module(path) for path in sorted(fills, key=lambda path: -fills[path][2]))
    ends = f"{format_bytes(rest)} to come, then it ends"
    fact = f"{names}: {format_bytes(size)} allocated, {format_bytes(there)} filled; another {ends}"
    if headroom is not None and rest > headroom:
        fact = (
            f"{names}: {format_bytes(there)} of {format_bytes(size)} are in memory, {format_bytes(headroom)} are left"
        )
        yield FILLED.finding(growth, context.phase, fact, holder=most, type_=NDARRAY)
    else:
        yield FILLS.finding(growth, context.phase, fact, holder=most, type_=NDARRAY)


def _array_findings(history: ExaminationHistory, context: DiagnosisContext, memory: Growth) -> Iterator[Finding]:
    """Find arrays that were made at their full size, take memory as they are filled, and will not fit."""
    arrays, latest, headroom = history.filling_arrays(), history.comparable[-1], context.headroom_bytes
    per_unit, full = sum(array.per_unit for array in arrays), sum(latest.filled[array.name][1] for array in arrays)
    before, after = sum(array.before for array in arrays), sum(array.after for array in arrays)
    if headroom is None or full - after <= headroom or per_unit < min_reported_growth(context, memory):
        return
    most = arrays[0]
    growth = Growth(most.name, before, after, per_unit, most.since, most.steps)
    names = ", ".join(without_main_module(array.name) for array in arrays)
    in_memory = f"{format_bytes(after)} of {format_bytes(full)} are in memory, {format_bytes(headroom)} are left"
    yield FILLED.finding(growth, context.phase, f"{names}: {in_memory}", holder=most.name, type_=NDARRAY)


def _gpu_findings(history: ExaminationHistory, context: DiagnosisContext) -> Iterator[Finding]:
    """Compare the memory in use on GPUs with that of the tensors there: allocated against reserved."""
    used, latest = history.growth("gpu", lambda record: record.gpu_bytes), history.comparable[-1:]
    tensors = history.growth("cuda", lambda record: record.on_gpu)
    if used is None or used.per_unit < context.threshold_bytes or not latest[0].on_gpu:
        return
    fact = f"{format_bytes(used.after)} are used, of which tensors take {format_bytes(latest[0].on_gpu)}"
    if tensors is None or tensors.per_unit < MAX_FLAT_SHARE * used.per_unit:
        yield GPU_CACHE.finding(used, context.phase, fact, resource=ALL_GPUS)
    elif tensors.per_unit >= EXPLAINS * used.per_unit:
        (holder, _), type_ = _holder_of_tensors(history, used.since), TENSORS[0]
        yield GPU_TENSORS.finding(used, context.phase, fact, type_=type_, holder=holder, resource=ALL_GPUS)


def _unattributed_findings(
    history: ExaminationHistory, context: DiagnosisContext, memory: Growth, rest: float, in_attributes: float
) -> Iterator[Finding]:
    """Explain the `rest` of the growth: by copies of workers, shared memory, Python's objects, or C code."""
    shared = next((kind for kind in history.growing_kinds() if kind.name == "shared memory"), None)
    heap = history.heap_growth()
    graphs = _growth_of_graphs(history)
    grown, first, latest = memory.risen, history.record_at(memory.since), history.comparable[-1]
    asked_grown = max(0, (latest.asked_bytes or 0) - (first.asked_bytes or 0))  # as `cow_bytes`
    of_python = 0.0 if heap is None else heap.per_unit
    sizes = history.types_growing_in_size()
    tensors = sum(growth.per_unit for growth in sizes if growth.name in TENSORS)
    growing = history.types_growing_in_count()
    # Three heaps suffice if looks at names saw memory grow at one rate all the time: temporary objects do not.
    is_steady = history.required_rises < MIN_STEPS and len(history.comparable) > MIN_STEPS
    if versions := next((growth for growth in growing if _COMPILED.search(growth.name)), None):
        yield _counted_finding(COMPILED, context, memory, versions, "are compiled")
    elif graphs is not None and (of_python < EXPLAINS * rest or tensors >= EXPLAINS * of_python):
        yield _graph_finding(history, context, memory, graphs)
    elif (
        len(history.comparable) >= SEVERAL  # a pool of workers that has just begun copies most at first
        and (copied := latest.cow_bytes - first.cow_bytes) >= EXPLAINS * (asked_grown or grown)
    ):
        yield WORKERS.finding(memory, context.phase, f"{format_bytes(copied)} were copied in that time")
    elif shared is not None and shared.per_unit >= EXPLAINS * rest:
        yield SHARED_MEMORY.finding(shared, context.phase, f"it takes {_size(shared.before, shared.after)}")
    elif figures := [growth for growth in growing if _FIGURE.search(growth.name.rpartition(".")[2])]:
        yield _figure_finding(context, memory, figures)
    elif heap is not None and heap.per_unit - in_attributes >= EXPLAINS * rest:
        yield _object_finding(history, context, heap, {growth.name: growth for growth in growing})
    elif (
        latest.heap_bytes - first.heap_bytes < MAX_FLAT_SHARE * grown
        and (not first.kinds or latest.resident_bytes - first.resident_bytes >= EXPLAINS * grown)  # it is this process
        and (is_steady or _has_seen_several(history))
        and latest.t - first.t >= NATIVE_SECONDS
    ):
        yield _native_finding(history, context, memory)


def _graph_finding(history: ExaminationHistory, context: DiagnosisContext, memory: Growth, graphs: Growth) -> Finding:
    """Name tensors that keep their autograd graph: it saves others for a backward pass, which no attribute holds."""
    fact = f"{graphs.after:,} tensors keep their graph, {graphs.before:,} at {since_text(graphs.since, context.unit)}"
    counts, holder = (graphs.before, graphs.after), _holder_of_graphs(history)
    remedy = "" if holder else f"{GRAPHS.remedy}; or, if nothing keeps them, {CIRCLE_OF_GRADIENTS}"
    return GRAPHS.finding(memory, context.phase, fact, type_=TENSORS[0], counts=counts, holder=holder, remedy=remedy)


def _sum_of_graphs(names: ExaminationHistory, context: DiagnosisContext, memory: Growth) -> Finding | None:
    """Name what has held one tensor with its graph for a while: a sum of losses is a single tensor.

    Where the depths of graphs are known, it is the one whose graph becomes deeper.
    """
    if deepening := [one for one in names.deepening_graphs() if one.steps >= SEVERAL]:
        most = max(deepening, key=lambda one: one.per_unit)
        alike = sorted((one for one in deepening if one.per_unit >= ALIKE_RATES * most.per_unit), key=_shortest_name)
        facts = [
            f"the graph of {without_main_module(one.name)} is {one.after:,} operations long, {one.before:,} at "
            f"{since_text(one.since, context.unit)}"
            for one in alike[:3]
        ]
        return _sum_finding(DEEPENING, context, memory, alike[0].name, *facts)
    if len(names.comparable) <= SEVERAL:
        return None
    held = [set(record.graph_paths) for record in names.comparable[-SEVERAL - 1 :]]
    latest = names.comparable[-1].path_counts  # Each of several modules may have one, such as a pruned weight.
    several = {path for (type_, path), count in latest.items() if type_ in TENSORS and count > 1}
    kept = set.intersection(*held)
    paths = [path for path in kept if _BUFFER.search(path) or ("[" not in path and path not in several)]
    paths = sorted((path for path in paths if path not in names.comparable[-1].graph_depths), key=lambda p: (len(p), p))
    if not paths:
        return None
    shown = ", ".join(map(without_main_module, paths[:3]))
    fact = f"at each of the last {SEVERAL + 1} examinations it had its graph: {shown}"
    return _sum_finding(SUM_OF_GRAPHS, context, memory, paths[0], fact)


def _shortest_name(growth: Growth) -> tuple[bool, int, str]:
    """Return what names of one tensor are sorted by: attributes come before local variables, short names first."""
    return growth.name.startswith(LOCAL_VARIABLE_PREFIX), len(growth.name), growth.name


def _sum_finding(cause: LeakCause, context: DiagnosisContext, memory: Growth, path: str, *facts: str) -> Finding:
    buffer = _BUFFER.search(path)
    remedy = cause.remedy.format(name=buffer[1] if buffer is not None else _in_code(path))
    return cause.finding(memory, context.phase, *facts, type_=TENSORS[0], holder=path, remedy=remedy)


def _with_sum(found: Finding, kept: Finding) -> Finding:
    """Return what a whole heap shows, with the tensor that is known to keep its graph where that says more."""
    if found.cause == GRAPHS.name:
        return replace(found, holder=found.holder or kept.holder, remedy=found.remedy if found.holder else kept.remedy)
    is_vague = found.cause in (NATIVE.name, HELD_BY_LOCAL_OR_NATIVE.name) and found.type in ("", *TENSORS)
    return kept if is_vague else found


def _growing_list(names: ExaminationHistory, context: DiagnosisContext, memory: Growth) -> Finding | None:
    """Name the container that gains objects of a class at each look, whatever these hold: tables, models, handles."""
    latest = names.comparable[-1]
    classes = [(type_, path) for type_, path in latest.path_counts if _is_class(type_)]  # the most bytes first
    gaining = dict[str, tuple[ExaminationRecord, str, str]]()  # when the latest rises begin; a type and the path to it
    for name, (_, capacity) in latest.items.items():
        recent = [one for one in names.comparable if name in one.items][-SEVERAL - 1 :]  # a look may not come so far
        is_kept = capacity is None and not name.startswith(LOCAL_VARIABLE_PREFIX)
        is_rising = all(before.items[name][0] < after.items[name][0] for before, after in pairwise(recent))
        if is_kept and is_rising and len(recent) > SEVERAL:
            starts = tuple(name + end for end in (*ITEM_ENDS, KEY_END))
            held = next(((type_, path) for type_, path in classes if path.startswith(starts)), None)
            gaining |= {name: (recent[0], *held)} if held is not None else {}
    if not gaining:
        return None
    name = max(gaining, key=lambda gained: latest.containers.get(gained, 0))
    first, type_, path = gaining[name]
    counts, since = (first.items[name][0], latest.items[name][0]), since_text(first.position, context.unit)
    fact = f"{without_main_module(name)} has {counts[1]:,} items, {counts[0]:,} at {since}"
    cause = COMPILED if _COMPILED.search(type_) or _COMPILED.search(name) else SUSPECTED
    remedy = cause.remedy.format(name=_in_code(name), unit=context.unit)
    return cause.finding(memory, context.phase, fact, type_=type_, counts=counts, holder=path, remedy=remedy)


def _holder_of_tensors(history: ExaminationHistory, since: float) -> tuple[str, int]:
    """Return the path to an attribute that gained the most tensors, and how many; empty when there is none."""
    first, latest = history.record_at(since).path_counts, history.comparable[-1].path_counts
    risen: Counter[str] = Counter()
    for (name, path), count in latest.items():
        if name in TENSORS and not path.startswith(UNNAMED_HOLDER_PREFIX):
            risen[path] += count - first.get((name, path), 0)
    return max(risen.items(), key=lambda found: found[1], default=("", 0))


def _growth_of_graphs(history: ExaminationHistory) -> Growth | None:
    """Return how many more tensors keep their graph."""
    return history.growth("tensors", lambda record: record.with_graph)


def _holder_of_graphs(history: ExaminationHistory) -> str:
    """Return the path to an attribute that gained most of the tensors with a graph; empty when there is none."""
    graphs = _growth_of_graphs(history)
    if graphs is None:
        return ""
    path, count = _holder_of_tensors(history, graphs.since)
    return path if count >= EXPLAINS * graphs.risen else ""


def _are_kept(names: ExaminationHistory) -> bool:
    """Whether it is items of one container, or what they hold, that became more, not what a function works with."""
    holder = _holder_of_graphs(names)
    return any(items in holder for items in ITEM_ENDS) and not names.has_halved(holder.partition("[")[0])


def _figure_finding(context: DiagnosisContext, memory: Growth, figures: Sequence[Growth]) -> Finding:
    """Name figures: their canvas is C++ memory, most often more than their Python objects; pyplot's have a manager."""
    names = [figure.name.rpartition(".")[2] for figure in figures]
    most = figures[names.index("Figure")] if "Figure" in names else figures[0]
    holder = "matplotlib.pyplot" if any(name.startswith("FigureManager") for name in names) else ""
    return _counted_finding(PYPLOT_FIGURES, context, memory, most, "are open", holder=holder)


def _counted_finding(
    cause: LeakCause, context: DiagnosisContext, memory: Growth, objects: Growth, are: str, *, holder: str = ""
) -> Finding:
    """Name objects by how many they are: what they take lies outside Python's heap."""
    fact = f"{objects.after:,} {are}, {objects.before:,} at {since_text(objects.since, context.unit)}"
    counts = objects.before, objects.after
    return cause.finding(memory, context.phase, fact, type_=objects.name, counts=counts, holder=holder)


def _object_finding(
    history: ExaminationHistory, context: DiagnosisContext, heap: Growth, growing: dict[str, Growth]
) -> Finding:
    """Name the growing type whose objects no attribute holds, else the one that takes the most bytes.

    Objects of a class may hold what grows; of a builtin type, they have to be it.
    """
    first, latest = history.record_at(heap.since), history.comparable[-1]
    fact = f"Python's objects take {_size(heap.before, heap.after)}"
    least = MAX_FLAT_SHARE * heap.risen
    growing = {
        name: growth
        for name, growth in growing.items()
        if _is_class(name) or latest.sizes.get(name, 0) - first.sizes.get(name, 0) >= least
    }
    if not growing:
        return HELD_BY_LOCAL_OR_NATIVE.finding(heap, context.phase, fact)
    risen = {name: history.risen_paths(name) for name in growing}
    searched = next((record for record in reversed(history.comparable) if record.path_counts), latest)
    held = {type_ for type_, _ in searched.path_counts} & growing.keys() or growing.keys()
    name = max(held, key=lambda type_: latest.sizes.get(type_, 0))
    paths = risen[name] or {path: count for (type_, path), count in searched.path_counts.items() if type_ == name}
    paths = dict(_telling(paths, name))
    gained: Counter[str] = Counter()  # by containers: an item may hold several of the objects
    for path, number in paths.items():
        gained[_container(path)] += number
    container = max(gained, key=gained.__getitem__, default="")
    holder = max((path for path in paths if _container(path) == container), key=paths.__getitem__, default="")
    keeps = gained[container] >= EXPLAINS * (growing[name].risen if risen[name] else searched.counts.get(name, 0))
    loose = {  # with by how much they became more there, or where one look alone has looked for them, all
        (type_, path): more
        for (type_, path), count in _telling_paths(searched, growing)
        if path.startswith(_LOOSE)
        and (more := risen[type_].get(path, 0) if risen[type_] else count)
        >= EXPLAINS * (growing[type_].risen if risen[type_] else searched.counts.get(type_, 0))
    }
    keeps &= not holder.startswith((*_LOOSE, *_SOME_CONTAINER))
    if loose and not keeps:  # a class before arrays and builtin types, then where most were added, the shortest path
        name, holder = min(loose, key=lambda held: (not _is_class(held[0]), -loose[held], len(held[1])))
    counts, remedy = (growing[name].before, growing[name].after), ""
    if holder.startswith(LOCAL_VARIABLE_PREFIX):
        remedy = f"bound or clear {_in_code(holder)}"
    elif holder.startswith(_METHOD):
        name = holder.removeprefix(_METHOD).partition(".__self__")[0]
        remedy = (
            f"{name} is registered as a callback for each object, as with atexit: unregister it when the object ends"
        )
    cause = HELD_BY_LOCAL_OR_NATIVE
    if keeps:
        cause, remedy = UNBOUNDED, UNBOUNDED.remedy.format(name=_in_code(holder), unit=context.unit)
    if holder.startswith(CYCLES_HOLDER_PREFIX):
        cause = _cycles(history)
        remedy = cause.remedy.format(unit=context.unit)
    elif _TRACEBACK in holder:
        cause, remedy = EXCEPTIONS, EXCEPTIONS.remedy.format(name=_in_code(holder))
    return cause.finding(heap, context.phase, fact, type_=name, counts=counts, holder=holder, remedy=remedy)


def _cycles(history: ExaminationHistory) -> LeakCause:
    """Return the cause of garbage in circles, which a collector that runs may free at any time."""
    return UNCOLLECTED if history.comparable[-1].collector_enabled is False else CYCLES


def _container(path: str) -> str:
    """Return a path as far as the first items of a container on it."""
    ends = [place + len(items) for items in ITEM_ENDS if (place := path.find(items)) >= 0]
    return path[: min(ends)] if ends else path


def _telling_paths(record: ExaminationRecord, types: Iterable[str]) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield the paths to objects of some types that tell the most of what holds them, and how many these are."""
    for wanted in types:
        paths = {path: count for (type_, path), count in record.path_counts.items() if type_ == wanted}
        yield from (((wanted, path), count) for path, count in _telling(paths, wanted).items())


def _telling(paths: Mapping[str, int], type_: str) -> Mapping[str, int]:
    """Return the paths that begin at an attribute of another type; all where these lead to less than half as many."""
    no_names = (*_LOOSE, *_SOME_CONTAINER)
    named = {p: count for p, count in paths.items() if not (_is_of_own(p, type_) or p.startswith(no_names))}
    return named if max(named.values(), default=0) >= EXPLAINS * max(paths.values(), default=1) else paths


def _is_of_own(path: str, type_: str) -> bool:
    """Whether a path to objects of a type begins at one of these."""
    return path == type_ or path.startswith((f"{type_}.", f"{type_}["))


def _is_class(type_: str) -> bool:
    """Whether objects of a type may hold much more than themselves: neither arrays nor of a builtin type."""
    return "." in type_ and type_ not in ARRAY_TYPES


def _kept_finding(
    history: ExaminationHistory, names: ExaminationHistory, context: DiagnosisContext, memory: Growth
) -> Finding | None:
    """Name a library's objects that another's container keeps, ever more of them, as memory grows outside the heap."""
    # of arrays, NumPy's numbers and weak references nothing is outside of what was measured
    counts = history.comparable[-1].counts
    measured = {*ARRAY_TYPES, *(name for name in counts if _package(name) in ("numpy", "weakref"))}
    rising = {growth.name: growth for growth in history.types_growing_in_count() if growth.name not in measured}
    held = [
        (path, type_)
        for known in (history, names)
        for record in known.comparable[-1:]
        for (type_, path), count in record.path_counts.items()
        if (most := rising.get(type_)) is not None
        and (count >= EXPLAINS * most.after or known.risen_paths(type_).get(path, 0) >= EXPLAINS * most.risen)
        and "." in type_
    ]
    kept = [
        (len(path), path, type_)
        for path, type_ in held
        if "[" in path
        and not path.startswith((UNNAMED_HOLDER_PREFIX, CYCLES_HOLDER_PREFIX))
        and _package(path) != _package(type_)  # what a library keeps of its own is its bookkeeping
    ]
    rest = [
        (
            -rising[type_].risen,
            _is_of_own(path, type_),
            path,
            type_,
        )  # what holds the first of those that hold each other
        for path, type_ in held
        if not path.startswith((CYCLES_HOLDER_PREFIX, "__main__."))  # what the program keeps of its own is measured
    ]
    if not kept and not rest:
        return None
    *_, path, type_ = min(kept) if kept else min(rest)
    cause, most = HELD_BY_LOCAL_OR_NATIVE if path.startswith(UNNAMED_HOLDER_PREFIX) else KEPT, rising[type_]
    facts = f"{most.after:,} are kept, {most.before:,} at {since_text(most.since, context.unit)}", f"held by {path}"
    remedy = cause.remedy.format(name=_in_code(path))
    return cause.finding(
        memory, context.phase, *facts, type_=type_, counts=(most.before, most.after), holder=path, remedy=remedy
    )


def _package(name: str) -> str:
    return name.partition(".")[0].lstrip("_")


def _in_code(path: str) -> str:
    """Name the attribute or variable that a path begins at, as its owner looks for it: `kept in main`."""
    if not path.startswith(LOCAL_VARIABLE_PREFIX):
        return without_main_module(path.partition("[")[0])
    function, _, variable = path.removeprefix(LOCAL_VARIABLE_PREFIX).partition(": ")
    return f"{variable.partition('[')[0]} in {function}"


def _size(before: int, after: int) -> str:
    return f"{format_bytes(after)}, {format_bytes(after - before, signed=True)} in that time"


def _native_finding(history: ExaminationHistory, context: DiagnosisContext, memory: Growth) -> Finding:
    """Name the allocator where freed Python objects left as much as memory grows by, a model of trees, or C code."""
    first, latest = history.record_at(memory.since).heap_bytes, history.comparable[-1].heap_bytes
    fact = f"Python's objects take {_size(first, latest)}"
    left = [
        freed
        for freed in history.freed_within_generation
        if freed.since + freed.units >= memory.since
        and freed.kept_bytes >= max(EXPLAINS * freed.bytes, NEARLY * memory.per_unit * (freed.units or history.stride))
    ]
    if len(left) >= MIN_LEFT:
        freed = left[-1]
        kept = f"{format_bytes(freed.bytes)} of them went, and memory kept {format_bytes(freed.kept_bytes)} of that"
        return FRAGMENTS.finding(memory, context.phase, fact, kept)
    growing = {growth.name for growth in history.types_growing_in_count()}  # Of several models, more are kept.
    booster = next(
        (name for name in history.comparable[-1].counts if _BOOSTER.search(name) and name not in growing), ""
    )
    return (MODEL if booster else NATIVE).finding(memory, context.phase, fact, type_=booster)
