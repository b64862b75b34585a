"""The snapshot as Prometheus metrics. docs/metrics.md is the contract; absent means unknown, never 0 or -1."""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice

import memwatch
from memwatch.core.examination import Diagnosis
from memwatch.core.model import CgroupMemory, ResourceView, Sample, Snapshot, State, SurveyCost, Trend, Verdict
from memwatch.core.text import printable
from memwatch.interfaces import Clock
from memwatch.outputs.exposition import Metric, negotiate
from memwatch.outputs.figures import last_complete, phase_totals

MOST_SERIES = 256  # of one metric
MOST_LOG_NAMES = 64  # a log cannot invent gauges or phases without end
LABEL_LENGTH = 120

Row = tuple[Sequence[str], float | None]  # label values, value; None is not shown


class Exposition:
    """Renders what /metrics answers: the snapshot that `read` gives at the time of the scrape."""

    def __init__(
        self, read: Callable[[], Snapshot | None], counts: Mapping[str, int], clock: Clock, proc: str = "/proc"
    ) -> None:
        self._read, self._counts, self._clock, self._proc = read, counts, clock, proc

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition and its content type: OpenMetrics where `accept` asks for it, else the plain text format."""
        encode, content_type = negotiate(accept)
        return encode(self._collect()), content_type

    def _collect(self) -> Iterator[Metric]:
        """Every metric that is known now; of a dead target only that it is down, and why."""
        began = time.perf_counter()
        snapshot = self._read()
        yield from _process(self._proc)
        yield _info("memwatch_build", "The version of memwatch.", {"version": memwatch.__version__})
        yield from _counters(self._counts)
        if snapshot is not None:
            yield from _watch(snapshot, self._clock.now())
            if snapshot.up:
                yield from _target(snapshot)
                yield from _resources(snapshot.resources)
                yield from _sample(snapshot.sample)
                yield from _diagnosis(snapshot.diagnosis)
                yield from _expectations(snapshot)
        took = time.perf_counter() - began
        yield from _one("memwatch_scrape_duration_seconds", "Time to collect this scrape's metrics.", took)


def _process(proc: str) -> Iterator[Metric]:
    """memwatch's own process, by the names that every exporter uses; nothing where there is no /proc."""
    try:
        fields = _read(f"{proc}/self/stat").rpartition(b") ")[2].split()
        descriptors = len(os.listdir(f"{proc}/self/fd")) - 1  # noqa: PTH208 - without that of the listing
        ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
        virtual, resident, start = int(fields[20]), int(fields[21]) * page, _booted(proc) + int(fields[19]) / ticks
    except (OSError, ValueError, IndexError, StopIteration):
        return
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for name, text, value in (
        ("virtual_memory_bytes", "Virtual memory size in bytes.", virtual),
        ("resident_memory_bytes", "Resident memory size in bytes.", resident),
        ("start_time_seconds", "Start time of the process since unix epoch in seconds.", start),
        ("open_fds", "Number of open file descriptors.", descriptors),
        ("max_fds", "Maximum number of open file descriptors.", most if most >= 0 else None),
    ):
        yield from _one(f"process_{name}", text, value)
    yield _counter("process_cpu_seconds", "Total user and system CPU time spent in seconds.", time.process_time())


@cache
def _booted(proc: str) -> float:
    """Unix time, from a file that counts every interrupt to tell it: 0.1 ms."""
    return next(float(line.split()[1]) for line in _read(f"{proc}/stat").splitlines() if line.startswith(b"btime "))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _one(name: str, text: str, value: float | None) -> Iterator[Metric]:
    return _gauge(name, text, (), [((), value)])


def _gauge(name: str, text: str, labels: tuple[str, ...], rows: Iterable[Row]) -> Iterator[Metric]:
    """One metric, if anything of it is known: equal label sets once, at most MOST_SERIES of them."""
    known: dict[tuple[str, ...], float] = {}
    for raw, number in rows:
        if number is not None and math.isfinite(number) and len(known) < MOST_SERIES:
            known.setdefault(tuple(printable(label, LABEL_LENGTH) for label in raw), float(number))
    if known:
        yield Metric("gauge", name, text, labels, tuple(known.items()))


