"""The values of the metrics at a scrape, and their text in the two formats that Prometheus reads.

docs/metrics.md is the contract: an unknown value is absent, never 0 or -1. No other module imports prometheus_client,
and nothing imports this one before the first scrape: prometheus_client imports http.server and ssl.
"""

from __future__ import annotations

import math
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

import memwatch
from memwatch.core.examination import Diagnosis
from memwatch.core.interfaces import Clock
from memwatch.core.measurements import CgroupMemory, GpuMemory, RankMemory, Sample, TreeMemory
from memwatch.core.snapshot import ResourceView, Severity, Snapshot, Verdict, WatchState
from memwatch.core.text_and_units import printable
from memwatch.outputs.metrics import metric_registry as f
from memwatch.outputs.metrics.metric_registry import MetricFamily
from memwatch.outputs.text.formatting import last_complete, phase_totals
from memwatch.system import package_data

TEXT_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# These bounds (chosen) keep a scrape below 1 MB, whatever names a trainer's log and types have.
MOST_SERIES = 256  # series of one metric
MOST_LOG_NAMES = 64  # gauges and phases that the log names
LABEL_LENGTH = 120  # characters of a label value

WatchedTrainer = tuple[Mapping[str, str], Snapshot, Mapping[str, int]]  # its labels, its state, counts of its events
LabelledValue = tuple[Sequence[str], float | None]  # label values, value; None is unknown
Value = tuple[MetricFamily, float | None]  # the value of a family without labels; None is unknown


class MetricsCollector(Collector):
    """Renders what /metrics answers: the snapshot that `read` returns at the time of the scrape.

    Its registry is its own: prometheus_client's global one would add series about Python and its garbage collector.
    """

    def __init__(self, read: Callable[[], Snapshot | None], counts: Mapping[str, int], clock: Clock) -> None:
        self._read, self._counts, self._clock = read, counts, clock
        python = ".".join(map(str, sys.version_info[:3]))
        self._build = (memwatch.__version__, package_data.build().get("commit", ""), python)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Returns the metrics and their content type: OpenMetrics where `accept` names it, else plain text."""
        content_types = (part.partition(";")[0].strip().lower() for part in accept.split(","))
        if "application/openmetrics-text" in content_types:
            return openmetrics.generate_latest(self._registry), OPENMETRICS_CONTENT_TYPE  # type: ignore[no-untyped-call]
        return generate_latest(self._registry), TEXT_CONTENT_TYPE

    def collect(self) -> Iterator[Metric]:
        """Yields every metric that is known now; of a trainer that has ended, only that it is down and why."""
        began = time.perf_counter()
        snapshot = self._read()
        yield from self._own_metrics()
        yield from event_metrics(self._counts)
        if snapshot is not None:
            yield from watch_metrics(snapshot, self._clock.now())
        yield from _values((f.SCRAPE_DURATION, time.perf_counter() - began))

    def _own_metrics(self) -> Iterator[Metric]:
        yield from _values(*_process())
        yield from _rows(f.BUILD, [(self._build, 1.0)])


class NodeMetricsCollector(MetricsCollector):
    """The same for all watches of a node, with labels that tell these apart."""

    def __init__(self, read: Callable[[], Iterable[WatchedTrainer]], counts: Mapping[str, int], clock: Clock) -> None:
        super().__init__(lambda: None, counts, clock)
        self._read_all = read

    def collect(self) -> Iterator[Metric]:
        """Yields what is known of memwatch and of the trainers, each metric once."""
        began = time.perf_counter()
        trainers = list(self._read_all())
        yield from self._own_metrics()
        yield from event_metrics(self._counts, f.SERVER_EVENT_FAMILIES)
        yield from _values((f.NODE_TRAINERS, len(trainers)))
        merged: dict[str, Metric] = {}
        for labels, snapshot, counts in trainers:
            for metric in (*event_metrics(counts, f.WATCH_EVENT_FAMILIES), *watch_metrics(snapshot, self._clock.now())):
                whole = merged.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                for sample in metric.samples:
                    whole.add_sample(sample.name, {**labels, **sample.labels}, sample.value)
        yield from merged.values()
        yield from _values((f.SCRAPE_DURATION, time.perf_counter() - began))


def event_metrics(counts: Mapping[str, int], families: Iterable[MetricFamily] = f.EVENT_FAMILIES) -> Iterator[Metric]:
    """Yields how often each event occurred."""
    yield from _values(*((family, counts.get(family.event, 0)) for family in families))


def watch_metrics(snapshot: Snapshot, now: float) -> Iterator[Metric]:
    """Yields every metric of one watch; of a trainer that has ended, only that it is down and why."""
    yield from _watch(snapshot, now)
    if snapshot.up:
        yield from _target(snapshot)
        yield from _memory(snapshot.resources)
        yield from _growth(snapshot.resources)
        yield from _forecasts(snapshot.resources)
        if snapshot.sample is not None:
            yield from _sample(snapshot.sample)
        if (beside := snapshot.neighbours) is not None:
            yield from _rows(f.CGROUP_OTHERS, [((beside.cgroup,), beside.others_bytes)])
        if snapshot.diagnosis is not None:
            yield from _diagnosis(snapshot.diagnosis)
        yield from _expectations(snapshot)


# --- known values, as metrics ---------------------------------------------------------------------------------------


def _rows(family: MetricFamily, rows: Iterable[LabelledValue]) -> Iterator[Metric]:
    """Yields the metric if any value is known: of equal labels the first row, and at most MOST_SERIES series."""
    known: dict[tuple[str, ...], float] = {}
    for raw, number in rows:
        if number is not None and math.isfinite(number) and len(known) < MOST_SERIES:
            known.setdefault(tuple(printable(label, LABEL_LENGTH) for label in raw), float(number))
    if known:
        metric = Metric(family.name, family.text, family.kind)
        for labels, number in known.items():
            metric.add_sample(family.sample_name, dict(zip(family.labels, labels, strict=True)), number)
        yield metric


def _values(*values: Value) -> Iterator[Metric]:
    """Yields the metrics that have no labels and whose values are known."""
    for family, value in values:
        yield from _rows(family, [((), value)])


# --- memwatch itself ------------------------------------------------------------------------------------------------


def _process() -> Sequence[Value]:
    """Values of memwatch's own process; none without /proc."""
    try:
        fields = _read("/proc/self/stat").rpartition(b") ")[2].split()
        descriptors = len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208 - without that of the listing
        ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
        virtual, resident, start = int(fields[20]), int(fields[21]) * page, _boot_time() + int(fields[19]) / ticks
    except (OSError, ValueError, IndexError, StopIteration):
        return ()
    max_fds = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        (f.PROCESS_CPU, time.process_time()),
        (f.PROCESS_RESIDENT, resident),
        (f.PROCESS_VIRTUAL, virtual),
        (f.PROCESS_START, start),
        (f.PROCESS_OPEN_FDS, descriptors),
        (f.PROCESS_MAX_FDS, max_fds if max_fds >= 0 else None),
    )


