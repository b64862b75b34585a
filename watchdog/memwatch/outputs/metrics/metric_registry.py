"""The registry: name, type, labels and help of every metric that can be exported. docs/metrics.md is its contract."""

from __future__ import annotations

from dataclasses import dataclass

_SUFFIXES = {
    "counter": "_total",
    "info": "_info",
    "gauge": "",
}  # of the sample, where the family has none in OpenMetrics
_UNITS = {  # by the end of the name; the longer first
    "_bytes_per_second": "bytes/s",
    "_bytes_per_generation": "bytes",
    "_bytes": "bytes",
    "_timestamp_seconds": "timestamp",
    "_seconds": "seconds",
    "_ratio": "ratio",
}


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric: `name` without `_total` or `_info`, which its samples have; `text` is one line."""

    kind: str  # "gauge", "counter" or "info"
    name: str
    text: str
    labels: tuple[str, ...] = ()

    @property
    def sample_name(self) -> str:
        """The name of its series, as queries have it."""
        return self.name + _SUFFIXES[self.kind]

    @property
    def unit(self) -> str:
        """Of its values, as the name says: bytes, bytes/s, seconds, timestamp (Unix time) or ratio; empty: a number."""
        return next((unit for end, unit in _UNITS.items() if self.name.endswith(end)), "")


def _gauge(name: str, text: str, *labels: str) -> MetricFamily:
    return MetricFamily("gauge", f"memwatch_{name}", text, labels)


def _counter(name: str, text: str) -> MetricFamily:
    return MetricFamily("counter", f"memwatch_{name}", text)


def _info(name: str, text: str, *labels: str) -> MetricFamily:
    return MetricFamily("info", f"memwatch_{name}", text, labels)


def _process(name: str, text: str, kind: str = "gauge") -> MetricFamily:
    return MetricFamily(kind, f"process_{name}", text)


# --- memwatch itself --------------------------------------------------------------------------------------------------

BUILD = _info("build", "The version of memwatch, its commit, and the Python.", "version", "commit", "python")
TICKS = _counter("ticks", "Turns of memwatch's loop.")
WARNINGS = _counter("warnings", "Warnings that memory will run out.")
INTERRUPTS = _counter("interrupts", "Interrupts decided; in a dry run no signal is sent.")
SAVES = _counter("saves", "Interrupts after which a clean checkpoint was seen.")
ESCALATIONS = _counter("escalations", "Stronger signals, after an interrupt had no effect.")
HOOKS = _counter("hooks", "Hooks that ended well.")
HOOK_FAILURES = _counter("hook_failures", "Hooks that failed, took too long or could not be started.")
BREACHES = _counter("breaches", "Expectations that began to be broken.")
FINDINGS = _counter("findings", "Causes of growth found.")
SOURCE_FAILURES = _counter("source_failures", "Times that a source began to fail.")
PAGE_FAILURES = _counter("page_failures", "Answers of the HTTP server that failed by a bug.")
WEB_REFUSALS = _counter("web_refusals", "HTTP requests without a right password, or too many of them.")
WEB_HANDSHAKE_FAILURES = _counter("web_handshake_failures", "Connections on which TLS came to nothing.")
SCRAPE_DURATION = _gauge("scrape_duration_seconds", "Time to collect this scrape's metrics.")
PROCESS_CPU = _process("cpu_seconds", "CPU time of memwatch itself.", "counter")
PROCESS_RESIDENT = _process("resident_memory_bytes", "Resident memory of memwatch itself.")
PROCESS_VIRTUAL = _process("virtual_memory_bytes", "Address space of memwatch itself.")
PROCESS_START = _process("start_time_seconds", "When memwatch was started.")
PROCESS_OPEN_FDS = _process("open_fds", "File descriptors that memwatch holds.")
PROCESS_MAX_FDS = _process("max_fds", "File descriptors that memwatch may hold.")

# --- the watch --------------------------------------------------------------------------------------------------------

TARGET_UP = _gauge("target_up", "1 while the watched trainer runs.")
ARMED = _gauge("armed", "1 while an interrupt would reach the trainer.")
STATE = _gauge("state", "1 for the state that memwatch is in.", "state")
SOURCE_UP = _gauge("source_up", "1 while a source can be read.", "source")
SAMPLE_AGE = _gauge("sample_age_seconds", "Time since the newest sample, at the scrape.")
TARGET_EXIT = _info("target_exit", "How the trainer ended.", "cause", "exit_code", "signal")
TARGET_EXIT_TIMESTAMP = _gauge("target_exit_timestamp_seconds", "When it was gone.")

# --- the trainer and its log ------------------------------------------------------------------------------------------

TARGET = _info("target", "The watched trainer.", "pid", "command", "run_id")
RUN = _info("run", "Which part of which run it is; rank is empty where it has none.", "run_id", "node", "rank")
RUN_NODES = _gauge("run_nodes", "Nodes that the run has, as its launcher says.")
ATTEMPT = _gauge("attempt", "Restarts of the trainer within this run.")
WATCH_START = _gauge("watch_start_timestamp_seconds", "When this run's watch began.")
GENERATION = _gauge("generation", "The generation (epoch, step ...) that the log is in, as the program counts.")
GENERATIONS_PLANNED = _gauge("generations_planned", "How many generations the run will have.")
PHASE = _info("phase", "The phase that the log is in.", "phase")
LOG_VALUE = _gauge("log_value", "A level that the log prints, such as a buffer's.", "name")
LOG_CAPACITY = _gauge("log_capacity", "The most that such a level can reach.", "name")
CHECKPOINT_SECONDS = _gauge("checkpoint_seconds", "Time that a checkpoint is taken to need; origin says why.", "origin")
LAST_CHECKPOINT = _gauge("last_checkpoint_timestamp_seconds", "When the last complete checkpoint was seen.")
EXPECTATION_MET = _gauge("expectation_met", "1 while the run is as expected.", "expectation")
EXPECTATION_BREACHES = _gauge("expectation_breaches", "Looks at which it was not as expected.", "expectation")
PACE = _gauge("pace_seconds", "Time to the next sample, at most.")

# --- memory and forecast, by resource ---------------------------------------------------------------------------------

MEMORY_USED = _gauge("memory_used_bytes", "Memory that the trainer uses.", "resource")
MEMORY_LIMIT = _gauge("memory_limit_bytes", "The limit that is met first, and whose it is.", "resource", "origin")
MEMORY_HEADROOM = _gauge(
    "memory_headroom_bytes", "What can still be allocated; negative when the limit is exceeded.", "resource"
)
MEMORY_PEAK = _gauge("memory_peak_bytes", "The most that was used.", "resource")
MEMORY_BASELINE = _gauge("memory_baseline_bytes", "First reading of this attempt.", "resource")
GROWTH_PER_GENERATION = _gauge("growth_bytes_per_generation", "Growth by generation.", "resource")
GROWTH_PER_SECOND = _gauge("growth_bytes_per_second", "Growth by time.", "resource")
TREND_CONFIDENCE = _gauge("trend_confidence_ratio", "How well the trend explains the samples, 0 to 1.", "resource")
GENERATION_DURATION = _gauge("generation_duration_seconds", "Length of the newest generation that has ended.")
GENERATION_DELTA = _gauge("generation_delta_bytes", "Growth in the newest generation that has ended.", "resource")
GENERATION_PEAK = _gauge("generation_peak_bytes", "Peak of the newest generation that has ended.", "resource")
PHASE_GROWTH = _gauge(
    "phase_growth_bytes", "Growth within a phase, over all generations that are kept.", "resource", "phase"
)
VERDICT = _gauge("verdict", "1 for what the growth looks like.", "resource", "verdict")
OOM_ETA = _gauge("oom_eta_seconds", "Time until the limit is met.", "resource")
OOM_ETA_LOW = _gauge("oom_eta_low_seconds", "5 % of the outcomes are earlier.", "resource")
OOM_ETA_HIGH = _gauge("oom_eta_high_seconds", "5 % of the outcomes are later.", "resource")
OOM_GENERATION = _gauge(
    "oom_generation", "The generation in which the limit is met, as the program counts.", "resource"
)
OOM_GENERATION_LOW = _gauge("oom_generation_low", "5 % of the outcomes are earlier.", "resource")
OOM_GENERATION_HIGH = _gauge("oom_generation_high", "5 % of the outcomes are later.", "resource")
RUN_FINISHES = _gauge("run_finishes", "1 if the last generation comes before the limit.", "resource")
WARNED = _gauge("warned", "1 while memwatch warns that the limit is near.", "resource")
WARN_HORIZON = _gauge("warn_horizon_seconds", "How far ahead memwatch warns.")

# --- the readings behind it -------------------------------------------------------------------------------------------

TREE_USED = _gauge(
    "process_tree_used_bytes", "Memory of the trainer and its descendants, shared pages once.", "accounting"
)
TREE_PROCESSES = _gauge("process_tree_processes", "Processes of the tree.")
TREE_ROOT_RSS = _gauge("process_tree_root_rss_bytes", "Resident memory of the trainer's own process.")
TREE_ROOT_VIRTUAL = _gauge("process_tree_root_virtual_bytes", "Address space of the trainer's own process.")
TREE_ANON = _gauge("process_tree_anon_bytes", "Anonymous memory of the tree.")
TREE_FILE = _gauge("process_tree_file_bytes", "Resident file pages of the tree.")
TREE_SHMEM = _gauge("process_tree_shmem_bytes", "Shared memory of the tree.")
TREE_SWAP = _gauge("process_tree_swap_bytes", "Swapped memory of the tree.")
TREE_ERROR = _gauge("process_tree_error_bytes", "Standard error of the tree's memory, by samples of pages.")
TREE_COW = _gauge("process_tree_cow_bytes", "Inherited pages that were copied since a fork, as far as seen.")
TREE_COW_GROWTH = _gauge("process_tree_cow_bytes_per_second", "Growth of the copied pages.")
SURVEY_VISITS = _counter("survey_visits", "Samples taken of a process's pages, to tell shared ones from its own.")
SURVEY_REFUSED = _counter("survey_refused", "Samples that were not permitted.")
SURVEY_PAGES = _counter("survey_pages", "Pages looked at in samples.")
SURVEY_CPU = _counter("survey_cpu_seconds", "CPU time spent on samples of pages.")
RANK = _info("rank", "A rank below the trainer, an agent such as torchrun.", "rank", "local_rank", "pid")
RANK_USED = _gauge(
    "rank_memory_used_bytes", "Main memory of a rank and all below it, shared pages at most once.", "rank"
)
RANK_GPU = _info("rank_gpu", "A GPU that a rank uses.", "rank", "gpu")
CGROUP_USAGE = _gauge("cgroup_usage_bytes", "Memory charged to a cgroup, of every level up to the root.", "path")
CGROUP_RECLAIMABLE = _gauge(
    "cgroup_reclaimable_bytes", "Page cache that the kernel gives back before it kills.", "path"
)
CGROUP_LIMIT = _gauge("cgroup_limit_bytes", "The cgroup's limit.", "path")
CGROUP_SWAP = _gauge("cgroup_swap_bytes", "Swap of the trainer's own cgroup.")
CGROUP_OOM_KILLS = _counter(
    "cgroup_oom_kills", "Processes that the kernel's OOM killer took in the trainer's own cgroup."
)
HOST_MEMORY = _gauge("host_memory_bytes", "Main memory of the host.")
HOST_AVAILABLE = _gauge("host_available_bytes", "MemAvailable of the host.")
HOST_SWAP_FREE = _gauge("host_swap_free_bytes", "Free swap of the host.")
GPU = _gauge("gpu_info", "A GPU that the trainer uses.", "gpu", "uuid", "name")
GPU_USED = _gauge(
    "gpu_used_bytes", "The trainer's share; attribution says how it is known.", "gpu", "uuid", "attribution"
)
GPU_DEVICE_USED = _gauge("gpu_device_used_bytes", "What anybody has allocated on the device.", "gpu", "uuid")
GPU_DEVICE_MEMORY = _gauge("gpu_device_memory_bytes", "Memory of the device.", "gpu", "uuid")

# --- what examinations found ------------------------------------------------------------------------------------------

_CAUSE = ("cause", "resource", "phase", "type", "holder")
EXAMINATIONS = _counter("examinations", "Examinations of the trainer that have ended.")
EXAMINATION_CPU = _counter("examination_cpu_seconds", "CPU time spent on them.")
FINDING_GROWTH = _gauge("finding_growth_bytes", "Growth of a found cause in a generation, or an hour.", *_CAUSE)
FINDING_CONFIDENCE = _gauge("finding_confidence_ratio", "How sure it is, 0 to 1.", *_CAUSE)
ATTRIBUTE_BYTES = _gauge("attribute_bytes", "What an attribute holds in all.", "path")
PYTHON_OBJECTS = _gauge("python_objects", "Objects of a type that grows in number.", "type")
PYTHON_BYTES = _gauge("python_bytes", "All Python objects of the trainer's own process.")
TORCH_STORAGE = _gauge("torch_storage_bytes", "Storages of torch's tensors, each once.", "device")
MEMORY_KIND = _gauge("memory_kind_bytes", "Memory of the trainer's own process, by kind.", "kind")

FAMILIES = tuple(one for one in tuple(globals().values()) if isinstance(one, MetricFamily))