def _info(name: str, text: str, labels: Mapping[str, object]) -> Metric:
    values = tuple(printable(str(value), LABEL_LENGTH) for value in labels.values())
    return Metric("info", name, text, tuple(labels), ((values, 1.0),))


def _counter(name: str, text: str, value: float) -> Metric:
    return Metric("counter", name, text, (), (((), float(value)),))


_COUNTERS = {
    "tick": ("memwatch_ticks", "Turns of memwatch's loop."),
    "warn": ("memwatch_warnings", "Warnings that memory will run out."),
    "interrupt": ("memwatch_interrupts", "Interrupts decided; in a dry run no signal is sent."),
    "saved": ("memwatch_saves", "Interrupts after which a clean checkpoint was seen."),
    "escalated": ("memwatch_escalations", "Stronger signals, after an interrupt had no effect."),
    "breach": ("memwatch_breaches", "Expectations that began to be broken."),
    "finding": ("memwatch_findings", "Causes of growth found."),
    "source_failed": ("memwatch_source_failures", "Times that a source began to fail."),
    "page_failed": ("memwatch_page_failures", "Answers of the HTTP server that failed by a bug."),
    "refused": ("memwatch_web_refusals", "HTTP requests without a right password, or too many of them."),
    "handshake_failed": ("memwatch_web_handshake_failures", "Connections on which TLS came to nothing."),
}


def _counters(counts: Mapping[str, int]) -> Iterator[Metric]:
    for event, (name, text) in _COUNTERS.items():
        yield _counter(name, text, counts.get(event, 0))


def _watch(snapshot: Snapshot, now: float) -> Iterator[Metric]:
    """What is true of the watch whether the trainer lives or not."""
    yield from _one("memwatch_target_up", "1 while the watched trainer runs.", float(snapshot.up))
    yield from _one("memwatch_armed", "1 while an interrupt would reach the trainer.", float(snapshot.unarmed is None))
    states = ((state.value,) for state in State)
    rows = [(label, float(label[0] == snapshot.state.value)) for label in states]
    yield from _gauge("memwatch_state", "1 for the state that memwatch is in.", ("state",), rows)
    yield from _gauge(
        "memwatch_source_up",
        "1 while a source can be read.",
        ("source",),
        [((source.source,), float(source.ok)) for source in snapshot.sources],
    )
    if snapshot.exited is not None:
        end = snapshot.exited
        labels = {
            "cause": end.cause.value,
            "exit_code": "" if end.exit_code is None else end.exit_code,
            "signal": end.signal or "",
        }
        yield _info("memwatch_target_exit", "How the trainer ended.", labels)
        yield from _one("memwatch_target_exit_timestamp_seconds", "Unix time at which it was gone.", end.t)
    elif snapshot.sample_t is not None:
        age = max(0.0, now - snapshot.sample_t)
        yield from _one("memwatch_sample_age_seconds", "Time since the newest sample, at the scrape.", age)


def _expectations(snapshot: Snapshot) -> Iterator[Metric]:
    known = [one for one in snapshot.expectations if one.met is not None]
    met = [((one.text,), float(one.met is True)) for one in known]
    yield from _gauge("memwatch_expectation_met", "1 while a run is as expected.", ("expectation",), met)
    breaches = [((one.text,), one.breaches) for one in known]
    text = "Looks at which an expectation was broken."
    yield from _gauge("memwatch_expectation_breaches", text, ("expectation",), breaches)


