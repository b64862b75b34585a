"""Which process of a job is examined next, the trainer's own or a worker, and what was read in each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from memwatch.core.events import Diagnosed
from memwatch.core.examination import ProcessSize
from memwatch.core.leaks.examination_history import ExaminationHistory

LISTINGS_KEPT = 6  # Latest examinations, each with the sizes of all processes, over which growth counts (chosen).
MOST = 0.5  # Workers explain growth, and one is like another, from this share on (chosen).


class ExaminedProcess:
    """One process, and its examinations."""

    def __init__(self, t: float, track: Iterable[str] = (), worker: ProcessSize | None = None) -> None:
        """`worker`: None for the trainer's own process."""
        self.worker = worker
        is_worker = worker is not None
        self.heaps = ExaminationHistory(t, track, of_worker=is_worker)
        # Looks at what the program's own names lead to.
        self.names = ExaminationHistory(t, of_names=True, of_worker=is_worker)
        self.explained = True  # memory does not grow, or names explain its growth


class ProcessChoice:
    """Chooses the process that is examined next.

    Examinations are shared out among the trainer's own process and its workers as seats are among parties (D'Hondt):
    the next is of whichever has grown more for each that it had and would have. Of workers, the one that grows the most
    is examined, and stays so while others grow alike.
    """

    def __init__(self, least_bytes: float) -> None:
        """`least_bytes`: growth of workers below this does not count."""
        self._least_bytes = least_bytes
        self._listings: deque[tuple[ProcessSize, ...]] = deque(maxlen=LISTINGS_KEPT)
        self._were_workers: deque[bool] = deque(maxlen=LISTINGS_KEPT)
        self._unreadable: set[tuple[int, int]] = set()
        self.worker: ProcessSize | None = None  # to be examined next; None: the trainer's own process
        self.workers_explain = False  # most of the growth is in workers
        self.alike = 0  # workers that grow like the one that is examined, which is one of them

    def add(self, event: Diagnosed) -> None:
        """An examination has ended."""
        examined, found = event.asked.worker, event.found
        if examined is not None and found.names is None and found.census is None:
            self._unreadable.add(_key(examined))
        if found.processes:
            self._listings.append(found.processes)
            self._were_workers.append(examined is not None)
            self._choose()

    def _choose(self) -> None:
        first: dict[tuple[int, int], int] = {}
        for listing in self._listings:
            for one in listing:
                first.setdefault(_key(one), one.anon_bytes)
        own, *workers = self._listings[-1]
        grown = {_key(one): max(0, one.anon_bytes - first[_key(one)]) for one in (own, *workers)}
        in_own, in_workers = grown[_key(own)], sum(grown[_key(one)] for one in workers)
        self.workers_explain = in_workers >= max(MOST * (in_own + in_workers), self._least_bytes)
        workers = [one for one in workers if _key(one) not in self._unreadable and grown[_key(one)]]
        of_workers = sum(self._were_workers)
        of_own = len(self._were_workers) - of_workers
        known, self.worker, self.alike = self.worker, None, 0
        if workers and in_workers >= self._least_bytes and in_workers * (of_own + 1) > in_own * (of_workers + 1):
            most = max(workers, key=lambda one: grown[_key(one)])
            alike = [one for one in workers if grown[_key(one)] >= MOST * grown[_key(most)]]
            same = [one for one in alike if known is not None and _key(one) == _key(known)]
            self.worker, self.alike = (same or [most])[0], len(alike)


def _key(one: ProcessSize) -> tuple[int, int]:
    return one.pid, one.start_ticks
