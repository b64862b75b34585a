"""How much memory a tree of processes uses when its pages are shared: each page counted once.

Forked processes start with all pages of their parent, so a sum of RSS counts those once per worker. What is cheap to
read (statm) does not say which pages are shared; what says it (smaps_rollup) stalls the process. So the tree is

    RSS of the trainer + pages that each worker has to itself + pages that workers share without the trainer

where the trainer's RSS is always fresh and whole, the second is measured rarely and followed by the change of anonymous
memory in between, and the third is known from a measurement or bounded from below by what is inherited. A tree says how
far that went: "rss" (one process, exact), "pss" (all measured), "rss+uss" (the trainer itself was too large to measure)
or "anon+shmem" (nothing measured: inherited pages that a fork has written to since are not seen).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """One smaps_rollup of a process."""

    rss_bytes: int
    pss_bytes: int
    uss_bytes: int  # its private pages
    anon_bytes: int  # by the cheap reading, at the same time


@dataclass(slots=True)
class Member:
    """One process of the tree, by its latest cheap reading."""

    anon_bytes: int = 0
    shared_bytes: int = 0  # file and shmem pages
    inherited_bytes: int = 0  # anonymous memory that came with the fork; 0 for a program of its own
    measured: Measured | None = None

    @property
    def rss_bytes(self) -> int:
        """Resident memory."""
        return self.anon_bytes + self.shared_bytes

    @property
    def unique_bytes(self) -> int:
        """Pages that it shares with nobody, as far as known."""
        if self.measured is not None:
            return max(0, self.measured.uss_bytes + self.anon_bytes - self.measured.anon_bytes)
        return max(0, self.anon_bytes - self.inherited_bytes)


def tree_bytes(root: Member, others: Sequence[Member], aside_bytes: int | None) -> int:
    """Memory of the tree. `aside_bytes` is what the others share without the root, None where it was not measured."""
    if not others:
        return root.rss_bytes
    aside = unmeasured_aside(root, others) if aside_bytes is None else aside_bytes
    return max(0, root.rss_bytes + sum(member.unique_bytes for member in others) + aside)


def unmeasured_aside(root: Member, others: Iterable[Member]) -> int:
    """At least what the others still hold of pages that the root has given back, or never had."""
    inherited = max((min(m.inherited_bytes, m.anon_bytes) for m in others), default=0)
    shared = max((m.shared_bytes for m in others), default=0)
    return max(0, inherited - root.anon_bytes) + max(0, shared - root.shared_bytes)


def measured_aside(root: Measured | None, forks: Iterable[Measured], strangers: Iterable[Measured]) -> int:
    """What the others share without the root, from a pass of measurements.

    With the root measured this makes the tree exactly the sum of PSS (so it may be negative: pages shared with
    processes outside the tree). Without, forks of the root are taken to share with it, and others among themselves.
    """
    aside = sum(m.pss_bytes - m.uss_bytes for m in strangers)
    if root is not None:
        aside += sum(m.pss_bytes - m.uss_bytes for m in forks) + root.pss_bytes - root.rss_bytes
    return aside
