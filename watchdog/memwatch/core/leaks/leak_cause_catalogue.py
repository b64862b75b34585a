"""The causes of growth that memwatch can name, each with its title, its remedy and how sure one can be of it."""

from __future__ import annotations

from dataclasses import dataclass

from memwatch.core.examination import ALLOCATED_BUFFER_FILLS, MODEL_GROWS, OTHERS_GROW, WORKERS_GROW, Finding, Growth
from memwatch.core.measurements import HOST


@dataclass(frozen=True, slots=True)
class LeakCause:
    """A cause of growth."""

    name: str  # docs/diagnosis.md lists them
    title: str
    remedy: str  # {name}: the attribute that grows; {unit}: "generation" as the log calls it, or "hour"
    max_confidence: float  # 0..1, which the confidence approaches as evidence accumulates

    def finding(
        self,
        growth: Growth,
        phase: str | None,
        *evidence: str,
        type_: str = "",
        counts: tuple[int | None, int | None] = (None, None),
        holder: str = "",
        share: float | None = None,
        remedy: str = "",
        resource: str = HOST,
    ) -> Finding:
        """Make a finding of this cause; its confidence is 0.75 of the maximum after two rises, 0.88 after three."""
        return Finding(
            cause=self.name,
            title=self.title,
            resource=resource,
            growth=growth,
            share=share,
            phase=phase,
            type=type_,
            count_before=counts[0],
            count_after=counts[1],
            holder=holder,
            remedy=remedy or self.remedy,
            confidence=round(self.max_confidence * (1.0 - 0.5**growth.steps), 2),
            evidence=evidence,
        )


# --- growth that is not the trainer's

OTHERS = LeakCause(
    OTHERS_GROW,
    "other processes in the cgroup grow, not the trainer",
    "look at those processes; give the trainer a cgroup, a container or a job step of its own",
    0.95,
)
MEMBERS = LeakCause(
    WORKERS_GROW,
    "workers of the job that are no children of the trainer grow, not the trainer itself",
    "look at what the workers keep; attach to one of them to have it examined",
    0.95,
)

# --- growth that an attribute holds

FIGURES = LeakCause(
    "figures_not_closed",
    "figures are drawn and never closed",
    "close each figure when it is saved: plt.close(figure); {name} keeps them",
    0.95,
)
ENVIRONMENTS = LeakCause(
    "environments_recreated",
    "environments are made anew and kept",
    "make them once and call reset(), or close() and drop the old ones: {name} keeps them",
    0.9,
)
LOSSES = LeakCause(
    "graph_retained",
    "losses or tensors are kept with all that they were computed from",
    "keep the number alone: append loss.item(), or detach().cpu(), to {name}",
    0.9,
)
POPULATION = LeakCause(
    "old_population_kept",
    "members of old populations are kept",
    "keep scores, or the best few, instead of whole members: {name} holds those of every {unit}",
    0.85,
)
DEFAULT_ARGUMENT = LeakCause(
    "default_argument_kept",
    "a default argument, which all calls of its function share, keeps what is added to it",
    "make the default None, and a new object in the function: {name}",
    0.9,
)
EXCEPTIONS = LeakCause(
    "exceptions_kept",
    "exceptions are kept, and with them the local variables of the functions that they passed",
    "keep str(error) or traceback.format_exc(), or call traceback.clear_frames(error.__traceback__): {name}",
    0.9,
)
CYCLES = LeakCause(  # The collector may free them at its next run: it counts objects, not what they take.
    "garbage_in_cycles",
    "objects that refer to each other are dropped, and the garbage collector does not free them yet",
    "run gc.collect() each {unit}; or break the circle: weakref.ref(self) in hooks and callbacks",
    0.65,
)
UNCOLLECTED = LeakCause(
    CYCLES.name,
    "objects that refer to each other are dropped, and the garbage collector is disabled",
    "enable it, or run gc.collect() each {unit}; or break the circle: weakref.ref(self) in hooks and callbacks",
    0.95,
)
STATE = LeakCause(
    "state_not_reset",
    "a metric keeps the state of each update, and is not reset",
    "call its reset() at the end of each {unit}, or give it bounded state (thresholds, an average): {name}",
    0.9,
)
UNBOUNDED = LeakCause(
    "unbounded_container",
    "a container grows without a bound",
    "bound it, as with collections.deque(maxlen=...), or write it out and clear it each {unit}: {name}",
    0.8,
)
CANNOT_FIT = LeakCause("buffer_cannot_fit", "a buffer fills that can never fit", "", 0.95)