@cache
def _boot_time() -> float:
    """Unix time of the boot, read once: the kernel adds up all interrupts for this file, which takes 0.1 ms."""
    return next(float(line.split()[1]) for line in _read("/proc/stat").splitlines() if line.startswith(b"btime "))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


# --- the watch and its trainer --------------------------------------------------------------------------------------


def _watch(snapshot: Snapshot, now: float) -> Iterator[Metric]:
    """Metrics of the watch, whether the trainer lives or not."""
    yield from _values((f.TARGET_UP, snapshot.up), (f.ARMED, snapshot.unarmed is None))
    yield from _rows(f.SEVERITY, [((one.value,), one is snapshot.severity) for one in Severity])
    yield from _rows(f.STATE, [((state.value,), state is snapshot.state) for state in WatchState])
    yield from _rows(f.SOURCE_UP, [((source.source,), source.ok) for source in snapshot.sources])
    if snapshot.exited is not None:
        end = snapshot.exited
        yield from _rows(f.TARGET_EXIT, [((end.cause.value, _text(end.exit_code), end.signal or ""), 1.0)])
        yield from _values((f.TARGET_EXIT_TIMESTAMP, end.t))
    elif snapshot.sample_t is not None:
        yield from _values((f.SAMPLE_AGE, max(0.0, now - snapshot.sample_t)))


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


def _expectations(snapshot: Snapshot) -> Iterator[Metric]:
    known = [one for one in snapshot.expectations if one.met is not None]
    yield from _rows(f.EXPECTATION_MET, [((one.text,), one.met) for one in known])
    yield from _rows(f.EXPECTATION_BREACHES, [((one.text,), one.breaches) for one in known])


