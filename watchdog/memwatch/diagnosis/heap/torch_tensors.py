"""The memory of torch's tensors: which storage each has, on which device, and whether it keeps the graph of its making.

Nothing of this layout is promised (seen with torch 2.13): each step is checked, and what does not fit is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.diagnosis.heap.remote_object import RemoteObject
from memwatch.errors import SourceError, TargetGoneError

# c10/core/DeviceType.h
CPU_DEVICE = "cpu"
_DEVICES = {0: CPU_DEVICE, 1: "cuda", 6: "hip", 9: "xla", 12: "xpu", 13: "mps", 14: "meta"}
_CPU = 0
_BYTES_MOST = 1 << 46
_INDEX_MOST = 128
_IMPL_AT = (16, 24)  # in THPVariable; the later one where a flag says first whose it is
_STORAGE_AT, _META_AT = 16, 24  # in TensorImpl: behind its virtual table and its reference counts
_STORAGE = Struct("<16xQ16xbb6xQ")  # StorageImpl: data; device, its index; bytes
_GRADIENT_AT = (1, 5)  # words


@dataclass(frozen=True, slots=True)
class Storage:
    """The memory that one or more tensors show."""

    address: int
    device: str  # "cpu", "cuda:0"
    bytes: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor."""

    storage: Storage | None  # None: it has none, as sparse ones
    has_graph: bool  # it was computed from others that require gradients, and keeps them


class Tensors:
    """Reads them in one process."""

    def __init__(self, memory: RemoteMemory) -> None:
        self._memory = memory
        self._impl_at: tuple[int, ...] = _IMPL_AT

    def read(self, place: RemoteObject) -> Tensor | None:
        """What there is to know of a tensor; None when it is not laid out as expected."""
        for offset in self._impl_at:
            try:
                found = self._read(place.word(offset))
            except TargetGoneError:
                raise
            except SourceError:
                continue
            self._impl_at = (offset,)
            return found
        return None

    def _read(self, impl: int) -> Tensor:
        table, _, storage_at, meta_at = self._memory.words(impl, 4)
        if not self._is_code(table):
            raise SourceError("no tensor")
        storage = self._storage(storage_at) if storage_at else None
        return Tensor(storage, bool(meta_at) and self._has_graph(meta_at))

    def _storage(self, address: int) -> Storage:
        if not self._is_code(self._memory.word(address)):
            raise SourceError("no storage")
        data, device, index, size = _STORAGE.unpack(self._memory.read(address, _STORAGE.size))
        name = _DEVICES.get(device)
        if name is None or not -1 <= index < _INDEX_MOST or size >= _BYTES_MOST:
            raise SourceError("no storage")
        if device == _CPU and size and data:
            self._memory.read(data, 1)
            self._memory.read(data + size - 1, 1)
        return Storage(address, f"{name}:{index}" if index >= 0 else name, size if data else 0)

    def _has_graph(self, meta_at: int) -> bool:
        """AutogradMeta has its virtual table, in later versions a name, the gradient, and what it was computed by."""
        words = self._memory.words(meta_at, 8)
        for gradient_at in _GRADIENT_AT:
            try:
                if self._is_code(self._memory.word(words[gradient_at])):
                    return bool(words[gradient_at + 1])
            except TargetGoneError:
                raise
            except SourceError:
                continue
        return False

    def _is_code(self, address: int) -> bool:
        """Where virtual tables are: in a file that is mapped."""
        return address in self._memory.files
