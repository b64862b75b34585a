"""The registry: name, type, labels and HELP of every metric that is exported. docs/metrics.md is its contract."""

from __future__ import annotations

from dataclasses import dataclass

# The end of the names of a family's series, by its kind.
_SUFFIXES = {"counter": "_total", "info": "_info", "gauge": ""}


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric. `name` lacks the `_total` or `_info` of its series; `text` is its HELP, one line."""

    kind: str  # "gauge", "counter" or "info"
    name: str
    text: str
    labels: tuple[str, ...] = ()
    event: str = ""  # which event it counts, if it is a counter of events

    @property
    def sample_name(self) -> str:
        """The name of its series, which queries use."""
        return self.name + _SUFFIXES[self.kind]


def _gauge(name: str, text: str, *labels: str) -> MetricFamily:
    return MetricFamily("gauge", f"memwatch_{name}", text, labels)


def _counter(name: str, text: str) -> MetricFamily:
    return MetricFamily("counter", f"memwatch_{name}", text)


def _events(name: str, event: str, text: str) -> MetricFamily:
    return MetricFamily("counter", f"memwatch_{name}", text, event=event)


def _info(name: str, text: str, *labels: str) -> MetricFamily:
    return MetricFamily("info", f"memwatch_{name}", text, labels)


def _process(name: str, text: str, kind: str = "gauge") -> MetricFamily:
    return MetricFamily(kind, f"process_{name}", text)


# --- memwatch itself --------------------------------------------------------------------------------------------------

BUILD = _info("build", "Version and commit of memwatch, and its Python.", "version", "commit", "python")
TICKS = _events("ticks", "tick", "Iterations of memwatch's main loop.")
WARNINGS = _events("warnings", "warn", "Warnings that memory will run out.")
INTERRUPTS = _events("interrupts", "interrupt", "Decisions to interrupt the trainer, also in a dry run.")
SAVES = _events("saves", "saved", "Interrupts followed by a complete checkpoint.")
ESCALATIONS = _events("escalations", "escalated", "Stronger signals, after an interrupt without effect.")
HOOKS = _events("hooks", "hook", "Hooks that succeeded.")
HOOK_FAILURES = _events("hook_failures", "hook_failed", "Hooks that failed, timed out or did not start.")
BREACHES = _events("breaches", "breach", "Expectations that ceased to be met.")
FINDINGS = _events("findings", "finding", "Causes of memory growth found.")
SOURCE_FAILURES = _events("source_failures", "source_failed", "Sources that began to fail.")
PAGE_FAILURES = _events("page_failures", "page_failed", "HTTP responses that failed by a bug in memwatch.")
_REFUSED = "HTTP requests refused: a wrong password, or too many at a time (`rate_limit`)."
WEB_REFUSALS = _events("web_refusals", "refused", _REFUSED)
WEB_HANDSHAKE_FAILURES = _events("web_handshake_failures", "handshake_failed", "Failed TLS handshakes.")
NODE_TRAINERS = _gauge("node_trainers", "Trainers of this node that are watched, by rules.")
SCRAPE_DURATION = _gauge("scrape_duration_seconds", "Time spent on this scrape.")
PROCESS_CPU = _process("cpu_seconds", "CPU time used by memwatch itself.", "counter")
PROCESS_RESIDENT = _process("resident_memory_bytes", "Resident memory of memwatch itself.")
PROCESS_VIRTUAL = _process("virtual_memory_bytes", "Virtual memory of memwatch itself.")
PROCESS_START = _process("start_time_seconds", "Start of memwatch, as Unix time.")
PROCESS_OPEN_FDS = _process("open_fds", "Open file descriptors of memwatch.")
PROCESS_MAX_FDS = _process("max_fds", "Limit on the open file descriptors of memwatch.")

# --- the watch --------------------------------------------------------------------------------------------------------

TARGET_UP = _gauge("target_up", "1 while the watched trainer runs, else 0.")
ARMED = _gauge("armed", "1 while an interrupt would reach the trainer, else 0.")
SEVERITY = _gauge("severity", "1 for the current severity of the run, else 0.", "severity")
STATE = _gauge("state", "1 for the current state of the watch, else 0.", "state")
SOURCE_UP = _gauge("source_up", "1 while a source can be read, else 0.", "source")
SAMPLE_AGE = _gauge("sample_age_seconds", "Age of the newest sample.")
TARGET_EXIT = _info("target_exit", "How the trainer ended.", "cause", "exit_code", "signal")
TARGET_EXIT_TIMESTAMP = _gauge("target_exit_timestamp_seconds", "End of the trainer, as Unix time.")

# --- the trainer and its log ------------------------------------------------------------------------------------------

TARGET = _info("target", "The watched trainer: its PID, command and run ID.", "pid", "command", "run_id")
RUN = _info(
    "run",
    "Run, node and rank of this watch, and the trainer's user.",
    *("run_id", "node", "rank", "user"),
)
RUN_NODES = _gauge("run_nodes", "Nodes of the run, as its launcher says.")
ATTEMPT = _gauge("attempt", "Restarts of the trainer within this run.")
WATCH_START = _gauge("watch_start_timestamp_seconds", "Start of the watch, as Unix time.")
GENERATION = _gauge("generation", "Generation (epoch, step ...) under way, as the program counts.")
GENERATIONS_PLANNED = _gauge("generations_planned", "Generations that the run will have.")
PHASE = _info("phase", "The phase under way.", "phase")
LOG_VALUE = _gauge("log_value", "A level that the log prints, such as the size of a buffer.", "name")
LOG_CAPACITY = _gauge("log_capacity", "The capacity of such a level.", "name")
CHECKPOINT_SECONDS = _gauge("checkpoint_seconds", "Expected time for a checkpoint; origin says why.", "origin")
LAST_CHECKPOINT = _gauge("last_checkpoint_timestamp_seconds", "The last complete checkpoint, as Unix time.")
EXPECTATION_MET = _gauge("expectation_met", "1 while the expectation is met, else 0.", "expectation")
EXPECTATION_BREACHES = _gauge("expectation_breaches", "Evaluations in which the expectation failed.", "expectation")
PACE = _gauge("pace_seconds", "Longest time until the next sample.")

# --- memory and forecast, by resource ---------------------------------------------------------------------------------

MEMORY_USED = _gauge("memory_used_bytes", "Memory that the trainer uses.", "resource")
MEMORY_LIMIT = _gauge("memory_limit_bytes", "The nearest limit; origin says whose it is.", "resource", "origin")
MEMORY_HEADROOM = _gauge("memory_headroom_bytes", "Memory left below the limit; negative above it.", "resource")
MEMORY_PEAK = _gauge("memory_peak_bytes", "Peak of the memory that the trainer used.", "resource")
MEMORY_BASELINE = _gauge("memory_baseline_bytes", "Memory at the first sample of this attempt.", "resource")
GROWTH_PER_GENERATION = _gauge("growth_bytes_per_generation", "Memory growth per generation.", "resource")
GROWTH_PER_SECOND = _gauge("growth_bytes_per_second", "Memory growth.", "resource")
TREND_CONFIDENCE = _gauge("trend_confidence_ratio", "How well the trend explains the samples, from 0 to 1.", "resource")
GENERATION_DURATION = _gauge("generation_duration_seconds", "Duration of the last complete generation.")
GENERATION_DELTA = _gauge("generation_delta_bytes", "Growth in the last complete generation.", "resource")
GENERATION_PEAK = _gauge("generation_peak_bytes", "Peak memory in the last complete generation.", "resource")
PHASE_GROWTH = _gauge(
    "phase_growth_bytes",
    "Growth within a phase, summed over all kept generations.",
    "resource",
    "phase",
)
VERDICT = _gauge("verdict", "1 for the current verdict on growth, else 0.", "resource", "verdict")
OOM_ETA = _gauge("oom_eta_seconds", "Expected time to the limit.", "resource")
OOM_ETA_LOW = _gauge("oom_eta_low_seconds", "5th percentile of the time to the limit.", "resource")
OOM_ETA_HIGH = _gauge("oom_eta_high_seconds", "95th percentile of the time to the limit.", "resource")
OOM_GENERATION = _gauge(
    "oom_generation",
    "Expected generation of the limit, as the program counts.",
    "resource",
)
OOM_GENERATION_LOW = _gauge("oom_generation_low", "5th percentile of the generation of the limit.", "resource")
OOM_GENERATION_HIGH = _gauge("oom_generation_high", "95th percentile of the generation of the limit.", "resource")
NEEDED = _gauge("needed_bytes", "Memory that the run needs to finish.", "resource")
NEEDED_LOW = _gauge("needed_low_bytes", "5th percentile of the needed memory.", "resource")
NEEDED_HIGH = _gauge("needed_high_bytes", "95th percentile of the needed memory.", "resource")
INTERRUPT_ETA = _gauge("interrupt_eta_seconds", "Expected time until memwatch interrupts the trainer.", "resource")
RUN_FINISHES = _gauge("run_finishes", "1 if the run ends before the limit's early bound, else 0.", "resource")
WARNED = _gauge("warned", "1 while memwatch warns that the limit will be reached, else 0.", "resource")
WARN_HORIZON = _gauge("warn_horizon_seconds", "How long before the limit memwatch warns.")

# --- the sample -------------------------------------------------------------------------------------------------------

TREE_USED = _gauge(
    "process_tree_used_bytes",
    "Memory of the trainer's job; shared pages are counted once.",
    "accounting",
)
TREE_PROCESSES = _gauge("process_tree_processes", "Processes in the trainer's process tree.")
TREE_ROOT_RSS = _gauge("process_tree_root_rss_bytes", "Resident memory of the trainer's own process.")
TREE_ROOT_VIRTUAL = _gauge("process_tree_root_virtual_bytes", "Virtual memory of the trainer's own process.")
TREE_ANON = _gauge("process_tree_anon_bytes", "Anonymous memory of the process tree.")
TREE_FILE = _gauge("process_tree_file_bytes", "Resident file-backed memory of the process tree.")
TREE_SHMEM = _gauge("process_tree_shmem_bytes", "Shared memory of the process tree.")
TREE_SWAP = _gauge("process_tree_swap_bytes", "Swapped-out memory of the process tree.")
TREE_ERROR = _gauge("process_tree_error_bytes", "Standard error of the process tree's memory.")
TREE_COW = _gauge("process_tree_cow_bytes", "Memory inherited by a fork and copied since.")
TREE_COW_GROWTH = _gauge("process_tree_cow_bytes_per_second", "Growth of the memory copied since.")
TREE_MEMBERS = _gauge("process_tree_member_processes", "Processes of the job that are no descendants of the trainer.")
TREE_MEMBER_BYTES = _gauge("process_tree_member_bytes", "Anonymous memory of these processes.")
SURVEY_VISITS = _counter("survey_visits", "Samplings of a process's pages, to find shared ones.")
SURVEY_REFUSED = _counter("survey_refused", "Samplings that the kernel did not permit.")
SURVEY_PAGES = _counter("survey_pages", "Pages inspected by sampling.")
SURVEY_CPU = _counter("survey_cpu_seconds", "CPU time spent on sampling pages.")
RANK = _info("rank", "A rank that the trainer, an agent, has started.", "rank", "local_rank", "pid")
RANK_USED = _gauge("rank_memory_used_bytes", "Main memory of a rank and its descendants.", "rank")
RANK_GPU = _info("rank_gpu", "A GPU that a rank uses.", "rank", "gpu")
CGROUP_USAGE = _gauge("cgroup_usage_bytes", "Memory charged to the cgroup at this path.", "path")
CGROUP_RECLAIMABLE = _gauge("cgroup_reclaimable_bytes", "Page cache that can be reclaimed before an OOM kill.", "path")
CGROUP_LIMIT = _gauge("cgroup_limit_bytes", "Memory limit of the cgroup.", "path")
CGROUP_OTHERS = _gauge("cgroup_others_bytes", "Anonymous memory in the cgroup that is not of the job.", "path")
CGROUP_SWAP = _gauge("cgroup_swap_bytes", "Swap used by the trainer's own cgroup.")
CGROUP_OOM_KILLS = _counter("cgroup_oom_kills", "OOM kills in the trainer's own cgroup.")
HOST_MEMORY = _gauge("host_memory_bytes", "Total main memory of the host.")
HOST_AVAILABLE = _gauge("host_available_bytes", "Available memory of the host (MemAvailable).")
HOST_SWAP_FREE = _gauge("host_swap_free_bytes", "Free swap of the host.")
GPU = _info("gpu", "A GPU that the trainer uses.", "gpu", "uuid", "name")
GPU_USED = _gauge("gpu_used_bytes", "GPU memory of the trainer.", "gpu", "uuid", "attribution")
GPU_DEVICE_USED = _gauge("gpu_device_used_bytes", "GPU memory allocated by anybody.", "gpu", "uuid")
GPU_DEVICE_MEMORY = _gauge("gpu_device_memory_bytes", "Total memory of the device.", "gpu", "uuid")

# --- what examinations found ------------------------------------------------------------------------------------------

_CAUSE = ("cause", "resource", "phase", "type", "holder")
EXAMINATIONS = _counter("examinations", "Completed examinations of the trainer.")
EXAMINATION_CPU = _counter("examination_cpu_seconds", "CPU time spent on examinations.")
FINDING_GROWTH = _gauge("finding_growth_bytes", "Growth from this cause per generation or hour.", *_CAUSE)
FINDING_CONFIDENCE = _gauge("finding_confidence_ratio", "Confidence in this cause, from 0 to 1.", *_CAUSE)
ATTRIBUTE_BYTES = _gauge("attribute_bytes", "Memory that an attribute holds.", "path")
PYTHON_OBJECTS = _gauge("python_objects", "Number of objects of a type that grows in number.", "type")
PYTHON_BYTES = _gauge("python_bytes", "Memory of all Python objects in the trainer's own process.")
TORCH_STORAGE = _gauge("torch_storage_bytes", "Memory of torch's tensors; each storage counts once.", "device")
MEMORY_KIND = _gauge("memory_kind_bytes", "Memory of the trainer's own process by kind.", "kind")

FAMILIES = tuple(one for one in tuple(globals().values()) if isinstance(one, MetricFamily))
EVENT_FAMILIES = tuple(one for one in FAMILIES if one.event)
SERVER_EVENT_FAMILIES = (PAGE_FAILURES, WEB_REFUSALS, WEB_HANDSHAKE_FAILURES)  # of these each HTTP server has its own
WATCH_EVENT_FAMILIES = tuple(one for one in EVENT_FAMILIES if one not in SERVER_EVENT_FAMILIES)
