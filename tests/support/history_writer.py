"""Appends to a history file as a daemon does, and reports each record on stdout once `append` has returned."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from memwatch.core.events import Attached, GenerationSeen, Notice, Sampled
from memwatch.core.measurements import HOST, Limit, Sample, Target, Usage
from memwatch.history.event_store import HistoryStore


def main(path: str, key: str, pid: int, count: int, pause: float) -> None:
    store = HistoryStore.open(Path(path))
    t = time.time()
    attached = Attached(t, Target("boot", pid, 1), "train")
    opening = store.open_run(key, attached, t)
    print(opening.run_id, flush=True)
    store.append([attached], [])
    for index in range(count):
        usage = Usage(HOST, 10**9 + index, Limit(10**10, "cgroup /a", 9 * 10**9))
        events = [GenerationSeen(t + index, index), Sampled(t + index, Sample((usage,)))]
        store.append(events, [Notice(t + index, "generation", str(index), {"index": index})])
        print(index, time.monotonic(), store.failure or "", flush=True)
        time.sleep(pause)
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
