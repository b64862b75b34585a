"""Trees as training runs have them: what they do at each look, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from memwatch.core.measurements import TreeMemory
from memwatch.sources.memory.process_tree import TreeReader
from support.forest import Forest, forest, read_pss, whole_tree

Step = Callable[[Forest, int], None]

SHUFFLED = "order = list(range({pages})); random.Random(os.getpid()).shuffle(order)"


def come_and_go(trainer: Forest, look: int) -> None:
    """16 forked workers that end and are forked anew every 10 looks."""
    if look == 0:
        trainer.do("x = heap(400)")
    if look % 10 == 0:
        trainer.do("end(len(workers)); fork(16); tell('y = heap(8)')")
    if look % 10 == 4:
        trainer.do("tell('y += heap(4)')")


def copy_at_random(trainer: Forest, look: int) -> None:
    """8 forked workers use objects of a heap of 1 GB here and there: 4 MB a look are copied after 20 quiet ones."""
    if look == 0:
        trainer.do("x = heap(1000); fork(8)")
        trainer.do(f"tell({SHUFFLED.format(pages=256_000)!r})")
    elif look >= 20:
        trainer.do(f"tell('touch(x, order[{128 * look}:{128 * (look + 1)}])')")


def copy_in_order(trainer: Forest, look: int) -> None:
    """4 forked workers go through a heap of 1 GB, 3 MB of it each at each look; half of them stop on the way."""
    if look == 0:
        trainer.do("x = heap(1000); fork(4)")
    first = 0 if look < 30 else 2
    trainer.do(f"tell('touch(x, range({768 * look}, {768 * (look + 1)}))', {first})")


def parent_writes(trainer: Forest, look: int) -> None:
    """The trainer itself goes through its heap of 600 MB: 8 workers hold what was there before."""
    if look == 0:
        trainer.do("x = heap(600); fork(8)")
    trainer.do(f"touch(x, range({1024 * look}, {1024 * (look + 1)}))")


def huge_pages(trainer: Forest, look: int) -> None:
    """4 forked workers write here and there to a heap of transparent huge pages."""
    if look == 0:
        trainer.do("x = mmap.mmap(-1, 600 * MB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); x.madvise(14)")
        trainer.do("touch(x, range(600 * 256)); fork(4)")
        trainer.do(f"tell({SHUFFLED.format(pages=600 * 256)!r})")
    trainer.do(f"tell('touch(x, order[{256 * look}:{256 * (look + 1)}])')")


def spawned(trainer: Forest, look: int) -> None:
    """6 spawned workers with memory of their own, which grows."""
    if look == 0:
        trainer.do("x = heap(100); spawn(6); tell('y = heap(100)')")
    if look % 5 == 1:
        trainer.do("tell('y += heap(6)')")


def segments(trainer: Forest, look: int) -> None:
    """A shared segment that all map, one for each worker that the trainer maps, too, and one that workers share."""
    name = f"memwatch-test-{trainer.pid}"
    if look == 0:
        trainer.do(f"a = shared('{name}-a', 300); touch(a, range(300 * 256)); fork(4); spawn(2)")
        trainer.do(f"tell(\"a = shared('{name}-a'); touch(a, range(300 * 256))\")")
    if look == 5:
        trainer.do(f"tell(\"b = shared('{name}-b%d' % os.getpid(), 60); touch(b, range(60 * 256))\")")
        trainer.do(
            f"bs = [shared('{name}-b%d' % pid) for pid, _, _ in workers]; [touch(b, range(60 * 256)) for b in bs]"
        )
    if look == 20:
        trainer.do(f"tell(\"c = shared('{name}-c', 200); touch(c, range(200 * 256))\", 0, 1)")
        trainer.do(f"tell(\"c = shared('{name}-c'); touch(c, range(200 * 256))\", 1)")
    if look == 40:
        trainer.do("tell('del c'); bs = b = None; tell('del b')")


def torchrun(trainer: Forest, look: int) -> None:
    """An agent and 8 ranks, each with memory of its own; their 24 forked loaders copy 1 MB together at each look."""
    if look == 0:
        trainer.do("spawn(8); tell('x = heap(120); fork(3)')")
        trainer.do("tell(\"tell('touch(x, range(1500))')\")")
    if look >= 10:
        trainer.do(f"tell(\"tell('touch(x, range({2000 + 12 * look}, {2012 + 12 * look}))')\")")


def two_hundred(trainer: Forest, look: int) -> None:
    """200 forked processes below a heap of 300 MB, of which each copies a little; 20 go and come every 20 looks."""
    if look == 0:
        trainer.do("x = heap(300); fork(199); tell('touch(x, random.sample(range(300 * 256), 200))')")
    elif look % 20 == 0:
        trainer.do("end(20); fork(20)")


def data_loaders(trainer: Forest, look: int) -> None:
    """16 forked workers below a dataset of 4 GB, with 60 MB of their own: after 10 looks each copies 2 MB a look."""
    if look == 0:
        trainer.do("x = heap(4000); fork(16); tell('y = heap(60)')")
    elif look >= 10:
        trainer.do(f"tell('touch(x, range({512 * look}, {512 * (look + 1)}))')")


SMALL_TREES = (
    come_and_go,
    copy_at_random,
    copy_in_order,
    parent_writes,
    huge_pages,
    spawned,
    segments,
    torchrun,
    two_hundred,
)
TREES = (data_loaders, *SMALL_TREES)


@dataclass
class Run:
    """What was told of a tree and what was true, look by look, one second apart by a clock of their own."""

    told: list[TreeMemory] = field(default_factory=list)
    pss_bytes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # CPU of each look
    rollup_seconds: list[float] = field(default_factory=list)  # CPU of reading smaps_rollup of all, after each look

    def errors(self, after: int = 0) -> list[float]:
        """Relative ones of used_bytes."""
        return [memory.used_bytes / true - 1 for memory, true in zip(self.told, self.pss_bytes, strict=True)][after:]

    @property
    def cost_share(self) -> float:
        """CPU of all looks beside that of reading smaps_rollup at each."""
        return sum(self.seconds) / sum(self.rollup_seconds)


def watch(step: Step, looks: int = 60, size: int = 1) -> Run:
    """Let a tree so many times as large take its steps, and look at it after each."""
    run = Run()
    with forest(size) as trainer:
        step(trainer, 0)
        tree = TreeReader(trainer.pid)
        for look in range(looks):
            if look:
                step(trainer, look)
            began = time.thread_time()
            run.told.append(tree.read_memory(float(look)))
            run.seconds.append(time.thread_time() - began)
            true_bytes, took = read_pss(whole_tree(trainer.pid))
            run.pss_bytes.append(true_bytes)
            run.rollup_seconds.append(took)
        tree.close()
    return run