def _target(snapshot: Snapshot) -> Iterator[Metric]:
    target = snapshot.target
    labels = {"pid": target.pid if target else "", "command": snapshot.command, "run_id": snapshot.run_id}
    yield _info("memwatch_target", "The watched trainer.", labels)
    for name, text, value in (
        ("memwatch_attempt", "Restarts of the trainer within this run.", snapshot.attempt),
        ("memwatch_watch_start_timestamp_seconds", "Unix time at which this run's watch began.", snapshot.started_t),
        ("memwatch_generation", "The generation that the log is in, as the program counts.", snapshot.generation),
        ("memwatch_generations_planned", "How many generations the run will have.", snapshot.total),
        ("memwatch_last_checkpoint_timestamp_seconds", "Unix time of the last checkpoint.", snapshot.checkpoint_t),
        ("memwatch_pace_seconds", "Time to the next sample, at most.", snapshot.pace_seconds),
    ):
        yield from _one(name, text, value)
    yield from _gauge(
        "memwatch_checkpoint_seconds",
        "Time that a checkpoint is taken to need; origin says why.",
        ("origin",),
        [((snapshot.checkpoint_origin,), snapshot.checkpoint_seconds)],
    )
    if snapshot.phase is not None:
        yield _info("memwatch_phase", "The phase that the log is in.", {"phase": snapshot.phase})
    gauges = snapshot.gauges[:MOST_LOG_NAMES]
    levels = [((gauge.name,), gauge.value) for gauge in gauges]
    yield from _gauge("memwatch_log_value", "A level that the log prints, such as a buffer's.", ("name",), levels)
    room = [((gauge.name,), gauge.capacity) for gauge in gauges]
    yield from _gauge("memwatch_log_capacity", "The most that a level in the log can reach.", ("name",), room)


def _resources(views: Sequence[ResourceView]) -> Iterator[Metric]:
    yield from _memory(views)
    yield from _growth(views)
    yield from _forecasts(views)


def _each(views: Sequence[ResourceView], value: Callable[[ResourceView], float | None]) -> list[Row]:
    return [((view.usage.resource,), value(view)) for view in views]


def _memory(views: Sequence[ResourceView]) -> Iterator[Metric]:
    limits = [(view.usage.resource, view.usage.limit) for view in views if view.usage.limit is not None]
    resource = ("resource",)
    used = _each(views, lambda view: view.usage.used_bytes)
    yield from _gauge("memwatch_memory_used_bytes", "Memory that the trainer uses.", resource, used)
    yield from _gauge(
        "memwatch_memory_limit_bytes",
        "The limit that is met first.",
        ("resource", "origin"),
        [((name, limit.origin), limit.bytes) for name, limit in limits],
    )
    yield from _gauge(
        "memwatch_memory_headroom_bytes",
        "What can still be allocated; negative when the limit is exceeded.",
        resource,
        [((name,), limit.headroom_bytes) for name, limit in limits],
    )
    peaks = _each(views, lambda view: view.peak_bytes)
    yield from _gauge("memwatch_memory_peak_bytes", "The most that was used.", resource, peaks)
    baselines = _each(views, lambda view: view.baseline_bytes)
    yield from _gauge("memwatch_memory_baseline_bytes", "First reading of this attempt.", resource, baselines)


def _growth(views: Sequence[ResourceView]) -> Iterator[Metric]:
    resource = ("resource",)

    def trend(value: Callable[[Trend], float | None]) -> list[Row]:
        return _each(views, lambda view: None if view.trend is None else value(view.trend))

    for name, text, rows in (
        (
            "memwatch_growth_bytes_per_generation",
            "Growth by generation.",
            trend(lambda t: t.growth_per_generation),
        ),
        ("memwatch_growth_bytes_per_second", "Growth by time.", trend(lambda t: t.growth_per_second)),
        ("memwatch_trend_confidence_ratio", "How well the trend explains the samples.", trend(lambda t: t.confidence)),
    ):
        yield from _gauge(name, text, resource, rows)
    ended = [(view.usage.resource, row) for view in views if (row := last_complete(view)) is not None]
    took = next((row.end_t - row.start_t for _, row in ended if row.end_t is not None), None)
    yield from _one("memwatch_generation_duration_seconds", "Length of the newest generation that has ended.", took)
    deltas = [((name,), float(row.delta_bytes)) for name, row in ended]
    yield from _gauge("memwatch_generation_delta_bytes", "Growth in the newest ended generation.", resource, deltas)
    peaks = [((name,), float(row.peak_bytes)) for name, row in ended]
    yield from _gauge("memwatch_generation_peak_bytes", "Peak of the newest ended generation.", resource, peaks)
    totals = [
        ((view.usage.resource, phase), float(total))
        for view in views
        for phase, total in islice(phase_totals(view.generations).items(), MOST_LOG_NAMES)
    ]
    text = "Growth within a phase, over all generations that are kept."
    yield from _gauge("memwatch_phase_growth_bytes", text, ("resource", "phase"), totals)


