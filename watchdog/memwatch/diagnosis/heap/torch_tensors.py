"""Reads torch's tensors: the storage of each, its device, and whether the tensor keeps its autograd graph.

torch does not guarantee this layout (that of 2.13): each step is checked, and a tensor that does not fit is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from memwatch.diagnosis.heap.remote_memory import RemoteMemory, UnreadableError

# c10/core/DeviceType.h
_CPU = 0
_DEVICES = {_CPU: "cpu", 1: "cuda", 6: "hip", 9: "xla", 12: "xpu", 13: "mps", 14: "meta"}
_MAX_BYTES = 1 << 46  # of a storage: a larger number is none
_MAX_INDEX = 128  # of a device: a larger number is none
_MAX_NODES = 1 << 40  # of a graph: a larger number is none
_IMPL_AT = (16, 24)  # in THPVariable; the latter after a flag for its owner
_STORAGE = Struct("<16xQ16xbb6xQ")  # StorageImpl: data; device, its index; bytes
_GRADIENT_AT = (1, 5)  # in AutogradMeta, in words; the latter in versions with a name


@dataclass(frozen=True, slots=True)
class Storage:
    """The memory of one or more tensors."""

    address: int
    device: str  # "cpu", "cuda:0"
    bytes: int


class Tensors:
    """The tensors of one process, as far as they were read."""

    def __init__(self, memory: RemoteMemory) -> None:
        self._memory = memory
        self._impl_at: tuple[int, ...] = _IMPL_AT
        self.storages: dict[int, Storage] = {}  # of all tensors, by address
        self.with_graph = 0  # tensors that were computed from others that require gradients, and keep these
        self._graph_at = 0  # the last node of the graph of the tensor read last; 0: it has none
        self.unread = 0  # tensors with an unknown layout
        self.data_at = 0  # address of the data of the storage read last; 0: not in main memory

    def add(self, word: Callable[[int], int]) -> int:
        """Read a tensor, whose words `word` gives by offset.

        Return the host memory of its storage, if no other tensor had it before.
        """
        for offset in self._impl_at:
            try:
                storage, self._graph_at = self._read(word(offset))
            except UnreadableError:
                continue
            self._impl_at = (offset,)
            self.with_graph += bool(self._graph_at)
            if storage is None or storage.address in self.storages:
                return 0
            self.storages[storage.address] = storage
            return storage.bytes if storage.device == _DEVICES[_CPU] else 0
        self.unread += 1
        return 0

    def graph_depth(self) -> int:
        """Return the nodes on the longest way through the graph of the tensor read last, as torch counts; 0: not known.

        Before this number (topological_nr_) are the vtable, either two reference counts in one word or a std::weak_ptr
        to the node itself, and the node's own number.
        """
        try:
            words = self._memory.words(self._graph_at, 5)
        except UnreadableError:
            return 0
        depth = words[4] if words[1] == self._graph_at else words[3]
        return depth if words[0] in self._memory.files and depth < _MAX_NODES else 0

    def _read(self, impl: int) -> tuple[Storage | None, int]:
        """Return a tensor's storage, which a sparse one does not have, and the last node of its graph, or 0."""
        table, _, storage_at, meta_at = self._memory.words(impl, 4)  # TensorImpl: vtable, reference counts, ...
        if table not in self._memory.files:  # where the vtable of a C++ class is
            raise UnreadableError("no tensor")
        storage = self._storage(storage_at) if storage_at else None
        return storage, self._last_node(meta_at) if meta_at else 0

    def _storage(self, address: int) -> Storage:
        if self._memory.word(address) not in self._memory.files:
            raise UnreadableError("no storage")
        data, device, index, size = _STORAGE.unpack(self._memory.read(address, _STORAGE.size))
        name = _DEVICES.get(device)
        if name is None or not -1 <= index < _MAX_INDEX or size >= _MAX_BYTES:
            raise UnreadableError("no storage")
        if device == _CPU and size and data:
            self._memory.read(data, 1)
            self._memory.read(data + size - 1, 1)
        self.data_at = data if device == _CPU else 0
        return Storage(address, f"{name}:{index}" if index >= 0 else name, size if data else 0)

    def _last_node(self, meta_at: int) -> int:
        """Read AutogradMeta: its vtable, in later versions a name, the gradient, and its function."""
        words = self._memory.words(meta_at, 8)
        for gradient_at in _GRADIENT_AT:
            try:
                if self._memory.word(words[gradient_at]) in self._memory.files:
                    return words[gradient_at + 1]
            except UnreadableError:
                continue
        return 0
