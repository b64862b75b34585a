"""The GPU reader through the real pynvml, on a libnvidia-ml.so.1 of our own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memwatch.core.measurements import GpuMemory
from memwatch.errors import AbsentError, SourceError
from memwatch.sources.gpu.gpu_reader import HELPER_CODE, GpuReader
from memwatch.sources.gpu.trainer_gpus import GpuDevice, NvmlPidResolver, parse_nspid, visible_devices
from support.fakenvml import GIB, World, library_folder, uuid
from support.freezer import frozen
from support.mainjob import until
from support.stopwatch import Stopwatch

TRAINER, WORKER, STRANGER = 3_900_001, 3_900_002, 3_900_003  # PIDs that no process here has
COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
MEMORY = "nvmlDeviceGetMemoryInfo"
NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND, GPU_IS_LOST, VERSION_MISMATCH = 3, 4, 9, 13, 15, 18


class Bench:
    """A fake world and readers over it."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder / "world")
        self.proc = folder / "proc"
        self.namespace("pid:[4026531836]")
        self._trace = folder / "nvidiactl"
        self._trace.touch()
        self.readers: list[GpuReader] = []
        self.tree = frozenset({TRAINER, WORKER})

    def namespace(self, link: str, pid: int | str = "self", nspid: str = "") -> None:
        folder = self.proc / str(pid) / "ns"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pid").unlink(missing_ok=True)
        (folder / "pid").symlink_to(link)
        (folder.parent / "status").write_text(f"Name:\tpython\nNSpid:\t{nspid}\nPPid:\t1\n")

    def container(self) -> None:
        self.namespace("pid:[4026532999]")

    def opens(self, pid: int, path: str) -> None:
        fds = self.proc / str(pid) / "fd"
        fds.mkdir(parents=True, exist_ok=True)
        (fds / str(len(list(fds.iterdir())))).symlink_to(path)

    def reader(self, patience_s: float = 5.0, helper_code: str = HELPER_CODE, **environ: str) -> GpuReader:
        reader = GpuReader(
            lambda: self.tree,
            environ,
            root=str(self.proc),
            driver_traces=[str(self._trace)],
            patience_s=patience_s,
            helper_code=helper_code,
        )
        self.readers.append(reader)
        return reader


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    if library_folder() is None:
        pytest.skip("no C compiler for the fake libnvidia-ml.so.1")
    bench = Bench(tmp_path)
    for name, value in bench.world.environ().items():
        monkeypatch.setenv(name, value)
    yield bench
    for reader in bench.readers:
        pids = reader.pids
        reader.close()
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()], "nothing is left behind"


