"""Which GPUs are the trainer's: CUDA_VISIBLE_DEVICES, PIDs across namespaces, and figures that cannot be true."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PID_MAX = 1 << 22  # PID_MAX_LIMIT of the kernel
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel


# --- what the trainer may use -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """A GPU, or a MIG instance, as NVML lists it. `handle` is pynvml's and dies with the session."""

    resource: str  # "gpu0", or "gpu0:1" for MIG instance 1 of GPU 0
    index: int  # of the GPU
    uuid: str
    gpu_uuid: str  # of the GPU it is part of; its own uuid without MIG
    name: str
    minor: int | None  # of /dev/nvidiaMINOR
    handle: Any = None


def visible_devices(text: str, units: Sequence[GpuDevice]) -> frozenset[str]:
    """Resources that a CUDA_VISIBLE_DEVICES of `text` leaves to a program.

    Takes indices, abbreviated GPU UUIDs and MIG UUIDs; as CUDA does, stops at the first entry that names no device
    (such as -1) and takes the first instance of a GPU in MIG mode. Indices count as NVML does: CUDA counts so where
    all GPUs are of one model, or with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    found: set[str] = set()
    for word in text.split(","):
        unit = _device_named(word.strip(), units)
        if unit is None:
            break
        found.add(unit.resource)
    return frozenset(found)


def _device_named(word: str, units: Sequence[GpuDevice]) -> GpuDevice | None:
    if word.isascii() and word.isdigit() and len(word) < 6:
        return next((unit for unit in units if unit.index == int(word)), None)
    if word.startswith("MIG-"):
        hits = [unit for unit in units if unit.uuid.startswith(word)]
        return hits[0] if len(hits) == 1 else None
    if word.startswith("GPU-"):
        hits = [unit for unit in units if unit.gpu_uuid.startswith(word)]
        return hits[0] if len({unit.gpu_uuid for unit in hits}) == 1 else None
    return None


# --- PIDs across namespaces ---------------------------------------------------------------------------------------


def parse_nspid(status: bytes) -> tuple[int, ...]:
    """PIDs of a process from the outermost namespace in sight inwards, from /proc/PID/status; () where not told."""
    # NSpid:	41230	17
    found = re.search(rb"^NSpid:((?:[ \t]+[0-9]{1,10})+)[ \t]*$", status, re.MULTILINE)
    return tuple(map(int, found[1].split())) if found else ()


class NvmlPidResolver:
    """Tells which of the trainer's processes a PID in NVML's list means, when both count in different namespaces."""

    def __init__(self, root: str = "/proc", host_root: str | None = None) -> None:
        self._root, self._host_root = Path(root), Path(host_root or root)

    def resolve(self, pid: int, tree: frozenset[int]) -> int | None:
        """A PID of `tree`; None when `pid` is another process, or nothing proves that it is one of these."""
        inner = self._nspids(self._host_root / str(pid))[-1:]
        if inner and inner[0] in tree and self._same_namespace(pid, inner[0]):
            return inner[0]
        if (self._root / str(pid)).exists():  # counted as we count: it is what it says
            return None
        return next((own for own in sorted(tree) if pid in self._nspids(self._root / str(own))[1:]), None)

    def in_container(self) -> bool:
        """We are in a container's PID namespace, whose view of NVML's process list may be empty or foreign."""
        try:
            return str((self._root / "self/ns/pid").readlink()) != _INITIAL_PID_NAMESPACE
        except OSError:
            return True

    def open_devices(self, tree: Iterable[int]) -> frozenset[int]:
        """Minor numbers of the /dev/nvidiaN that these processes hold open."""
        links = (link for pid in tree for link in open_files(f"{self._root}/{pid}"))
        return frozenset(int(link[11:]) for link in links if re.fullmatch(r"/dev/nvidia[0-9]{1,4}", link))

    def _same_namespace(self, host_pid: int, own_pid: int) -> bool:
        try:
            return (self._host_root / f"{host_pid}/ns/pid").readlink() == (self._root / f"{own_pid}/ns/pid").readlink()
        except OSError:
            return False

    def _nspids(self, process: Path) -> tuple[int, ...]:
        try:
            return parse_nspid((process / "status").read_bytes())
        except OSError:
            return ()


def open_files(process: str) -> list[str]:
    """Where the descriptors of /proc/PID lead; those that may not be seen are left out."""
    folder = f"{process}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - a quarter of what pathlib takes
    except OSError:
        return []  # gone or not ours: what was seen before counts
    links = []
    for name in names:
        with suppress(OSError):
            links.append(os.readlink(f"{folder}/{name}"))  # noqa: PTH115
    return links


# --- what it opens ------------------------------------------------------------------------------------------------

OPEN_CHECK_SECONDS = 5.0  # between two glances
MAX_PROCESSES_PER_CHECK = 8  # processes; a link takes 2 us
_DEVICES = ("/dev/nvidia", "/dev/nvgpu", "/dev/nvhost", "/dev/dxg")


class GpuOpenDetector:
    """Tells when one of the trainer's processes opens a GPU's device beyond those that were open from the start."""

    def __init__(self, root: str, tree: Iterable[int]) -> None:
        self._root = root
        self._open_at_start = {opening for pid in tree for opening in self._open_gpu_files(pid)}
        self._pending_pids: list[int] = []
        self._next_t = float("-inf")

    def check(self, now: float, tree: Iterable[int]) -> bool:
        """Glance at a few processes, in turn, when it is time to."""
        if now < self._next_t:
            return False
        self._next_t = now + OPEN_CHECK_SECONDS
        self._pending_pids = self._pending_pids or sorted(tree)
        glanced, self._pending_pids = (
            self._pending_pids[:MAX_PROCESSES_PER_CHECK],
            self._pending_pids[MAX_PROCESSES_PER_CHECK:],
        )
        return any(opening not in self._open_at_start for pid in glanced for opening in self._open_gpu_files(pid))

    def _open_gpu_files(self, pid: int) -> list[tuple[int, str]]:
        return [(pid, link) for link in open_files(f"{self._root}/{pid}") if link.startswith(_DEVICES)]


# --- what cannot be true ------------------------------------------------------------------------------------------


def plausible_memory(memory: Any) -> tuple[int | None, int | None, str]:
    """Total and allocated bytes of NVML's memory info, and why not. The driver's own reserve counts as allocated."""
    if memory is None:
        return None, None, ""
    total, free = int(memory.total), int(memory.free)
    if not 0 < total < 2**60:
        return None, None, f"NVML tells a total of {total} bytes"
    if free > total:
        return total, None, f"NVML tells {free} bytes free of {total}"
    return total, total - free, ""


def implausible_entry(used: Mapping[int, int | None]) -> str:
    """What is wrong with a list of bytes by PID; "" when it can be true.

    Drivers 535.43 to 535.86 wrote wider entries than version 3 has, so that PIDs stand where bytes should and bytes
    where PIDs should. One such entry spoils the whole list.
    """
    for pid, size in used.items():
        misplaced = size is not None and 0 < size <= _PID_MAX and size % 4096
        if pid > _PID_MAX or misplaced:
            return f"NVML's process list cannot be true (PID {pid} with {size} bytes)"
    return ""


def plausible_usage(used: Mapping[int, int | None], own: Sequence[int], total: int | None) -> tuple[int | None, str]:
    """Bytes of the processes `own` together, or None and why."""
    if not own:
        return None, ""
    sizes = [size for pid in own if (size := used[pid]) is not None]
    if len(sizes) < len(own):
        return None, "NVML does not tell memory by process here"
    if sum(sizes) > (2**60 if total is None else total):
        return None, f"NVML tells {sum(sizes)} bytes used of {total}"
    return sum(sizes), ""
