"""One look at memory with readers that fail: the rest is there, and what is missing has its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memwatch.app.sampler import Sampler
from memwatch.core.measurements import GpuMemory, HostMemory, TreeMemory, UnavailableSource
from memwatch.errors import AbsentError, SourceError, TargetGoneError

GB = 10**9
TREE = TreeMemory(processes=1, rss_bytes=3 * GB, used_bytes=3 * GB, accounting="rss")
HOST = HostMemory(64 * GB, 60 * GB, 0)


class Fixed:
    """A reader that gives one thing, or raises it."""

    def __init__(self, name: str, gives: Any) -> None:
        self.name, self.gives, self.closed, self.reads = name, gives, 0, 0

    def read_memory(self, now: float) -> Any:
        self.reads += 1
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives

    def close(self) -> None:
        self.closed += 1


def sampler(tree: Any = TREE, cgroup: Any = None, host: Any = HOST, gpus: Any = ()) -> tuple[Sampler, list[Fixed]]:
    cgroup = cgroup or AbsentError("no memory cgroup")
    readers = [Fixed("procfs", tree), Fixed("cgroup", cgroup), Fixed("host", host), Fixed("nvml", gpus)]
    return Sampler(*readers, limit_bytes=10 * GB), readers


def test_all_that_can_be_read_is_there() -> None:
    sample = sampler()[0].sample(1.0)
    assert (sample.tree, sample.cgroup, sample.host, sample.gpus) == (TREE, None, HOST, ())
    [usage] = sample.usages
    assert usage.used_bytes == 3 * GB
    assert usage.limit is not None and (usage.limit.bytes, usage.limit.origin) == (10 * GB, "--limit")
    assert sample.unread == (UnavailableSource("cgroup", "no memory cgroup", absent=True),)


def test_what_is_absent_is_asked_for_every_five_seconds() -> None:
    one, readers = sampler(gpus=AbsentError("no NVIDIA driver here"))
    for t in range(12):
        assert UnavailableSource("nvml", "no NVIDIA driver here", absent=True) in one.sample(float(t)).unread
    assert (readers[0].reads, readers[3].reads) == (12, 3)
    readers[3].gives = ()
    assert "nvml" not in [missing.source for missing in one.sample(15.0).unread]


def test_each_reader_fails_alone() -> None:
    error = SourceError("denied")
    for name in ("tree", "host", "gpus"):
        sample = sampler(**{name: error})[0].sample(1.0)
        failed = [one for one in sample.unread if not one.absent]
        assert [one.reason for one in failed] == [str(error)]
        assert (sample.tree is None, sample.host is None) == (name == "tree", name == "host")


def test_a_bug_in_a_reader_is_told_and_the_others_are_read() -> None:
    sample = sampler(tree=ValueError("x not in tuple"))[0].sample(1.0)
    assert [one.reason for one in sample.unread if not one.absent] == ["internal error: ValueError: x not in tuple"]
    assert (sample.tree, sample.host) == (None, HOST)


def test_when_nothing_can_be_read_there_is_a_sample_that_says_why_of_each() -> None:
    error = SourceError("denied")
    sample = sampler(error, error, error, error)[0].sample(1.0)
    assert sample.usages == ()
    assert [one.source for one in sample.unread] == ["procfs", "cgroup", "host", "nvml"]


def test_a_reading_of_gpus_is_fed_once_and_stays_in_sight() -> None:
    gpu = GpuMemory("gpu0", "GPU-1", "H200", 10 * GB, 30 * GB, 140 * GB, "exact")
    both, readers = sampler(gpus=(gpu,))
    assert [usage.resource for usage in both.sample(1.0).usages] == ["host", "gpu0"]
    again = both.sample(1.1)
    assert ([usage.resource for usage in again.usages], again.gpus) == (["host"], (gpu,))
    readers[3].gives = (replace(gpu),)
    assert [usage.resource for usage in both.sample(1.2).usages] == ["host", "gpu0"], "an equal one is a new reading"


def test_without_gpus_there_is_no_gpu_reader_to_fail() -> None:
    _, readers = sampler()
    alone = Sampler(*readers[:3], gpus=None, limit_bytes=None)  # type: ignore[misc]
    assert alone.sample(1.0).gpus == ()
    alone.close()
    assert [one.closed for one in readers] == [1, 1, 1, 0]


def test_a_gpu_driver_that_is_asked_for_and_absent_is_a_failure() -> None:
    _, readers = sampler(gpus=AbsentError("no NVIDIA driver here"))
    for expected in (False, True):
        sample = Sampler(*readers, limit_bytes=None, gpus_expected=expected).sample(1.0)
        assert [one.absent for one in sample.unread if one.source == "nvml"] == [not expected]


def test_a_trainer_without_memory_is_no_sample() -> None:
    with pytest.raises(TargetGoneError):
        sampler(tree=TargetGoneError("it has ended"))[0].sample(1.0)