def until_gone(*pids: int) -> None:
    """They end soon; one that nobody has waited for yet has ended."""

    def ended(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            return True

    until(lambda: all(map(ended, pids)))


def only(gpus: tuple[GpuMemory, ...]) -> GpuMemory:
    assert len(gpus) == 1
    return gpus[0]


def patiently(reader: GpuReader, now: float) -> tuple[GpuMemory, ...]:
    """The first reading at `now` that gives a GPU."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if gpus := reader.read_memory(now):
                return gpus
        except SourceError:
            pass
        time.sleep(0.005)
    pytest.fail("no reading in 5 s")


# --- who uses what ------------------------------------------------------------------------------------------------


def test_tree_pids_are_summed_on_their_device_alone(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.gpu(1, total=80 * GIB, free=50 * GIB)
    bench.world.process("0", STRANGER, 9 * GIB)
    bench.world.process("1", TRAINER, 20 * GIB)
    bench.world.process("1", WORKER, 2 * GIB)
    bench.world.process("1", STRANGER, 5 * GIB)
    gpu = only(bench.reader().read_memory(0))
    pids = (TRAINER, WORKER)
    assert gpu == GpuMemory("gpu1", uuid("GPU", 1), "Fake H1", 22 * GIB, 30 * GIB, 80 * GIB, "exact", pids=pids)


def test_a_process_with_graphics_and_compute_counts_once(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", TRAINER, 3 * GIB, "Compute")
    bench.world.process("0", TRAINER, 3 * GIB, "Graphics")
    bench.world.process("0", WORKER, 1 * GIB, "MPSCompute")
    assert only(bench.reader().read_memory(0)).used_bytes == 4 * GIB


def test_more_processes_than_one_call_holds(bench: Bench) -> None:
    bench.world.gpu(0)
    for pid in range(1, 40):
        bench.world.process("0", pid, 4096)
    bench.world.process("0", TRAINER, GIB)
    assert only(bench.reader().read_memory(0)).used_bytes == GIB


def test_nothing_links_a_device_to_the_trainer(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", STRANGER, GIB)
    assert bench.reader(CUDA_VISIBLE_DEVICES="0").read_memory(0) == ()


def test_a_gpu_taken_up_later_is_found(bench: Bench) -> None:
    bench.world.gpu(0)
    reader = bench.reader()
    assert reader.read_memory(0) == ()
    bench.world.process("0", TRAINER, GIB)
    assert only(reader.read_memory(6)).used_bytes == GIB


def test_bytes_not_available(bench: Bench) -> None:
    bench.world.gpu(0, total=80 * GIB, free=60 * GIB)
    bench.world.process("0", TRAINER, "na")
    gpu = only(bench.reader().read_memory(0))
    assert (gpu.used_bytes, gpu.device_used_bytes, gpu.attribution) == (None, 20 * GIB, "device")
    assert "by process" in gpu.reason


def test_old_driver_without_version_3(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", TRAINER, GIB)
    for kind in ("Compute", "Graphics", "MPSCompute"):
        bench.world.fail(f"nvmlDeviceGet{kind}RunningProcesses_v3", FUNCTION_NOT_FOUND)
    reader = bench.reader()
    assert only(reader.read_memory(0)).used_bytes == GIB
    assert only(reader.read_memory(1)).attribution == "exact"
    assert bench.world.calls(f"{COMPUTE}_v3") == 1  # asked once, remembered


def test_no_process_list_leaves_the_devices_given(bench: Bench) -> None:
    for index in range(3):
        bench.world.gpu(index, free=(40 + index) * GIB)
    bench.world.fail(f"{COMPUTE}_v3", NO_PERMISSION)
    gpus = bench.reader(CUDA_VISIBLE_DEVICES=f"2,{uuid('GPU', 0)[:12]}").read_memory(0)
    assert [(gpu.resource, gpu.used_bytes, gpu.attribution) for gpu in gpus] == [
        ("gpu0", None, "device"),
        ("gpu2", None, "device"),
    ]
    assert "Insufficient Permissions" in gpus[0].reason
    assert bench.reader(CUDA_VISIBLE_DEVICES="-1").read_memory(0) == ()
    assert bench.reader(CUDA_VISIBLE_DEVICES="").read_memory(0) == ()


# --- containers ---------------------------------------------------------------------------------------------------


def test_container_that_hides_processes_uses_open_devices(bench: Bench) -> None:
    bench.container()
    bench.world.gpu(0, minor=5)
    bench.world.gpu(1, minor=6)
    bench.opens(TRAINER, "/dev/nvidia6")
    bench.opens(TRAINER, "/dev/nvidiactl")
    gpu = only(bench.reader().read_memory(0))
    assert (gpu.resource, gpu.attribution, gpu.device_used_bytes) == ("gpu1", "device", 20 * GIB)
    assert gpu.reason == "NVML lists none of the trainer's processes here"


def test_container_whose_list_shows_us_is_believed(bench: Bench) -> None:
    bench.container()
    bench.world.gpu(0)
    bench.world.gpu(1)
    bench.world.process("1", TRAINER, GIB)
    assert only(bench.reader(CUDA_VISIBLE_DEVICES="0,1").read_memory(0)).resource == "gpu1"


def test_host_pids_are_mapped_by_nspid(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", 41230, GIB)
    bench.tree = frozenset({17})
    bench.namespace("pid:[4026532001]", 41230, "41230 17")
    bench.namespace("pid:[4026532001]", 17, "17")
    gpu = only(bench.reader().read_memory(0))
    assert (gpu.used_bytes, gpu.attribution) == (GIB, "nspid")


def test_same_inner_pid_in_another_container_is_not_ours(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", 41230, GIB)
    bench.tree = frozenset({17})
    bench.namespace("pid:[4026532002]", 41230, "41230 17")
    bench.namespace("pid:[4026532001]", 17, "17")
    assert bench.reader().read_memory(0) == ()


def test_inner_pids_are_mapped_unless_a_process_has_that_pid(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", 17, GIB)
    bench.namespace("pid:[4026532001]", TRAINER, f"{TRAINER} 17")
    assert only(bench.reader().read_memory(0)).attribution == "nspid"
    bench.namespace("pid:[4026531836]", 17, "17")
    assert bench.reader().read_memory(0) == ()


# --- figures that are missing or cannot be true -------------------------------------------------------------------


def test_one_pool_with_the_host(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", TRAINER, GIB)
    bench.world.fail(MEMORY, NOT_SUPPORTED)
    gpu = only(bench.reader().read_memory(0))
    assert (gpu.attribution, gpu.total_bytes, gpu.device_used_bytes, gpu.used_bytes) == ("unified", None, None, GIB)


def test_wide_entries_spoil_the_list(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.say("wide")
    bench.world.process("0", TRAINER, GIB)
    bench.world.process("0", 4321, GIB)
    gpu = only(bench.reader().read_memory(0))
    assert (gpu.used_bytes, gpu.attribution) == (None, "device")
    assert "cannot be true" in gpu.reason


def test_more_used_than_there_is(bench: Bench) -> None:
    bench.world.gpu(0, total=8 * GIB, free=GIB)
    bench.world.process("0", TRAINER, 9 * GIB)
    gpu = only(bench.reader().read_memory(0))
    assert gpu.used_bytes is None
    assert "used of" in gpu.reason
    bench.world.gpu(0, total=8 * GIB, free=9 * GIB)
    assert only(bench.reader().read_memory(0)).device_used_bytes is None


def test_a_total_that_is_no_number_of_bytes(bench: Bench) -> None:
    bench.world.gpu(0, total=2**64 - 1, free=2**64 - 1)
    bench.world.process("0", TRAINER, GIB)
    gpu = only(bench.reader().read_memory(0))
    assert (gpu.total_bytes, gpu.device_used_bytes, gpu.used_bytes) == (None, None, GIB)
    assert "a total of" in gpu.reason


# --- MIG ----------------------------------------------------------------------------------------------------------


def test_mig_instances_stand_for_their_gpu(bench: Bench) -> None:
    bench.world.gpu(0, mig=1)
    bench.world.gpu(1, mig=-1)
    bench.world.mig(0, 0)
    bench.world.mig(0, 2, total=20 * GIB, free=15 * GIB)
    bench.world.process("0:2", TRAINER, 3 * GIB)
    gpu = only(bench.reader().read_memory(0))
    assert gpu == GpuMemory(
        "gpu0:2", uuid("MIG", 2), "Fake H0 MIG 1g", 3 * GIB, 5 * GIB, 20 * GIB, "exact", pids=(TRAINER,)
    )


def test_mig_instance_given_by_uuid(bench: Bench) -> None:
    bench.world.gpu(0, mig=1)
    bench.world.mig(0, 0)
    bench.world.mig(0, 1)
    bench.world.fail(f"{COMPUTE}_v3", NO_PERMISSION)
    assert only(bench.reader(CUDA_VISIBLE_DEVICES=uuid("MIG", 1)).read_memory(0)).resource == "gpu0:1"


# --- failures and recoveries --------------------------------------------------------------------------------------


def test_driver_restart(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", TRAINER, GIB)
    reader = bench.reader()
    assert reader.read_memory(0)
    bench.world.say("init", DRIVER_NOT_LOADED)
    bench.world.say("epoch", 1)
    with pytest.raises(SourceError, match="Uninitialized"):
        reader.read_memory(1)
    with pytest.raises(SourceError, match="Driver Not Loaded") as caught:
        reader.read_memory(2)
    assert not isinstance(caught.value, AbsentError)  # it was there
    inits = bench.world.calls("nvmlInitWithFlags")
    with pytest.raises(SourceError):
        reader.read_memory(3)  # backing off: not asked
    assert bench.world.calls("nvmlInitWithFlags") == inits
    bench.world.forget("init")
    assert only(reader.read_memory(5)).used_bytes == GIB


def test_lost_gpu_leaves_the_others(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.gpu(1)
    bench.world.process("0", TRAINER, GIB)
    bench.world.process("1", WORKER, GIB)
    reader = bench.reader()
    assert len(reader.read_memory(0)) == 2
    for function in (MEMORY, f"{COMPUTE}_v3", "nvmlDeviceGetHandleByIndex_v2"):
        bench.world.fail(function, GPU_IS_LOST, "1")
    for now in (1, 2, 3, 7, 20):  # before and after NVML was initialized anew
        states = {gpu.resource: (gpu.attribution, gpu.used_bytes, gpu.reason) for gpu in reader.read_memory(now)}
        assert states == {"gpu0": ("exact", GIB, ""), "gpu1": ("unavailable", None, "GPU is lost")}
    assert bench.world.calls("nvmlInitWithFlags") > 1
    bench.world.forget("fail")
    assert {gpu.attribution for gpu in reader.read_memory(200)} == {"exact"}


def test_a_lost_gpu_is_looked_for_ever_more_rarely(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.gpu(1)
    bench.world.process("0", TRAINER, GIB)
    bench.world.process("1", WORKER, GIB)
    reader, inits = bench.reader(), []
    reader.read_memory(0)
    for function in (MEMORY, f"{COMPUTE}_v3", "nvmlDeviceGetHandleByIndex_v2"):
        bench.world.fail(function, GPU_IS_LOST, "1")
    for now in range(1, 200):
        before = bench.world.calls("nvmlInitWithFlags")
        assert reader.read_memory(now)[0].used_bytes == GIB, "the other is read all the while"
        inits += [now] * (bench.world.calls("nvmlInitWithFlags") - before)
    assert inits == [2, 4, 8, 16, 32, 64, 124, 184]


def test_every_gpu_lost_is_a_failure(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", TRAINER, GIB)
    reader = bench.reader()
    reader.read_memory(0)
    bench.world.fail(MEMORY, GPU_IS_LOST)
    with pytest.raises(SourceError, match="gpu0: GPU is lost"):
        reader.read_memory(1)
    bench.world.forget("fail")
    assert only(reader.read_memory(10)).used_bytes == GIB


def test_an_updated_driver_is_met_by_a_new_library(bench: Bench) -> None:
    """The one that is loaded has a mismatch for ever; a new process loads the one that came with the driver."""
    bench.world.gpu(0)
    bench.world.process("0", TRAINER, GIB)
    reader = bench.reader()
    assert reader.read_memory(0)
    bench.world.say("driver", 2)
    bench.world.say("epoch", 1)
    with pytest.raises(SourceError, match="Uninitialized"):
        reader.read_memory(1)
    assert only(reader.read_memory(2)).used_bytes == GIB


def test_library_and_driver_of_different_versions(bench: Bench) -> None:
    bench.world.say("init", VERSION_MISMATCH)
    with pytest.raises(SourceError, match="mismatch") as caught:
        bench.reader().read_memory(0)
    assert "reload" in caught.value.hint


def test_ever_rarer_attempts(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", TRAINER, GIB)
    bench.world.say("init", VERSION_MISMATCH)
    reader, attempts = bench.reader(), []
    for now in range(600):
        before = bench.world.calls("nvmlInitWithFlags")
        with pytest.raises(SourceError, match="mismatch"):
            reader.read_memory(now)
        if bench.world.calls("nvmlInitWithFlags") > before:
            attempts.append(now)
    assert attempts == [0, 1, 3, 7, 15, 31, 63, 127, 247, 367, 487]
    bench.world.forget("init")
    assert only(reader.read_memory(607)).used_bytes == GIB
    bench.world.say("epoch", 1)
    with pytest.raises(SourceError):
        reader.read_memory(608)
    assert only(reader.read_memory(609)).used_bytes == GIB, "what has worked is tried again at once"


def test_a_crash_of_the_library_is_not_memwatchs(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", TRAINER, GIB)
    reader = bench.reader()
    reader.read_memory(0)
    bench.world.crash(MEMORY)
    with pytest.raises(SourceError, match="helper ended"):
        reader.read_memory(1)
    bench.world.forget("crash")
    assert only(reader.read_memory(2)).used_bytes == GIB


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", MEMORY, f"{COMPUTE}_v3"])
def test_a_hang_never_holds_the_loop_and_is_left_behind(bench: Bench, function: str) -> None:
    bench.world.gpu(0)
    bench.world.process("0", TRAINER, GIB)
    reader = bench.reader(patience_s=0.0)
    if function != "nvmlInitWithFlags":
        patiently(reader, -1)
    bench.world.hang(function)
    reader.read_memory(0)
    [helper] = reader.pids
    longest = 0.0
    for now in (2, 3, 4, 29):
        start = Stopwatch()
        with pytest.raises(SourceError, match="does not answer within 2 s"):
            reader.read_memory(now)
        longest = max(longest, start.undisturbed_seconds)
    assert longest < 0.02
    assert bench.world.calls(function) <= 3, "no question piles up behind it"
    assert reader.pids == {helper}, "an answer that comes late is still welcome"
    with pytest.raises(SourceError):
        reader.read_memory(30)
    until_gone(helper)
    with pytest.raises(SourceError, match="does not answer within 2 s"):
        reader.read_memory(31)
    [successor] = reader.pids
    assert successor != helper
    bench.world.forget("hang")
    assert only(patiently(reader, 32)).used_bytes == GIB
    assert reader.pids == {successor}


def test_who_waits_for_the_first_answer_hears_that_there_is_none(bench: Bench) -> None:
    """As `memwatch doctor` does, with one reading."""
    bench.world.hang("nvmlInitWithFlags")
    reader = GpuReader(lambda: bench.tree, {}, driver_traces=[str(bench.world.file)], patience_s=0.3, deadline_s=0.3)
    bench.readers.append(reader)
    with pytest.raises(SourceError, match=r"does not answer within 0\.3 s"):
        reader.read_memory(0)


def test_an_answer_that_comes_late_is_taken(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", TRAINER, GIB)
    reader = bench.reader(patience_s=0.0)
    patiently(reader, 0)
    bench.world.hang(f"{COMPUTE}_v3")
    assert only(reader.read_memory(1)).used_bytes == GIB, "not late yet"
    with pytest.raises(SourceError):
        reader.read_memory(5)
    bench.world.process("0", TRAINER, 2 * GIB)
    bench.world.forget("hang")
    assert only(patiently(reader, 6)).used_bytes == 2 * GIB
    assert bench.world.calls("nvmlInitWithFlags") == 1


def test_helpers_that_cannot_be_killed_are_two_at_most(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", TRAINER, GIB)
    bench.world.hang("nvmlInitWithFlags")
    met: set[int] = set()
    reason = ""
    reader = bench.reader(patience_s=0.0)
    with frozen("nvml") as freeze:
        for now in range(2000):
            met |= reader.pids
            for pid in reader.pids:
                freeze(pid)
            try:
                reader.read_memory(now)
            except SourceError as error:
                reason = str(error)
        assert len(met) == len(reader.pids) == 2
        assert "2 processes that cannot be killed" in reason
    until_gone(*met)
    bench.world.forget("hang")
    assert only(patiently(reader, 2200)).used_bytes == GIB


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", MEMORY, "nvmlShutdown"])
def test_close_does_not_wait_for_a_hang(bench: Bench, function: str) -> None:
    bench.world.gpu(0)
    bench.world.process("0", TRAINER, GIB)
    reader = bench.reader(patience_s=0.0)
    if function != "nvmlInitWithFlags":
        patiently(reader, 0)
    bench.world.hang(function)
    reader.read_memory(1)
    [helper] = reader.pids
    start = Stopwatch()
    reader.close()
    assert start.undisturbed_seconds < 0.6
    until_gone(helper)


def test_close_gives_nvml_back(bench: Bench) -> None:
    bench.world.gpu(0)
    reader = bench.reader()
    reader.read_memory(0)
    reader.close()
    assert bench.world.calls("nvmlShutdown") == 1


# --- long idle ----------------------------------------------------------------------------------------------------


def test_nvml_is_given_back_while_no_gpu_is_used(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.opens(TRAINER, "/dev/nvidia0")  # as a logger does that looks at the GPU itself
    reader = bench.reader()
    assert not any(reader.read_memory(now) for now in range(300))
    [helper] = reader.pids
    assert bench.world.calls("nvmlShutdown") == 0
    assert reader.read_memory(300) == ()
    until_gone(helper)
    assert bench.world.calls("nvmlShutdown") == 1
    assert not any(reader.read_memory(now) for now in range(301, 900))
    assert (bench.world.calls("nvmlInitWithFlags"), reader.pids) == (1, frozenset())
    assert reader.read_memory(900) == (), "to be sure"
    assert bench.world.calls("nvmlInitWithFlags") == 2
    until_gone(*reader.pids)
    assert bench.world.calls("nvmlShutdown") == 2


def test_nvml_is_taken_again_when_a_gpu_is_opened(bench: Bench) -> None:
    bench.world.gpu(0)
    reader = bench.reader()
    for now in range(0, 400):
        reader.read_memory(now)
    bench.opens(WORKER, "/dev/nvidia0")
    bench.world.process("0", WORKER, GIB)
    found = [now for now in range(400, 410) if reader.read_memory(now)]
    assert found and found[0] <= 405


def test_a_gpu_that_is_used_is_never_given_back(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", TRAINER, GIB)
    reader = bench.reader()
    assert all(reader.read_memory(now) for now in range(0, 1000, 5))
    assert bench.world.calls("nvmlInitWithFlags") == 1


def test_a_hung_helper_ends_with_memwatch(bench: Bench) -> None:
    bench.world.hang("nvmlInitWithFlags")
    code = READ.replace(
        "print([gpu", "reader.read_memory(0), print(*reader.pids, flush=True), time.sleep(60)\n    print([gpu"
    )
    command = [sys.executable, "-c", code.replace("patience_s=10", "patience_s=0"), str(bench.world.file)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as memwatch:
        assert memwatch.stdout is not None
        helper = int(memwatch.stdout.readline())
        until(lambda: bench.world.calls("nvmlInitWithFlags"))
        memwatch.kill()
    until_gone(helper)


def test_pace(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", TRAINER, GIB)
    reader = bench.reader()
    first = reader.read_memory(0)
    bench.world.process("0", TRAINER, 2 * GIB)
    assert reader.read_memory(0.9) is first
    assert only(reader.read_memory(1.0)).used_bytes == 2 * GIB


# --- no driver ----------------------------------------------------------------------------------------------------


def test_driver_not_loaded_is_normal_and_rarely_asked(bench: Bench) -> None:
    bench.world.say("init", DRIVER_NOT_LOADED)
    reader = bench.reader()
    for now in (0, 1, 30, 299):
        with pytest.raises(AbsentError):
            reader.read_memory(now)
    assert bench.world.calls("nvmlInitWithFlags") == 1
    bench.world.forget("init")
    bench.world.gpu(0)
    bench.world.process("0", TRAINER, GIB)
    assert reader.read_memory(300)


def run_python(code: str, *args: str, **environ: str) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environ}
    done = subprocess.run(
        [sys.executable, "-c", code, *args], env=env, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


READ = """
import sys, time
from memwatch.errors import AbsentError
from memwatch.sources.gpu.gpu_reader import GpuReader
reader = GpuReader(lambda: frozenset({3900001}), {}, driver_traces=sys.argv[1:], patience_s=10)
try:
    print([gpu.used_bytes for gpu in reader.read_memory(0)])
except AbsentError as error:
    print(error, "|", error.hint, len(reader.pids))
assert not {"pynvml", "ctypes"} & set(sys.modules)
"""


def test_no_trace_of_a_driver_loads_no_nvml_and_starts_nothing() -> None:
    assert run_python(READ, "/nonexistent/nvidiactl") == "no NVIDIA driver here |  0"


def test_no_library(tmp_path: Path) -> None:
    if any(Path(p).exists() for p in ("/dev/nvidiactl", "/proc/driver/nvidia")):
        pytest.skip("there is a driver here")
    (tmp_path / "nvidiactl").touch()
    out = run_python(READ, str(tmp_path / "nvidiactl"), LD_LIBRARY_PATH="")
    assert out.startswith("libnvidia-ml.so.1 not found")
    assert "NVIDIA_DRIVER_CAPABILITIES" in out


def test_library_is_found_as_pynvml_finds_it(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", TRAINER, GIB)
    assert run_python(READ, str(bench.world.file), **bench.world.environ()) == f"[{GIB}]"


# --- pure parts ---------------------------------------------------------------------------------------------------


def units(count: int) -> list[GpuDevice]:
    return [GpuDevice(f"gpu{i}", i, uuid("GPU", i), uuid("GPU", i), "", i) for i in range(count)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0,2", {"gpu0", "gpu2"}),
        (" 1 , 0", {"gpu0", "gpu1"}),
        ("0,-1,2", {"gpu0"}),
        ("0,9,1", {"gpu0"}),
        ("NoDevFiles", set()),
        ("", set()),
        ("GPU-00000001", {"gpu1"}),
        ("GPU-0", set()),  # not the abbreviation of one
        ("²", set()),
    ],
)
def test_visible_devices(text: str, found: set[str]) -> None:
    assert visible_devices(text, units(4)) == found


@given(st.text(max_size=40))
def test_any_visible_devices_names_existing_units(text: str) -> None:
    assert visible_devices(text, units(2)) <= {"gpu0", "gpu1"}


@given(st.binary(max_size=80) | st.binary(max_size=30).map(lambda b: b"NSpid:\t" + b))
def test_any_status_gives_pids_or_nothing(status: bytes) -> None:
    assert all(pid >= 0 for pid in parse_nspid(status))


def test_nspid_line() -> None:
    assert parse_nspid(b"Name:\tNSpid: 3\nNgid:\t0\nNSpid:\t41230\t17\nPPid:\t1\n") == (41230, 17)


def test_the_real_proc() -> None:
    pids = NvmlPidResolver()
    assert pids.resolve(os.getppid(), frozenset({os.getpid()})) is None
    assert pids.open_devices({os.getpid()}) == frozenset()


# --- hostile figures ----------------------------------------------------------------------------------------------

FIGURES = st.sampled_from([0, 1, 4095, TRAINER, 2**31, 2**40, 2**60, 2**63, 2**64 - 2, 2**64 - 1]) | st.integers(
    0, 2**64 - 1
)
NAMES = st.binary(min_size=1, max_size=90).map(
    lambda raw: raw.replace(b"\n", b".").replace(b"\0", b".").strip() or b"."
)
PIDS = st.sampled_from([0, 1, TRAINER, WORKER, STRANGER, 2**22, 2**32 - 1])


@st.composite
def worlds(draw: st.DrawFn) -> list[tuple[str, str]]:
    """Lines of a world in which no figure need be true."""
    lines = []
    for index in range(draw(st.integers(0, 3))):
        minor, total, free, mig = draw(st.tuples(st.sampled_from([-1, 0, 2**31 - 1]), FIGURES, FIGURES, st.booleans()))
        name = draw(NAMES).decode("utf-8", "surrogateescape")
        lines.append((f"gpu {index}", f"{uuid('GPU', index)} {minor} {total} {free} {int(mig)} {name}"))
        if mig:
            lines.append((f"mig {index} 0", f"{draw(NAMES).hex()} {draw(FIGURES)} {draw(FIGURES)} {name}"))
        for pid in draw(st.sets(PIDS, max_size=4)):
            unit = f"{index}:0" if mig else f"{index}"
            lines.append((f"proc {unit} Compute {pid}", draw(FIGURES.map(str) | st.just("na"))))
    lies = {"count": st.sampled_from([2**32 - 1, 300]), "room": st.sampled_from([1, 9, 1000]), "wide": st.just("")}
    return [*lines, *((lie, str(draw(what))) for lie, what in lies.items() if draw(st.integers(0, 3)) == 0)]


def test_whatever_a_driver_tells_is_figures_that_can_be_or_a_reason(bench: Bench) -> None:
    reader, now = bench.reader(), iter(range(0, 10**9, 121))

    @settings(max_examples=60, deadline=None)
    @given(worlds())
    @example([("gpu 0", f"{uuid('GPU', 0)} 0 {80 * GIB} {GIB} 0 \udcff\udcfe"), (f"proc 0 Compute {TRAINER}", "4096")])
    @example([("gpu 0", f"{uuid('GPU', 0)} 0 {80 * GIB} {GIB} 0 H"), ("count", str(2**32 - 1))])
    @example(
        [("gpu 0", f"{uuid('GPU', 0)} 0 {80 * GIB} {GIB} 0 H"), (f"proc 0 Compute {TRAINER}", "9"), ("room", "1000")]
    )
    def holds(lines: list[tuple[str, str]]) -> None:
        bench.world.forget("")
        for line, rest in lines:
            bench.world.say(line, rest)
        try:
            gpus = reader.read_memory(next(now))
        except SourceError as error:
            assert str(error) and not any(way in str(error) for way in ("does not answer", "helper", "no answer"))
            return
        for gpu in gpus:
            total = gpu.total_bytes
            assert total is None or 0 < total < 2**60
            for figure in (gpu.used_bytes, gpu.device_used_bytes):
                assert figure is None or 0 <= figure <= (2**60 if total is None else total)
            assert gpu.used_bytes is not None or gpu.reason

    holds()


@pytest.mark.parametrize(
    "answer", [b"{}", b"[", b"\xff", b"[[],[],false]", b"[" * 10_000, b'{"gpus":[[]],"error":null,"last":false}']
)
def test_a_helper_that_answers_nonsense_is_replaced_and_no_more(tmp_path: Path, answer: bytes) -> None:
    bench = Bench(tmp_path)
    reader = bench.reader(helper_code=f"import os\nwhile os.read(0, 1 << 20): os.write(0, {answer!r})")
    with pytest.raises(SourceError, match="answers what is no answer"):
        reader.read_memory(0)
    until_gone(*reader.pids)
    with pytest.raises(SourceError, match="answers what is no answer"):
        reader.read_memory(1000)
    reader.close()