def _target(snapshot: Snapshot) -> Iterator[Metric]:
    pid = str(snapshot.target.pid) if snapshot.target else ""
    yield from _rows(f.TARGET, [((pid, snapshot.command, snapshot.run_id), 1.0)])
    if (run := snapshot.run) is not None:
        yield from _rows(f.RUN, [((run.run_id, run.node, _text(run.rank), run.user), 1.0)])
        yield from _values((f.RUN_NODES, run.nodes))
    yield from _values(
        (f.ATTEMPT, snapshot.attempt),
        (f.WATCH_START, snapshot.started_t),
        (f.GENERATION, snapshot.generation),
        (f.GENERATIONS_PLANNED, snapshot.total),
        (f.LAST_CHECKPOINT, snapshot.checkpoint_t),
        (f.PACE, snapshot.pace_seconds),
        (f.WARN_HORIZON, snapshot.warn_horizon_seconds),
    )
    yield from _rows(f.CHECKPOINT_SECONDS, [((snapshot.checkpoint_origin,), snapshot.checkpoint_seconds)])
    if snapshot.phase is not None:
        yield from _rows(f.PHASE, [((snapshot.phase,), 1.0)])
    gauges = snapshot.gauges[:MOST_LOG_NAMES]
    yield from _rows(f.LOG_VALUE, [((gauge.name,), gauge.value) for gauge in gauges])
    yield from _rows(f.LOG_CAPACITY, [((gauge.name,), gauge.capacity) for gauge in gauges])


# --- memory and forecast, by resource -------------------------------------------------------------------------------

_TREND_FIELDS = (
    (f.GROWTH_PER_GENERATION, "growth_per_generation"),
    (f.GROWTH_PER_SECOND, "growth_per_second"),
    (f.TREND_CONFIDENCE, "confidence"),
)
_FORECAST_FIELDS = (
    (f.OOM_ETA, "eta_seconds"),
    (f.OOM_ETA_LOW, "eta_low_seconds"),
    (f.OOM_ETA_HIGH, "eta_high_seconds"),
    (f.OOM_GENERATION, "generation"),
    (f.OOM_GENERATION_LOW, "generation_low"),
    (f.OOM_GENERATION_HIGH, "generation_high"),
    (f.RUN_FINISHES, "finishes"),
)


_NEEDED_FIELDS = ((f.NEEDED, "bytes"), (f.NEEDED_LOW, "low_bytes"), (f.NEEDED_HIGH, "high_bytes"))


def _each(family: MetricFamily, views: Sequence[ResourceView], values: Iterable[float | None]) -> Iterator[Metric]:
    """Yields a metric with one value per resource."""
    return _rows(family, zip(((view.usage.resource,) for view in views), values, strict=True))


def _memory(views: Sequence[ResourceView]) -> Iterator[Metric]:
    limits = [(view.usage.resource, view.usage.limit) for view in views if view.usage.limit is not None]
    yield from _each(f.MEMORY_USED, views, [view.usage.used_bytes for view in views])
    yield from _rows(f.MEMORY_LIMIT, [((name, limit.origin), limit.bytes) for name, limit in limits])
    yield from _rows(f.MEMORY_HEADROOM, [((name,), limit.headroom_bytes) for name, limit in limits])
    yield from _each(f.MEMORY_PEAK, views, [view.peak_bytes for view in views])
    yield from _each(f.MEMORY_BASELINE, views, [view.baseline_bytes for view in views])


def _growth(views: Sequence[ResourceView]) -> Iterator[Metric]:
    for family, name in _TREND_FIELDS:
        yield from _each(family, views, [getattr(view.trend, name, None) for view in views])
    ended = [(view.usage.resource, row) for view in views if (row := last_complete(view)) is not None]
    took = next((row.end_t - row.start_t for _, row in ended if row.end_t is not None), None)
    yield from _values((f.GENERATION_DURATION, took))
    yield from _rows(f.GENERATION_DELTA, [((name,), row.delta_bytes) for name, row in ended])
    yield from _rows(f.GENERATION_PEAK, [((name,), row.peak_bytes) for name, row in ended])
    totals = [
        ((view.usage.resource, phase), total)
        for view in views
        for phase, total in islice(phase_totals(view.generations).items(), MOST_LOG_NAMES)
    ]
    yield from _rows(f.PHASE_GROWTH, totals)


def _forecasts(views: Sequence[ResourceView]) -> Iterator[Metric]:
    verdicts = [((view.usage.resource, one.value), one is view.verdict) for view in views for one in Verdict]
    yield from _rows(f.VERDICT, verdicts)
    yield from _each(f.WARNED, views, [view.warned for view in views])
    for family, name in _FORECAST_FIELDS:
        yield from _each(family, views, [getattr(view.forecast, name, None) for view in views])
    for family, name in _NEEDED_FIELDS:
        yield from _each(family, views, [getattr(view.needed, name, None) for view in views])
    yield from _each(f.INTERRUPT_ETA, views, [getattr(view.planned, "seconds", None) for view in views])


# --- the sample             -----------------------------------------------------------------------------------------


def _sample(sample: Sample) -> Iterator[Metric]:
    if sample.tree is not None:
        yield from _tree(sample.tree)
    if sample.cgroup is not None:
        yield from _cgroup(sample.cgroup)
    if (host := sample.host) is not None:
        yield from _values(
            (f.HOST_MEMORY, host.total_bytes),
            (f.HOST_AVAILABLE, host.available_bytes),
            (f.HOST_SWAP_FREE, host.swap_free_bytes),
        )
    yield from _gpus(sample.gpus)
    if sample.tree is not None and sample.tree.ranks:
        yield from _ranks(sample.tree.ranks, sample.gpus)