def _forecasts(views: Sequence[ResourceView]) -> Iterator[Metric]:
    rows: list[Row] = [
        ((view.usage.resource, verdict.value), float(verdict is view.verdict)) for view in views for verdict in Verdict
    ]
    text = "1 for what the growth looks like."
    yield from _gauge("memwatch_verdict", text, ("resource", "verdict"), rows)
    for name, text, attribute in (
        ("memwatch_oom_eta_seconds", "Time until the limit is met.", "eta_seconds"),
        ("memwatch_oom_eta_low_seconds", "5 % of the outcomes are earlier.", "eta_low_seconds"),
        ("memwatch_oom_eta_high_seconds", "5 % of the outcomes are later.", "eta_high_seconds"),
        ("memwatch_oom_generation", "The generation in which the limit is met.", "generation"),
        ("memwatch_oom_generation_low", "5 % of the outcomes are earlier.", "generation_low"),
        ("memwatch_oom_generation_high", "5 % of the outcomes are later.", "generation_high"),
        ("memwatch_run_finishes", "1 if the last generation comes before the limit.", "finishes"),
    ):
        known = [((view.usage.resource,), getattr(view.forecast, attribute, None)) for view in views]
        yield from _gauge(name, text, ("resource",), known)


def _sample(sample: Sample | None) -> Iterator[Metric]:
    if sample is None:
        return
    if (tree := sample.tree) is not None:
        yield from _gauge(
            "memwatch_process_tree_used_bytes",
            "Memory of the trainer and its descendants, shared pages once.",
            ("accounting",),
            [((tree.accounting,), tree.used_bytes)],
        )
        for name, text, value in (
            ("processes", "Processes of the trainer's tree.", tree.processes),
            ("root_rss_bytes", "Resident memory of the trainer's own process.", tree.rss_bytes),
            ("anon_bytes", "Anonymous memory of the tree.", tree.anon_bytes),
            ("file_bytes", "Resident file pages of the tree.", tree.file_bytes),
            ("shmem_bytes", "Shared memory of the tree.", tree.shmem_bytes),
            ("swap_bytes", "Swapped memory of the tree.", tree.swap_bytes),
            ("error_bytes", "Standard error of the tree's memory, by samples of pages.", tree.error_bytes),
            ("cow_bytes", "Inherited pages that were copied since a fork, as far as seen.", tree.cow_bytes),
            ("cow_bytes_per_second", "Growth of the copied pages.", tree.cow_bytes_per_second),
            ("root_virtual_bytes", "Address space of the trainer's own process.", tree.virtual_bytes),
        ):
            yield from _one(f"memwatch_process_tree_{name}", text, value)
        yield from _survey_cost(tree.survey_cost)
    if sample.cgroup is not None:
        yield from _cgroup(sample.cgroup)
    if (host := sample.host) is not None:
        yield from _one("memwatch_host_memory_bytes", "Main memory of the host.", host.total_bytes)
        yield from _one("memwatch_host_available_bytes", "MemAvailable of the host.", host.available_bytes)
        yield from _one("memwatch_host_swap_free_bytes", "Free swap of the host.", host.swap_free_bytes)
    yield from _gpus(sample)


def _cgroup(cgroup: CgroupMemory) -> Iterator[Metric]:
    levels = cgroup.levels
    for name, text, rows in (
        ("usage", "Memory charged to a cgroup.", [((level.path,), level.usage_bytes) for level in levels]),
        (
            "reclaimable",
            "Page cache that the kernel gives back before it kills.",
            [((level.path,), level.reclaimable_bytes) for level in levels],
        ),
        ("limit", "A cgroup's memory limit.", [((level.path,), level.limit_bytes) for level in levels]),
    ):
        yield from _gauge(f"memwatch_cgroup_{name}_bytes", text, ("path",), rows)
    yield from _one("memwatch_cgroup_swap_bytes", "Swap of the trainer's own cgroup.", cgroup.swap_bytes)
    if cgroup.oom_kills is not None:
        text = "Processes that the kernel's OOM killer took in the trainer's own cgroup."
        yield _counter("memwatch_cgroup_oom_kills", text, cgroup.oom_kills)


