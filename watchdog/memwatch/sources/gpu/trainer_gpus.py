"""Finds which GPUs are the trainer's, by CUDA_VISIBLE_DEVICES and PIDs, and checks NVML's figures for plausibility."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PID_MAX = 1 << 22  # the kernel's PID_MAX_LIMIT
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # the kernel's PROC_PID_INIT_INO


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """A GPU, or a MIG instance, as NVML lists it. `handle` is pynvml's and dies with the session."""

    resource: str  # "gpu0", or "gpu0:1" for MIG instance 1 of GPU 0
    index: int  # of the GPU
    uuid: str
    gpu_uuid: str  # of the GPU that it is part of; without MIG the same as uuid
    name: str
    minor: int | None  # of /dev/nvidiaMINOR
    handle: Any = None


def visible_devices(text: str, devices: Sequence[GpuDevice]) -> frozenset[str]:
    """Return the resources that a program with this value of CUDA_VISIBLE_DEVICES may use.

    It has indices, abbreviated GPU UUIDs and MIG UUIDs. As in CUDA, the first entry that names no device (such as -1)
    ends the list, and a GPU in MIG mode means its first instance. Indices are NVML's; CUDA's are the same when all GPUs
    are of one model, or with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    found: set[str] = set()
    for word in text.split(","):
        device = _device_named(word.strip(), devices)
        if device is None:
            break
        found.add(device.resource)
    return frozenset(found)


def _device_named(word: str, devices: Sequence[GpuDevice]) -> GpuDevice | None:
    if word.isascii() and word.isdigit() and len(word) < 6:
        return next((device for device in devices if device.index == int(word)), None)
    if word.startswith("MIG-"):
        hits = [device for device in devices if device.uuid.startswith(word)]
        return hits[0] if len(hits) == 1 else None
    if word.startswith("GPU-"):
        hits = [device for device in devices if device.gpu_uuid.startswith(word)]
        return hits[0] if len({device.gpu_uuid for device in hits}) == 1 else None
    return None


# NSpid:	41230	17
def parse_nspid(status: bytes) -> tuple[int, ...]:
    """Parse a process's PIDs from /proc/PID/status, in the outermost visible namespace first; () without the line."""
    found = re.search(rb"^NSpid:((?:[ \t]+[0-9]{1,10})+)[ \t]*$", status, re.MULTILINE)
    return tuple(map(int, found[1].split())) if found else ()


class NvmlPidResolver:
    """Maps a PID in NVML's list to the trainer's process, when NVML has another PID namespace."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = Path(root)

    def resolve(self, pid: int, tree: frozenset[int]) -> int | None:
        """Return the PID of `tree` that NVML's `pid` is; None when it is another process, or that is not certain."""
        inner = self._nspids(self._root / str(pid))[-1:]
        if inner and inner[0] in tree:
            namespace = self._namespace(pid)
            if namespace is not None and namespace == self._namespace(inner[0]):
                return inner[0]
        if (self._root / str(pid)).exists():  # the same namespace: it is another process
            return None
        return next((own for own in sorted(tree) if pid in self._nspids(self._root / str(own))[1:]), None)

    def in_container(self) -> bool:
        """Whether memwatch is in a container's PID namespace, where NVML's process list may be empty or useless."""
        return self._namespace("self") != _INITIAL_PID_NAMESPACE

    def open_devices(self, tree: Iterable[int]) -> frozenset[int]:
        """Return the minor numbers of the /dev/nvidiaN that these processes have open."""
        links = (link for pid in tree for link in open_files(f"{self._root}/{pid}"))
        return frozenset(int(link[11:]) for link in links if re.fullmatch(r"/dev/nvidia[0-9]{1,4}", link))

    def _namespace(self, process: int | str) -> str | None:
        try:
            return str((self._root / f"{process}/ns/pid").readlink())
        except OSError:
            return None

    def _nspids(self, process: Path) -> tuple[int, ...]:
        try:
            return parse_nspid((process / "status").read_bytes())
        except OSError:
            return ()


def open_files(process: str) -> list[str]:
    """Read the links of /proc/PID/fd; those that may not be read are left out."""
    folder = f"{process}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - a quarter of what pathlib takes
    except OSError:
        return []  # exited or not permitted: the previous finding stays
    links = []
    for name in names:
        with suppress(OSError):
            links.append(os.readlink(f"{folder}/{name}"))  # noqa: PTH115
    return links


OPEN_CHECK_SECONDS = 5.0  # between checks
MAX_PROCESSES_PER_CHECK = 8  # reading a link takes 2 us
_DEVICES = ("/dev/nvidia", "/dev/nvgpu", "/dev/nvhost", "/dev/dxg")


class GpuOpenDetector:
    """Detects when one of the trainer's processes opens a GPU's device that was not open at the start."""

    def __init__(self, root: str, tree: Iterable[int]) -> None:
        self._root = root
        self._open_at_start = {opening for pid in tree for opening in self._open_gpu_files(pid)}
        self._pending_pids: list[int] = []
        self._next_t = float("-inf")

    def check(self, now: float, tree: Iterable[int]) -> bool:
        """Check a few processes, in rotation, when a check is due."""
        if now < self._next_t:
            return False
        self._next_t = now + OPEN_CHECK_SECONDS
        self._pending_pids = self._pending_pids or sorted(tree)
        checked = self._pending_pids[:MAX_PROCESSES_PER_CHECK]
        self._pending_pids = self._pending_pids[MAX_PROCESSES_PER_CHECK:]
        return any(opening not in self._open_at_start for pid in checked for opening in self._open_gpu_files(pid))

    def _open_gpu_files(self, pid: int) -> list[tuple[int, str]]:
        return [(pid, link) for link in open_files(f"{self._root}/{pid}") if link.startswith(_DEVICES)]


def plausible_memory(memory: Any) -> tuple[int | None, int | None, str]:
    """Return total and allocated bytes (with the driver's reserve), and why one of them is None."""
    if memory is None:
        return None, None, ""
    total, free = int(memory.total), int(memory.free)
    if not 0 < total < 2**60:
        return None, None, f"NVML reports a total of {total} bytes"
    if free > total:
        return total, None, f"NVML reports {free} bytes free of {total}"
    return total, total - free, ""


def implausible_entry(used: Mapping[int, int | None]) -> str:
    """Return what is wrong with a list of bytes by PID; "" when it is plausible.

    Drivers 535.43 to 535.86 write wider entries than version 3 has, so that PIDs and bytes are swapped. One such entry
    makes the whole list useless.
    """
    for pid, size in used.items():
        misplaced = size is not None and 0 < size <= _PID_MAX and size % 4096
        if pid > _PID_MAX or misplaced:
            return f"NVML's process list cannot be true (PID {pid} with {size} bytes)"
    return ""


def plausible_usage(used: Mapping[int, int | None], own: Sequence[int], total: int | None) -> tuple[int | None, str]:
    """Return the bytes of the processes `own` together, or None and why."""
    if not own:
        return None, ""
    sizes = [size for pid in own if (size := used[pid]) is not None]
    if len(sizes) < len(own):
        return None, "NVML does not report memory by process here"
    if sum(sizes) > (2**60 if total is None else total):
        return None, f"NVML reports {sum(sizes)} bytes used of {total}"
    return sum(sizes), ""