def _ranks(ranks: Sequence[RankMemory], gpus: Sequence[GpuMemory]) -> Iterator[Metric]:
    yield from _rows(f.RANK, [((str(one.rank), str(one.local_rank), str(one.pid)), 1.0) for one in ranks])
    yield from _rows(f.RANK_USED, [((str(one.rank),), one.used_bytes) for one in ranks])
    users = [(str(one.rank), gpu.resource) for one in ranks for gpu in gpus if not set(one.pids).isdisjoint(gpu.pids)]
    yield from _rows(f.RANK_GPU, [(user, 1.0) for user in users])


def _tree(tree: TreeMemory) -> Iterator[Metric]:
    cost = tree.survey_cost
    yield from _rows(f.TREE_USED, [((tree.accounting,), tree.used_bytes)])
    yield from _values(
        (f.TREE_PROCESSES, tree.processes),
        (f.TREE_ROOT_RSS, tree.rss_bytes),
        (f.TREE_ROOT_VIRTUAL, tree.virtual_bytes),
        (f.TREE_ANON, tree.anon_bytes),
        (f.TREE_FILE, tree.file_bytes),
        (f.TREE_SHMEM, tree.shmem_bytes),
        (f.TREE_SWAP, tree.swap_bytes),
        (f.TREE_ERROR, tree.error_bytes),
        (f.TREE_COW, tree.cow_bytes),
        (f.TREE_COW_GROWTH, tree.cow_bytes_per_second),
        (f.TREE_MEMBERS, tree.member_processes),
        (f.TREE_MEMBER_BYTES, tree.member_bytes),
        (f.SURVEY_VISITS, cost.visits),
        (f.SURVEY_REFUSED, cost.refused),
        (f.SURVEY_PAGES, cost.pages),
        (f.SURVEY_CPU, cost.cpu_seconds),
    )


def _cgroup(cgroup: CgroupMemory) -> Iterator[Metric]:
    levels = cgroup.levels
    yield from _rows(f.CGROUP_USAGE, [((level.path,), level.usage_bytes) for level in levels])
    yield from _rows(f.CGROUP_RECLAIMABLE, [((level.path,), level.reclaimable_bytes) for level in levels])
    yield from _rows(f.CGROUP_LIMIT, [((level.path,), level.limit_bytes) for level in levels])
    yield from _values((f.CGROUP_SWAP, cgroup.swap_bytes), (f.CGROUP_OOM_KILLS, cgroup.oom_kills))


def _gpus(gpus: Sequence[GpuMemory]) -> Iterator[Metric]:
    yield from _rows(f.GPU, [((gpu.resource, gpu.uuid, gpu.name), 1.0) for gpu in gpus])
    yield from _rows(f.GPU_USED, [((gpu.resource, gpu.uuid, gpu.attribution), gpu.used_bytes) for gpu in gpus])
    yield from _rows(f.GPU_DEVICE_USED, [((gpu.resource, gpu.uuid), gpu.device_used_bytes) for gpu in gpus])
    yield from _rows(f.GPU_DEVICE_MEMORY, [((gpu.resource, gpu.uuid), gpu.total_bytes) for gpu in gpus])


def _diagnosis(known: Diagnosis) -> Iterator[Metric]:
    yield from _values((f.EXAMINATIONS, known.examinations), (f.EXAMINATION_CPU, known.cpu_seconds))
    found = [((one.cause, one.resource, one.phase or "", one.type, one.holder), one) for one in known.findings]
    yield from _rows(f.FINDING_GROWTH, [(labels, one.growth.per_unit) for labels, one in found])
    yield from _rows(f.FINDING_CONFIDENCE, [(labels, one.confidence) for labels, one in found])
    yield from _rows(f.PYTHON_OBJECTS, [((one.name,), one.after) for one in known.types[:MOST_LOG_NAMES]])
    latest = known.latest
    yield from _rows(f.MEMORY_KIND, [((one.kind,), one.resident_bytes) for one in latest.kinds or ()])
    if (census := latest.census) is not None:
        sizes = [one.bytes for one in census.types if one.bytes is not None]
        yield from _values((f.PYTHON_BYTES, sum(sizes) if sizes else None))
        held = [((one.path,), one.bytes) for one in (*census.tracked, *census.containers)]
        yield from _rows(f.ATTRIBUTE_BYTES, held)
        yield from _rows(f.TORCH_STORAGE, [((one.device,), one.bytes) for one in census.storages])
