"""The causes of growth that memwatch can name, each with its title and remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memwatch.core.examination import Finding, Growth
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
        evidence: Sequence[str],
        *,
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
            evidence=tuple(evidence),
        )


# --- of growth that an attribute holds --------------------------------------------------------------------------------

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
UNBOUNDED = LeakCause(
    "unbounded_container",
    "a container grows without a bound",
    "bound it, as with collections.deque(maxlen=...), or write it out and clear it each {unit}: {name}",
    0.8,
)
CANNOT_FIT = LeakCause("buffer_cannot_fit", "a buffer fills that can never fit", "", 0.95)

# --- of growth that no attribute holds --------------------------------------------------------------------------------

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
    0.6,
)
GRAPHS = LeakCause(
    "graph_retained",
    "tensors are kept with the graph that they were computed by",
    "keep the number alone: append loss.item(), or detach().cpu(), instead of the tensor",
    0.9,
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