# --- growth that no attribute holds

FILLS = LeakCause(
    ALLOCATED_BUFFER_FILLS,
    "arrays that were allocated at their full size take memory as they are filled, and will fit",
    "nothing: this growth ends when they are full",
    0.95,
)
FILLED = LeakCause(
    "buffer_cannot_fit",
    "arrays were made larger than memory, and take it as they are filled",
    "give the buffer a smaller capacity, or smaller items: float16 or uint8, indices or views of shared data",
    0.95,
)
WORKERS = LeakCause(
    "workers_copy_pages",
    "forked workers copy the pages that they inherited",
    "keep the data set in arrays or shared memory instead of lists of Python objects, or use fewer workers",
    0.8,
)
SHARED_MEMORY = LeakCause(
    "shared_memory",
    "shared memory grows",
    "look for batches that are passed between processes and kept: prefetch_factor, queues, files in /dev/shm",
    0.6,
)
PYPLOT_FIGURES = LeakCause(
    "figures_not_closed",
    "figures are drawn and never closed",
    "close each figure when it is saved: plt.close(figure)",
    0.8,
)
COMPILED = LeakCause(
    "compiled_again",
    "functions are compiled again and again, and each version is kept",
    "make them once, outside the loop, and call them with the same shapes and Python values each time: "
    "pad batches, pass numbers as arrays or tensors",
    0.9,
)
KEPT = LeakCause(
    "native_objects_kept",
    "objects are kept whose memory lies outside Python's heap",
    "drop or close them when they are done with: {name} keeps them",
    0.6,
)
HELD_BY_LOCAL_OR_NATIVE = LeakCause(
    "held_by_local_or_native",
    "objects are kept by a local variable or by C code",
    "look at the local variables of functions that run all the time, the main loop first",
    0.6,
)
FRAGMENTS = LeakCause(
    "fragmentation",
    "the allocator keeps memory that objects have left",
    "try MALLOC_ARENA_MAX=2, or jemalloc; make large temporary arrays once, or in a process of their own",
    0.6,
)
NATIVE = LeakCause(
    "native_leak",
    "memory grows that no Python object takes",
    "look at C extensions and their versions; memray --native or heaptrack name the allocation",
    0.5,  # right in 2 of 4 of the reports (docs/leak_reports) and the gallery
)
MODEL = LeakCause(
    MODEL_GROWS,
    "each round of boosting adds trees to the model, outside Python's heap",
    "that is no leak: fewer rounds or smaller trees take less; if memory grows by more than the saved model does, "
    "memray --native or heaptrack name the allocation",
    0.5,
)
GRAPHS = LeakCause(
    "graph_retained",
    "tensors are kept with the graph that they were computed by",
    "keep the number alone: append loss.item(), or detach().cpu(), instead of the tensor",
    0.9,
)
CIRCLE_OF_GRADIENTS = (
    "backward(create_graph=True) leaves a circle that no collector sees: use torch.autograd.grad(), "
    "or set the gradients to None before the model goes"
)
SUSPECTED = LeakCause(
    "unbounded_container",
    "a container gains objects as memory grows; what they hold was not measured",
    "bound it, or write it out and clear it each {unit}: {name}",
    0.5,
)
SUM_OF_GRAPHS = LeakCause(
    "graph_retained",
    "a tensor is kept with its graph, which grows if others are added to it: total = total + loss",
    "keep the number alone: loss.item(), or detach(): {name}",
    0.5,
)
DEEPENING = LeakCause(
    "graph_retained",
    "a tensor is kept with its graph, to which another is added each time: total = total + loss",
    SUM_OF_GRAPHS.remedy,
    0.85,
)
GPU_CACHE = LeakCause(
    "gpu_cache",
    "torch's cache on the GPU grows, its tensors do not",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and tensors of like shapes each time",
    0.6,
)
GPU_TENSORS = LeakCause(
    "gpu_tensors_kept",
    "ever more tensors stay on the GPU",
    "detach() and move to the CPU what is kept, or drop it: a list, a metric, a loss with its graph",
    0.8,
)

FILLED_ARRAYS = {FILLED.name, FILLS.name}  # causes that are about all arrays of a buffer
# What is said where no rule fits better: names that explain the growth do.
VAGUE = {cause.name for cause in (UNBOUNDED, HELD_BY_LOCAL_OR_NATIVE, KEPT, FRAGMENTS, MODEL, NATIVE)}
