"""The layouts of objects in a CPython heap: how many bytes one takes, and which objects it refers to."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from typing import Any

from memwatch.diagnosis.heap.remote_memory import UnreadableError
from memwatch.diagnosis.heap.remote_objects import (
    FRONT_BYTES,
    MAX_BODY_BYTES,
    MAX_COUNT,
    BuiltinValues,
    DictKeys,
    HeapType,
    RemoteObject,
)
from memwatch.errors import SourceError

DEQUE_BYTES, DEQUE_ITEMS, MAX_DEQUE_BLOCKS = 528, 64, 1 << 20  # of a block; of a deque: a bound against circles
# In a queue.SimpleQueue, which the executors of threads have: its list; since 3.13 the table of a ring of items, its
# room and the number of items.
QUEUE_LIST_AT, RING_BEHIND, RING_FIRST_AT, RING_TABLE_AT, RING_COUNT_AT = 32, 13, 32, 40, 56
NDARRAY_DATA_AT, NDARRAY_DIMENSIONS_AT, NDARRAY_SHAPE_AT, NDARRAY_BASE_AT = 16, 24, 32, 48
CLASS_DICT_AT = 264  # tp_dict
DTYPE_BYTES = 48  # of a numpy.dtype that are read
OWNS_DATA, _REFERENCES = 4, 17  # numpy: NPY_ARRAY_OWNDATA and NPY_OBJECT
MAX_DIMENSIONS = 64  # NPY_MAXDIMS of numpy 2
TRACEBACK_NEXT_AT, TRACEBACK_FRAME_AT = 16, 24
MAX_LOCALS = 1 << 12  # of a frame, with what is on its stack
_FRAME_AT, VALUE_STACK_AT = 24, 64  # in a frame object: since 3.11 its frame; before, the end of its local variables
_MAX_ITEMS = 1 << 20  # of a dict: a bound on time
_SIGNED, _INT, _DIGITS = Struct("<q").unpack_from, Struct("<i").unpack_from, Struct("<II").unpack_from
_COUNT_AT = {"list": 16, "tuple": 16, "deque": 16, "dict": 16, "set": 24}

MeasureObject = Callable[[RemoteObject, "array[int]"], int]


class Layouts:
    """Reads the layouts of one process's objects; UnreadableError when one changes while it is read."""

    def __init__(self, builtins: BuiltinValues) -> None:
        self.builtins, self._minor = builtins, builtins.minor
        self._shared_keys: dict[int, DictKeys | None] = {}  # the tables of names, by their addresses
        self._dtypes: dict[int, tuple[int, bool]] = {}  # numpy's dtypes: bytes of an element, is it a reference
        self._measurers: dict[str, MeasureObject] = {
            "array": self._array,
            "bytearray": lambda obj, _: obj.count(24),
            "class": self._class,
            "deque": self._deque,
            "dict": self._dict,
            "frame": self._frame,
            "generator": self._frame,
            "int": self._int,
            "list": self._list,
            "ndarray": self._ndarray,
            "queue": self._queue,
            "set": self._set,
            "str": self._str,
            "tuple": self._tuple,
            "weak": lambda _, __: 0,
        }

    def measurer_for(self, kind: HeapType) -> MeasureObject:
        """Return a function that gives the bytes of an object of this type and appends its references to an array.

        Bytes are those of `sys.getsizeof`, with the values of instances and the memory that arrays own.
        """
        fixed, measure = kind.front_bytes + kind.basic_bytes, self._measurers.get(kind.shape, self._items)
        if kind.shape_bytes >= kind.basic_bytes and not kind.has_managed_dict and not kind.dict_offset:
            return lambda obj, references: fixed + measure(obj, references)

        # The words of the fixed part after those that the shape describes may be references.
        start, end = (kind.shape_bytes + 7) // 8 * 8, min(kind.basic_bytes, MAX_BODY_BYTES) // 8 * 8

        def with_attributes(obj: RemoteObject, references: array[int]) -> int:
            size = fixed + measure(obj, references)
            references.frombytes(obj.raw[obj.at + start : obj.at + end])
            return size + self._attributes(obj, references)

        return with_attributes

    def elements(self, obj: RemoteObject) -> list[int]:
        """Return the addresses of a container's items (of a dict its values), without the attributes of a subclass."""
        references: array[int] = array("Q")
        with suppress(UnreadableError):
            if obj.heap_type.shape == "dict":
                return [value for _, value in self.builtins.items(obj.address, _MAX_ITEMS)]
            if obj.heap_type.shape in ("list", "tuple", "deque", "set"):
                self._measurers[obj.heap_type.shape](obj, references)
            return [address for address in references if address]
        return []

    def length(self, obj: RemoteObject) -> int | None:
        """Return the number of items of a container; of an array, its first dimension. None for other objects."""
        shape = obj.heap_type.shape
        with suppress(SourceError):
            if shape == "queue" and self._minor >= RING_BEHIND:
                return obj.count(RING_COUNT_AT)
            if shape in _COUNT_AT:
                return obj.count(_COUNT_AT[shape])
            if shape == "ndarray" and 0 < obj.word(NDARRAY_DIMENSIONS_AT) & 0xFFFFFFFF <= MAX_DIMENSIONS:
                length = obj.words(obj.word(NDARRAY_SHAPE_AT), 1)[0]
                return length if length < MAX_COUNT else None  # The array was freed meanwhile.
        return None

    def whole_number(self, obj: RemoteObject) -> int | None:
        """Return the value of a non-negative int below 2**60; None for anything else."""
        if obj.heap_type.shape != "int":
            return None
        word, (low, high) = _SIGNED(obj.raw, obj.at + 16)[0], _DIGITS(obj.raw, obj.at + 24)
        count, is_negative, is_zero = word, word < 0, word == 0
        if self._minor >= 12:
            count, is_negative, is_zero = word >> 3, word & 3 == 2, word & 3 == 1
        if is_negative or count > 2:
            return None
        return 0 if is_zero else int(low + (high << 30 if count == 2 else 0))

    # --- any type ---

    def _items(self, obj: RemoteObject, references: array[int]) -> int:
        """Measure the part of variable length, right after the fixed part."""
        item_bytes = obj.heap_type.item_bytes
        if not item_bytes:
            return 0
        number = _SIGNED(obj.raw, obj.at + 16)[0]
        if not 0 < number < MAX_COUNT:  # The word may be no count.
            return 0
        if item_bytes == 8:
            references.extend(obj.words(obj.address + obj.heap_type.basic_bytes, number))
        return int(number * item_bytes)

    def _attributes(self, obj: RemoteObject, references: array[int]) -> int:
        dict_at, values_at = self.attributes_at(obj)
        if dict_at:
            references.append(dict_at)
        names = self.shared_keys(obj.heap_type) if values_at else None
        if names is None:
            return 0
        references.extend(obj.words(values_at, names.count))
        return 8 * (names.shared + 1)

    def attributes_at(self, obj: RemoteObject) -> tuple[int, int]:
        """Return the addresses of an instance's dict and, without one, of its values by the names of its class."""
        kind = obj.heap_type
        if not kind.has_managed_dict:
            if kind.dict_offset >= 0:
                return (obj.word(kind.dict_offset) if 0 < kind.dict_offset < MAX_BODY_BYTES else 0), 0
            number = abs(_SIGNED(obj.raw, obj.at + 16)[0])  # of items, after which the address of the dict is
            if kind.shape == "int" and self._minor >= 12:
                number >>= 3
            end = (kind.basic_bytes + number * kind.item_bytes + 7) // 8 * 8
            return obj.words(obj.address + end + kind.dict_offset, 1)[0], 0
        before, word = obj.pair(-FRONT_BYTES)
        if self._minor == 11:
            return word, 0 if word else before
        if self._minor == 12:
            return (0, word + 1) if word & 1 else (word, 0)
        return word, obj.address + kind.basic_bytes + 8 if kind.has_inline_values and not word else 0

    def shared_keys(self, kind: HeapType) -> DictKeys | None:
        """Return the key table that a class's instances share; None when it has none."""
        if kind.keys_at not in self._shared_keys:
            try:
                self._shared_keys[kind.keys_at] = self.builtins.keys(kind.keys_at) if kind.keys_at else None
            except SourceError:
                self._shared_keys[kind.keys_at] = None
        return self._shared_keys[kind.keys_at]

    # --- types that are known by name ---

    def _list(self, obj: RemoteObject, references: array[int]) -> int:
        items_at, room = obj.pair(24)
        if count := obj.count():
            references.extend(obj.words(items_at, count))
        return 8 * room

    def _tuple(self, obj: RemoteObject, references: array[int]) -> int:
        count = obj.count()
        references.extend(obj.words(obj.address + self.builtins.tuple_bytes, count))
        return 8 * count

    def _dict(self, obj: RemoteObject, references: array[int]) -> int:
        keys_at, values_at = obj.pair(32)
        keys = self.builtins.keys(keys_at, obj.read)
        if values_at:
            references.extend(obj.words(values_at + self.builtins.values_offset, keys.count))
            return 8 * keys.room
        if keys.count:
            words = obj.words(keys.first, keys.count * keys.width)
            if keys.width == 2:
                references.extend(words)
            else:
                references.extend(words[1::3])
                references.extend(words[2::3])
        return keys.bytes if keys.room else 0

    def _set(self, obj: RemoteObject, references: array[int]) -> int:
        slots, table_at = obj.count(32) + 1, obj.word(40)
        references.extend(obj.words(table_at, 2 * slots)[::2])
        return 0 if obj.address <= table_at < obj.address + obj.heap_type.basic_bytes else 16 * slots

    def _str(self, obj: RemoteObject, _: array[int]) -> int:
        start, length, width = self.builtins.text_at(obj.raw, obj.at)
        return start + (length + 1) * width - obj.heap_type.basic_bytes

    def _int(self, obj: RemoteObject, _: array[int]) -> int:
        word = _SIGNED(obj.raw, obj.at + 16)[0]
        digits = word >> 3 if self._minor >= 12 else abs(word)
        return int(digits * obj.heap_type.item_bytes) if 0 <= digits < MAX_COUNT else 0

    def _deque(self, obj: RemoteObject, references: array[int]) -> int:
        (at, last), (low, high) = obj.pair(24), obj.pair(40)
        blocks, needed = [at], min(MAX_DEQUE_BLOCKS, 2 + obj.count() // DEQUE_ITEMS)
        while at != last and len(blocks) < needed:
            at = obj.words(at + DEQUE_BYTES - 8, 1)[0]
            blocks.append(at)
        if obj.count() and low < DEQUE_ITEMS > high:
            for block in blocks:
                first, end = low if block == blocks[0] else 0, high + 1 if block == last else DEQUE_ITEMS
                references.extend(obj.words(block + 8 + 8 * first, max(0, end - first)))
        return DEQUE_BYTES * len(blocks)

    def _queue(self, obj: RemoteObject, references: array[int]) -> int:
        if self._minor < RING_BEHIND:
            references.append(obj.word(QUEUE_LIST_AT))
            return 0
        table, room = obj.word(RING_TABLE_AT), obj.count(RING_TABLE_AT + 8)
        references.extend(obj.words(table, room))
        return 8 * room

    def _array(self, obj: RemoteObject, _: array[int]) -> int:
        room, description = obj.pair(32)
        return room * (obj.words(description, 1)[0] >> 32)

    def _class(self, obj: RemoteObject, references: array[int]) -> int:
        references.append(obj.word(CLASS_DICT_AT))
        return 0

    def _frame(self, obj: RemoteObject, references: array[int]) -> int:
        """Refer to the local variables of a frame that waits or has ended; those of a running one are on a stack."""
        kind = obj.heap_type
        first, number = frame_locals(
            self._minor, kind.shape, kind.basic_bytes, obj.address, lambda offset: _SIGNED(obj.raw, obj.at + offset)[0]
        )
        count = int(number)
        if not 0 < count <= MAX_LOCALS:
            return 0
        references.extend(obj.words(obj.address + first, count))
        return 8 * count

    # --- numpy

    def _ndarray(self, obj: RemoteObject, references: array[int]) -> int:
        shape_at, (base, description) = obj.word(NDARRAY_SHAPE_AT), obj.pair(NDARRAY_BASE_AT)
        dimensions = obj.word(NDARRAY_DIMENSIONS_AT) & 0xFFFFFFFF
        if dimensions > MAX_DIMENSIONS:
            raise UnreadableError("no array")
        references.append(description)
        if base or not obj.word(64) & OWNS_DATA:
            references.append(base)
            return 16 * dimensions
        shape = obj.words(shape_at, dimensions) if dimensions else array("Q")
        width, has_references = self._dtype(obj, description)
        items = math.prod(shape)
        if not 0 <= items * width < MAX_COUNT:
            raise UnreadableError("no array")
        if has_references:
            references.extend(obj.words(obj.word(NDARRAY_DATA_AT), items))
        return 16 * dimensions + items * width

    def _dtype(self, obj: RemoteObject, description: int) -> tuple[int, bool]:
        """Return the bytes of an element, and whether it is a reference."""
        known = self._dtypes.get(description)
        if known is None:
            known = self._dtypes[description] = dtype_of(obj.read(description, DTYPE_BYTES))
        return known


def frame_locals(minor: int, shape: str, basic: int, address: Any, word: Callable[[int], Any]) -> tuple[int, Any]:
    """Return the offset of the local variables in a frame's or a generator's object, and how many words they take.

    0, or no plausible number, for a frame that is running; `word` gives the signed word at an offset of the object.
    The address and the words are int, or arrays of int64 for several objects of one type, and so is the number.
    """
    if minor <= 10:
        first, state_at, running = basic - 8, *((112, 1) if minor < 10 else (104, 0))
        waits = (word(state_at) >> 32 & 0xFF) != running
        return first, (word(VALUE_STACK_AT) - address - first) // 8 * waits
    in_frame = 72 if minor <= 13 else 80  # bytes of a frame before its variables
    own = word(_FRAME_AT) == address + basic - in_frame if shape == "frame" else True
    if minor <= 13:
        return basic, (word(basic - 8) & 0xFFFFFFFF) * own
    return basic, (word(basic - 16) - address - basic) // 8 * own


def dtype_of(raw: bytes) -> tuple[int, bool]:
    """Return the bytes of an element of a numpy.dtype, and whether it is a reference."""
    number, width, alignment = _INT(raw, 28)[0], _INT(raw, 32)[0], _INT(raw, 36)[0]
    if not alignment:  # numpy 2 has 64 bits of flags there, whose higher half is not used.
        width = _SIGNED(raw, 40)[0]
    return width, number == _REFERENCES