def _survey_cost(cost: SurveyCost) -> Iterator[Metric]:
    for name, text, value in (
        ("visits", "Samples taken of a process's pages, to tell shared ones from its own.", cost.visits),
        ("refused", "Samples that were not permitted.", cost.refused),
        ("pages", "Pages looked at in samples.", cost.pages),
        ("cpu_seconds", "CPU time spent on samples of pages.", cost.cpu_seconds),
    ):
        yield _counter(f"memwatch_survey_{name}", text, value)


def _gpus(sample: Sample) -> Iterator[Metric]:
    gpus = sample.gpus
    yield from _gauge(
        "memwatch_gpu_info",
        "A GPU that the trainer uses.",
        ("gpu", "uuid", "name"),
        [((gpu.resource, gpu.uuid, gpu.name), 1.0) for gpu in gpus],
    )
    yield from _gauge(
        "memwatch_gpu_used_bytes",
        "The trainer's share of a GPU's memory; attribution says how it is known.",
        ("gpu", "uuid", "attribution"),
        [((gpu.resource, gpu.uuid, gpu.attribution), gpu.used_bytes) for gpu in gpus],
    )
    device = ("gpu", "uuid")
    used = [((gpu.resource, gpu.uuid), gpu.device_used_bytes) for gpu in gpus]
    yield from _gauge("memwatch_gpu_device_used_bytes", "What anybody has allocated on a GPU.", device, used)
    total = [((gpu.resource, gpu.uuid), gpu.total_bytes) for gpu in gpus]
    yield from _gauge("memwatch_gpu_device_memory_bytes", "Memory of a GPU.", device, total)


def _diagnosis(known: Diagnosis | None) -> Iterator[Metric]:
    """What examinations of the trainer found."""
    if known is None:
        return
    yield _counter("memwatch_examinations", "Examinations of the trainer that have ended.", known.examinations)
    yield _counter("memwatch_examination_cpu_seconds", "CPU time spent on them.", known.cpu_seconds)
    causes = ("cause", "resource", "phase", "type", "holder")
    found = [((one.cause, one.resource, one.phase or "", one.type, one.holder), one) for one in known.findings]
    for name, text, rows in (
        (
            "growth_bytes",
            "Growth of a found cause in a generation, or an hour.",
            [(k, f.growth.per_unit) for k, f in found],
        ),
        ("confidence_ratio", "How sure it is.", [(k, f.confidence) for k, f in found]),
    ):
        yield from _gauge(f"memwatch_finding_{name}", text, causes, rows)
    objects = [((one.name,), one.after) for one in known.types[:MOST_LOG_NAMES]]
    yield from _gauge("memwatch_python_objects", "Objects of a type that grows in number.", ("type",), objects)
    latest = known.latest
    kinds = [((one.kind,), one.resident_bytes) for one in latest.kinds or ()]
    yield from _gauge("memwatch_memory_kind_bytes", "Memory of the trainer's own process, by kind.", ("kind",), kinds)
    if latest.census is not None:
        sizes = [one.bytes for one in latest.census.types if one.bytes is not None]
        yield from _one("memwatch_python_bytes", "All Python objects of the trainer.", sum(sizes) if sizes else None)
        held = [((one.path,), one.bytes) for one in (*latest.census.tracked, *latest.census.containers)]
        yield from _gauge("memwatch_attribute_bytes", "What an attribute holds in all.", ("path",), held)
        storages = [((one.device,), one.bytes) for one in latest.census.storages]
        yield from _gauge("memwatch_torch_storage_bytes", "Storages of torch's tensors.", ("device",), storages)
