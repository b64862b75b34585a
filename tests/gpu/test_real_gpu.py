"""The GPU reader on a real NVIDIA GPU, with memory allocated through libcuda alone."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memwatch.sources.gpu.trainer_gpus import open_files

pytestmark = pytest.mark.gpu

MIB = 1 << 20

# Takes as many MiB of GPU 0 as each line of stdin says, and answers a line.
TRAINER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
for line in sys.stdin:
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(int(line) << 20)) == 0
    print("taken", flush=True)
"""

# Reads the GPUs of the process argv[1] once per line of stdin.
READER = """
import dataclasses, json, sys, time
from pathlib import Path
from memwatch.errors import SourceError
from memwatch.sources.gpu.gpu_reader import GpuReader
tree = frozenset({int(sys.argv[1])})
reader = GpuReader(lambda: tree, json.loads(sys.argv[2]), patience_s=20, deadline_s=30)
def stats():
    return (path for pid in reader.pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
def seconds():
    helper = sum(int(path.read_text().split()[0]) for path in stats()) / 1e9
    return time.perf_counter(), time.process_time(), helper
for now, line in enumerate(sys.stdin):
    start, answer = seconds(), {}
    try:
        answer["gpus"] = [dataclasses.asdict(gpu) for gpu in reader.read(now * 10)]
    except SourceError as error:
        answer["error"] = str(error)
    cost = [after - before for before, after in zip(start, seconds())]
    print(json.dumps({**answer, "cost": cost, "helpers": list(reader.pids)}), flush=True)
start = time.perf_counter()
reader.close()
print(json.dumps(time.perf_counter() - start), flush=True)
"""


class Partner:
    """A Python child that answers one line to each line."""

    def __init__(self, code: str, *args: str) -> None:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.child = subprocess.Popen([sys.executable, "-c", code, *args], env=env, text=True, **pipes)

    def ask(self, line: str) -> str:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline()
        assert answer, "the child died"
        return answer.strip()

    def close(self) -> str:
        """Its last words."""
        return self.child.communicate()[0]


@pytest.fixture
def trainer() -> Iterator[Partner]:
    if not Path("/dev/nvidiactl").exists():
        pytest.skip("no NVIDIA GPU here")
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        pytest.skip(f"no CUDA driver library: {error}")
    partner = Partner(TRAINER)
    assert partner.ask("512") == "taken"
    yield partner
    partner.close()


@pytest.mark.parametrize("environ", [{}, {"CUDA_VISIBLE_DEVICES": "0"}])
def test_allocations_show(trainer: Partner, environ: dict[str, str]) -> None:
    reader = Partner(READER, str(trainer.child.pid), json.dumps(environ))
    before = json.loads(reader.ask("read"))
    trainer.ask("1024")
    after = json.loads(reader.ask("read"))
    reader.close()
    print(json.dumps({"before": before, "after": after}, indent=1))
    (old,), (new,) = before["gpus"], after["gpus"]
    assert new["resource"] == old["resource"]
    assert new["attribution"] in {"exact", "nspid", "device", "unified"}
    if new["attribution"] != "unified":
        assert 1000 * MIB <= new["device_used_bytes"] - old["device_used_bytes"] <= 1100 * MIB
        assert new["device_used_bytes"] < new["total_bytes"]
    if new["attribution"] in {"exact", "nspid"}:
        assert 1000 * MIB <= new["used_bytes"] - old["used_bytes"] <= 1100 * MIB


def test_another_process_has_no_gpu(trainer: Partner) -> None:
    stranger = Partner("import sys\nfor line in sys.stdin: print(line, flush=True)")
    reader = Partner(READER, str(stranger.child.pid), "{}")
    assert json.loads(reader.ask("read"))["gpus"] == []
    reader.close()
    stranger.close()


def test_nvml_is_held_by_the_helper_alone_and_given_back(trainer: Partner) -> None:
    reader = Partner(READER, str(trainer.child.pid), "{}")
    costs = [json.loads(reader.ask("read")) for _ in range(20)]
    [helper] = costs[-1]["helpers"]
    assert any(link.startswith("/dev/nvidia") for link in open_files(f"/proc/{helper}"))
    assert not any(link.startswith("/dev/nvidia") for link in open_files(f"/proc/{reader.child.pid}"))
    took = json.loads(reader.close())
    print(json.dumps({"seconds: wall, own CPU, helper's CPU": costs[-1]["cost"], "closing": took}))
    assert took < 0.6
    assert not Path(f"/proc/{helper}").exists()
    assert sorted(one["cost"][2] for one in costs)[10] < 0.005, "CPU seconds of a look"


def test_a_helper_that_is_killed_is_replaced(trainer: Partner) -> None:
    reader = Partner(READER, str(trainer.child.pid), "{}")
    before = json.loads(reader.ask("read"))
    os.kill(before["helpers"][0], signal.SIGKILL)
    assert "NVML's helper ended" in json.loads(reader.ask("read"))["error"]
    after = json.loads(reader.ask("read"))
    reader.close()
    assert [gpu["resource"] for gpu in after["gpus"]] == [gpu["resource"] for gpu in before["gpus"]]
    assert after["helpers"] != before["helpers"]
