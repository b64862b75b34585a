"""The GPU reader on a real NVIDIA GPU, with memory allocated through libcuda alone."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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

# Reads the GPUs of the process argv[1] once per line of stdin. Its own process: this one may hold the fake library.
READER = """
import dataclasses, json, sys, time
from memwatch.sources.gpus import GpuReader
tree = frozenset({int(sys.argv[1])})
reader = GpuReader(lambda: tree, json.loads(sys.argv[2]), patience_s=20, deadline_s=30)
for now, line in enumerate(sys.stdin):
    start = time.perf_counter(), time.process_time()
    gpus = reader.read(now * 10)
    cost = [time.perf_counter() - start[0], time.process_time() - start[1]]
    print(json.dumps({"gpus": [dataclasses.asdict(gpu) for gpu in gpus], "cost": cost}), flush=True)
reader.close()
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

    def close(self) -> None:
        self.child.communicate()


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
