"""The helper process that asks NVML for GPU memory by device and by process; NVML may hang for ever.

`gpu_reader` starts it as memwatch's child and kills it when it hangs. It is no thread, because a thread that
hangs in the driver holds NVML's locks, and its process cannot exit while the kernel lets nobody kill it; and because
only a new process loads the library that fits an updated driver. No other module imports pynvml.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from memwatch.core.measurements import GpuMemory
from memwatch.errors import AbsentError, SourceError
from memwatch.sources.gpu.nvml_helper_messages import MAX_HELPER_MESSAGE_BYTES, HelperSettings, NvmlAnswer
from memwatch.sources.gpu.trainer_gpus import (
    GpuDevice,
    NvmlPidResolver,
    implausible_entry,
    plausible_memory,
    plausible_usage,
    visible_devices,
)

MAX_REOPEN_S = 60.0  # between two attempts to find a lost device again
SCAN_S = 5.0  # between checks of devices that the trainer does not use yet
RELIST_S = 60.0  # between listings of the devices: MIG instances come and go
MAX_GPUS = 256  # and MIG instances of one GPU; a driver that reports more is wrong

_KINDS = ("Compute", "Graphics", "MPSCompute")
_PR_SET_PDEATHSIG = 1


class _SessionLostError(SourceError):
    """NVML must be initialized again."""


@dataclass(slots=True)
class _Processes:
    """Memory by PID on one device; `reason` says why the list cannot be trusted."""

    used: dict[int, int | None] = field(default_factory=dict)
    reason: str = ""


class _NvmlReader:
    """Reads the trainer's GPUs. When a device was lost, NVML is initialized again at growing intervals to find it."""

    def __init__(self, pids: NvmlPidResolver, visible: str | None, known: Mapping[str, GpuMemory]) -> None:
        self._pids, self._visible = pids, visible
        self._known = dict(known)  # the trainer's GPUs, as of the latest reading
        self._nvml: Any = None  # None: not initialized
        self._reopen_t, self._losses = float("-inf"), 0
        self._lost = ""  # why a device is lost

    def _open(self) -> None:
        self._nvml = _load()
        self._versions = dict.fromkeys(_KINDS, "_v3")
        self._empty: set[tuple[str, str]] = set()  # (device, kind) of process lists without an entry at the latest scan
        self._devices: list[GpuDevice] = []
        self._linked: frozenset[str] = frozenset()  # linked to the trainer by device files or CUDA_VISIBLE_DEVICES
        self._resolved: dict[int, int | None] = {}
        self._tree: frozenset[int] = frozenset()
        self._scan_t = self._renew_t = float("-inf")
        self._has_listed_tree = False
        self._lost = ""
        self._call_nvml(self._nvml.nvmlInit)

    def close(self) -> None:
        if self._nvml is not None:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
        self._nvml = None

    def read_gpus(self, tree: frozenset[int], now: float) -> tuple[GpuMemory, ...]:
        """Read the trainer's GPUs; SourceError when none can be read, _SessionLostError when NVML must restart."""
        if self._lost and now >= self._reopen_t:
            self.close()
        if self._nvml is None:
            self._open()
        try:
            return tuple(self._call_nvml(self._read_devices, tree, now))
        finally:
            if not self._lost:
                self._losses = 0
            elif now >= self._reopen_t:
                self._reopen_t = now + min(MAX_REOPEN_S, 2.0**self._losses)
                self._losses = min(self._losses + 1, 10)

    def _call_nvml(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function` and turn pynvml's errors into memwatch's."""
        try:
            return function(*args)
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
                raise _library_missing() from None
            hint = ""
            if error.value == self._nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
                hint = "the driver was updated while loaded: reload its modules or reboot"
            kind = AbsentError if error.value == self._nvml.NVML_ERROR_DRIVER_NOT_LOADED else _SessionLostError
            raise kind(f"NVML: {_error_text(error)}", hint) from None

    def _read_devices(self, tree: frozenset[int], now: float) -> list[GpuMemory]:
        if now - self._renew_t >= RELIST_S:
            self._devices, self._renew_t, self._scan_t = self._list_devices(), now, float("-inf")
        scan = tree != self._tree or now - self._scan_t >= SCAN_S
        if scan:
            self._tree, self._scan_t, self._resolved, self._empty = tree, now, {}, set()
        scanned = [device for device in self._devices if scan or device.resource in self._known]
        processes = {device.resource: self._processes(device) for device in scanned}
        if scan:
            self._linked = self._linked_without_pids(processes)
        gpus = [gpu for device in scanned if (gpu := self._gpu(device, processes[device.resource])) is not None]
        gpus += self._lost_gpus()
        self._known = {gpu.resource: gpu for gpu in gpus}
        if gpus and all(gpu.attribution == "unavailable" for gpu in gpus):
            raise SourceError("; ".join(f"{gpu.resource}: {gpu.reason}" for gpu in gpus))
        return gpus

    def _list_devices(self) -> list[GpuDevice]:
        devices: list[GpuDevice] = []
        for index in range(min(self._nvml.nvmlDeviceGetCount(), MAX_GPUS)):
            try:
                devices += self._list_instances(index, self._nvml.nvmlDeviceGetHandleByIndex(index))
            except self._nvml.NVMLError as error:
                self._describe_or_raise(error)  # for example a device that the container may not open
        return devices

    def _list_instances(self, index: int, gpu: Any) -> list[GpuDevice]:
        uuid, name = _text(self._nvml.nvmlDeviceGetUUID, gpu), _text(self._nvml.nvmlDeviceGetName, gpu)
        minor = self._ask_optional(self._nvml.nvmlDeviceGetMinorNumber, gpu)
        mode = self._ask_optional(self._nvml.nvmlDeviceGetMigMode, gpu)
        if not mode or not mode[0]:
            return [GpuDevice(f"gpu{index}", index, uuid, uuid, name, minor, gpu)]
        most = min(self._ask_optional(self._nvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0, MAX_GPUS)
        instances = []
        for i in range(most):
            mig = self._ask_optional(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, i)
            if mig is not None:
                mig_uuid = _text(self._nvml.nvmlDeviceGetUUID, mig)
                mig_name = self._ask_optional(_text, self._nvml.nvmlDeviceGetName, mig) or f"{name} MIG"
                instances.append(GpuDevice(f"gpu{index}:{i}", index, mig_uuid, uuid, mig_name, minor, mig))
        return instances

    def _ask_optional(self, function: Callable[..., Any], *args: Any) -> Any | None:
        """Call a function that not every device supports; None without an answer."""
        try:
            return function(*args)
        except self._nvml.NVMLError as error:
            self._describe_or_raise(error)
            return None

    def _describe_or_raise(self, error: Any) -> str:
        """Return why one device gave no answer; raise `error` when the whole session is lost."""
        n = self._nvml
        gone = (n.NVML_ERROR_UNINITIALIZED, n.NVML_ERROR_DRIVER_NOT_LOADED, n.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
        if error.value in (*gone, n.NVML_ERROR_UNKNOWN):
            raise error
        if error.value in (n.NVML_ERROR_GPU_IS_LOST, n.NVML_ERROR_RESET_REQUIRED):
            self._lost = _error_text(error)
        return _error_text(error)

    def _processes(self, device: GpuDevice) -> _Processes:
        """Merge all process lists of a device; a process in several of them has the same memory in each."""
        result = _Processes()
        for kind in tuple(self._versions):
            if (device.resource, kind) in self._empty:
                continue
            try:
                entries = self._entries(kind, device.handle)
            except self._nvml.NVMLError as error:
                reason = self._describe_or_raise(error)
                if kind == "Compute":
                    result.reason = f"no process list: {reason}"
                continue
            if not entries:
                self._empty.add((device.resource, kind))
            for entry in entries:
                before = result.used.get(entry.pid)
                known = [used for used in (before, entry.usedGpuMemory) if used is not None]
                result.used[entry.pid] = max(known, default=None)
        result.reason = result.reason or implausible_entry(result.used)
        return result

    def _entries(self, kind: str, handle: Any) -> list[Any]:
        """Get the list of one kind, in the newest version that the driver has: v3 since 510, v2 since 450."""
        n = self._nvml
        try:
            return list(getattr(n, f"nvmlDeviceGet{kind}RunningProcesses{self._versions[kind]}")(handle))
        except n.NVMLError as error:
            if error.value == n.NVML_ERROR_FUNCTION_NOT_FOUND and self._versions[kind] == "_v3":
                self._versions[kind] = "_v2"
            elif kind != "Compute" and error.value in (n.NVML_ERROR_FUNCTION_NOT_FOUND, n.NVML_ERROR_NOT_SUPPORTED):
                del self._versions[kind]
                return []
            elif error.value != n.NVML_ERROR_INSUFFICIENT_SIZE:  # many processes started between its two calls
                raise
        return list(getattr(n, f"nvmlDeviceGet{kind}RunningProcesses{self._versions[kind]}")(handle))

    def _linked_without_pids(self, processes: Mapping[str, _Processes]) -> frozenset[str]:
        """Return the devices to count as the trainer's although no process list shows it."""
        self._has_listed_tree |= any(pid in self._tree for listed in processes.values() for pid in listed.used)
        blind = self._pids.in_container() and not self._has_listed_tree
        hidden = [device for device in self._devices if blind or processes[device.resource].reason]
        if not hidden:
            return frozenset()
        if self._visible is not None:
            return visible_devices(self._visible, self._devices) & {device.resource for device in hidden}
        minors = self._pids.open_devices(self._tree)
        return frozenset(device.resource for device in hidden if device.minor is not None and device.minor in minors)

    def _gpu(self, device: GpuDevice, processes: _Processes) -> GpuMemory | None:
        """Read a device; None when nothing links it to the trainer."""
        own = [pid for pid in processes.used if pid in self._tree]
        mapped = [] if own else [pid for pid in processes.used if self._resolve(pid) is not None]
        undisproved = device.resource in self._known and processes.reason
        if not (own or mapped or undisproved or device.resource in self._linked):
            return None
        memory, trouble, reason = None, "", processes.reason
        try:
            memory = self._nvml.nvmlDeviceGetMemoryInfo(device.handle)
        except self._nvml.NVMLError as error:
            reason = self._describe_or_raise(error)
            trouble = "unified" if error.value == self._nvml.NVML_ERROR_NOT_SUPPORTED else "unavailable"
        total, device_used, bad_memory = plausible_memory(memory)
        used, bad_use = plausible_usage(processes.used, own or mapped, total)
        if trouble == "unavailable" or processes.reason:
            used = None
        how = "device" if used is None else "exact" if own else "nspid"
        unlisted = "" if own or mapped else "NVML lists none of the trainer's processes here"
        reason = reason or bad_memory or bad_use or unlisted
        pids = tuple(sorted(own or filter(None, map(self._resolve, mapped))))
        return GpuMemory(
            device.resource, device.uuid, device.name, used, device_used, total, trouble or how, reason, pids
        )

    def _resolve(self, pid: int) -> int | None:
        if pid not in self._resolved:
            self._resolved[pid] = self._pids.resolve(pid, self._tree)
        return self._resolved[pid]

    def _lost_gpus(self) -> list[GpuMemory]:
        """The GPUs that were the trainer's and are no longer listed, after a device was lost."""
        if not self._lost:
            return []
        listed = {device.resource for device in self._devices}
        return [
            replace(gpu, used_bytes=None, device_used_bytes=None, attribution="unavailable", reason=self._lost)
            for gpu in self._known.values()
            if gpu.resource not in listed
        ]


def _text(function: Callable[..., str], handle: Any) -> str:
    """Call `function` for a text, which pynvml decodes as UTF-8 even where it is not."""
    try:
        return function(handle)
    except UnicodeDecodeError as error:
        return str(error.object, "utf-8", "backslashreplace")


def _error_text(error: Any) -> str:
    return str(error).strip().rstrip(".")


def _library_missing() -> AbsentError:
    hint = "in a container, give it NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    return AbsentError("libnvidia-ml.so.1 not found", hint)


def _load() -> Any:
    """Import pynvml after loading its library with ctypes, which takes a tenth of the memory if that is missing."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        raise _library_missing() from None
    try:
        import pynvml
    except ImportError:
        raise AbsentError("the Python package nvidia-ml-py is missing", "pip install nvidia-ml-py") from None
    return pynvml


def serve() -> None:
    """Answer the questions on descriptor 0, until it is closed or another process must initialize NVML."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # even while it hangs
    settings = HelperSettings.decode(os.read(0, MAX_HELPER_MESSAGE_BYTES))
    known = {gpu.resource: gpu for gpu in settings.known}
    reader = _NvmlReader(NvmlPidResolver(settings.root), settings.visible, known)
    with suppress(ConnectionError):  # memwatch has ended before it read an answer
        while message := os.read(0, MAX_HELPER_MESSAGE_BYTES):
            tree, t, wait_seconds = json.loads(message)
            if select.select([0], [], [], wait_seconds)[0]:  # closed, or another question: nobody waits for this answer
                break
            answer = _answer(reader, frozenset(tree), t)
            os.write(0, answer.encode())
            if answer.restart_helper:
                break
    reader.close()


def _answer(reader: _NvmlReader, tree: frozenset[int], now: float) -> NvmlAnswer:
    try:
        return NvmlAnswer(reader.read_gpus(tree, now))
    except SourceError as error:
        return NvmlAnswer.from_error(error, isinstance(error, (_SessionLostError, AbsentError)))
    except Exception as error:  # nobody reads a traceback here
        return NvmlAnswer.from_error(SourceError(f"NVML's helper failed: {error!r}"), restart_helper=True)
