"""What one object of a CPython heap takes, and what it refers to."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from struct import Struct

from memwatch.diagnosis.heap.builtin_values import BuiltinValues, DictKeys
from memwatch.diagnosis.heap.remote_object import BODY_MOST, COUNT_MOST, FRONT, RemoteObject
from memwatch.diagnosis.heap.type_objects import HeapType
from memwatch.errors import SourceError

_DEQUE_BYTES, _DEQUE_ITEMS, _DEQUE_BLOCKS_MOST = 528, 64, 1 << 20
NDARRAY_DATA_AT, NDARRAY_BASE_AT = 16, 48
_OWNS, _REFERENCES = 4, 17  # numpy: NPY_ARRAY_OWNDATA and NPY_OBJECT
_DIMENSIONS_MOST = 64
_ITEMS_MOST = 1 << 20
_SIGNED, _INT, _DIGITS = Struct("<q").unpack_from, Struct("<i").unpack_from, Struct("<II").unpack_from
_COUNT_AT = {"list": 16, "tuple": 16, "deque": 16, "dict": 16, "set": 24}

MeasureObject = Callable[[RemoteObject, "array[int]"], int]


class Layouts:
    """Tells it of the objects of one process. SourceError when one changes while it is looked at."""

    def __init__(self, objects: BuiltinValues) -> None:
        self._objects, self._minor = objects, objects.minor
        self._shared: dict[int, DictKeys | None] = {}  # the tables of names, by their addresses
        self._elements: dict[int, tuple[int, bool]] = {}  # numpy's types: bytes of one, whether it is a reference
        self._looks: dict[str, MeasureObject] = {
            "": self._items,
            "array": self._array,
            "bytearray": lambda place, _: place.count(24),
            "bytes": self._items,
            "class": self._class,
            "deque": self._deque,
            "dict": self._dict,
            "int": self._int,
            "list": self._list,
            "ndarray": self._ndarray,
            "set": self._set,
            "str": self._str,
            "tuple": self._tuple,
            "weak": lambda _, __: 0,
        }

    def measurer_for(self, kind: HeapType) -> MeasureObject:
        """How to look at the objects of a type: all bytes of one, and its references are appended to those given.

        Bytes are those of `sys.getsizeof`, with the values of instances and the memory that arrays own.
        """
        fixed, look = kind.front_bytes + kind.basic_bytes, self._looks.get(kind.shape, self._items)
        if kind.shape_bytes >= kind.basic_bytes and not kind.has_managed_dict and not kind.dict_offset:
            return lambda place, references: fixed + look(place, references)

        def with_attributes(place: RemoteObject, references: array[int]) -> int:
            shaped = look(place, references)
            return fixed + shaped + self._fields(place, references) + self._attributes(place, references)

        return with_attributes

    def held(self, place: RemoteObject) -> array[int]:
        """What a container holds, without the attributes of a subclass: the values of a dict."""
        references: array[int] = array("Q")
        if place.heap_type.shape == "dict":
            return array("Q", [value for _, value in self._objects.items(place.address, _ITEMS_MOST)])
        if place.heap_type.shape in ("list", "tuple", "deque", "set"):
            self._looks[place.heap_type.shape](place, references)
        return references

    def length(self, place: RemoteObject) -> int | None:
        """How many items a container has; of an array, its first dimension. None when it is no container."""
        shape = place.heap_type.shape
        if shape == "ndarray":
            dimensions = place.word(24) & 0xFFFFFFFF
            return place.words(place.word(32), 1)[0] if 0 < dimensions <= _DIMENSIONS_MOST else None
        return place.count(_COUNT_AT[shape]) if shape in _COUNT_AT else None

    def whole_number(self, place: RemoteObject) -> int | None:
        """The value of an int below 2**60 that is not negative."""
        word, (low, high) = _SIGNED(place.raw, place.at + 16)[0], _DIGITS(place.raw, place.at + 24)
        if self._minor >= 12:
            count, is_negative = word >> 3, word & 3 == 2
            is_zero = word & 3 == 1
        else:
            count, is_negative, is_zero = word, word < 0, word == 0
        if is_negative or count > 2:
            return None
        return 0 if is_zero else int(low + (high << 30 if count == 2 else 0))

    # --- of any type

    def _fields(self, place: RemoteObject, references: array[int]) -> int:
        """The words of the fixed part behind what the shape tells of."""
        start, end = (place.heap_type.shape_bytes + 7) // 8 * 8, min(place.heap_type.basic_bytes, BODY_MOST) // 8 * 8
        references.frombytes(place.raw[place.at + start : place.at + end])
        return 0

    def _items(self, place: RemoteObject, references: array[int]) -> int:
        """What is of varying length, right behind the fixed part."""
        item_bytes = place.heap_type.item_bytes
        if not item_bytes:
            return 0
        number = _SIGNED(place.raw, place.at + 16)[0]
        if not 0 < number < COUNT_MOST:  # what looks like a count may be something else
            return 0
        if item_bytes == 8:
            references.extend(place.words(place.address + place.heap_type.basic_bytes, number))
        return int(number * item_bytes)

    def _attributes(self, place: RemoteObject, references: array[int]) -> int:
        dict_at, values_at = self.instance(place)
        if dict_at:
            references.append(dict_at)
        names = self.names(place.heap_type) if values_at else None
        if names is None:
            return 0
        references.extend(place.words(values_at, names.count))
        return 8 * (names.shared + 1)

    def instance(self, place: RemoteObject) -> tuple[int, int]:
        """Where the dict of an instance is; without one, where the values are whose names its class knows."""
        kind = place.heap_type
        if not kind.has_managed_dict:
            if kind.dict_offset >= 0:
                return (place.word(kind.dict_offset) if 0 < kind.dict_offset < BODY_MOST else 0), 0
            number = abs(_SIGNED(place.raw, place.at + 16)[0])  # of items, behind which the dict is kept
            if kind.shape == "int" and self._minor >= 12:
                number >>= 3
            end = (kind.basic_bytes + number * kind.item_bytes + 7) // 8 * 8
            return place.words(place.address + end + kind.dict_offset, 1)[0], 0
        before, word = place.pair(-FRONT)
        if self._minor == 11:
            return word, 0 if word else before
        if self._minor == 12:
            return (0, word + 1) if word & 1 else (word, 0)
        return word, place.address + kind.basic_bytes + 8 if kind.has_inline_values and not word else 0

    def names(self, kind: HeapType) -> DictKeys | None:
        """The table of the names that a class's instances share; None when it has none."""
        if kind.keys_at not in self._shared:
            try:
                self._shared[kind.keys_at] = self._objects.keys(kind.keys_at) if kind.keys_at else None
            except SourceError:
                self._shared[kind.keys_at] = None
        return self._shared[kind.keys_at]

    # --- of the types that are known by name

    def _list(self, place: RemoteObject, references: array[int]) -> int:
        items_at, room = place.pair(24)
        if count := place.count():
            references.extend(place.words(items_at, count))
        return 8 * room

    def _tuple(self, place: RemoteObject, references: array[int]) -> int:
        count = place.count()
        references.extend(place.words(place.address + self._objects.tuple_bytes, count))
        return 8 * count

    def _dict(self, place: RemoteObject, references: array[int]) -> int:
        keys_at, values_at = place.pair(32)
        keys = self._objects.keys(keys_at, place.read)
        if values_at:
            references.extend(place.words(self._objects.values(values_at), keys.count))
            return 8 * keys.room
        if keys.count:
            words = place.words(keys.first, keys.count * keys.width)
            if keys.width == 2:
                references.extend(words)
            else:
                references.extend(words[1::3])
                references.extend(words[2::3])
        return keys.bytes if keys.room else 0

    def _set(self, place: RemoteObject, references: array[int]) -> int:
        slots, table_at = place.count(32) + 1, place.word(40)
        references.extend(place.words(table_at, 2 * slots)[::2])
        return 0 if place.address <= table_at < place.address + place.heap_type.basic_bytes else 16 * slots

    def _str(self, place: RemoteObject, _: array[int]) -> int:
        start, length, width = self._objects.text_at(place.raw, place.at)
        return start + (length + 1) * width - place.heap_type.basic_bytes

    def _int(self, place: RemoteObject, _: array[int]) -> int:
        word = _SIGNED(place.raw, place.at + 16)[0]
        digits = word >> 3 if self._minor >= 12 else abs(word)
        return int(digits * place.heap_type.item_bytes) if 0 <= digits < COUNT_MOST else 0

    def _deque(self, place: RemoteObject, references: array[int]) -> int:
        (at, last), (low, high) = place.pair(24), place.pair(40)
        blocks, needed = [at], min(_DEQUE_BLOCKS_MOST, 2 + place.count() // _DEQUE_ITEMS)
        while at != last and len(blocks) < needed:
            at = place.words(at + _DEQUE_BYTES - 8, 1)[0]
            blocks.append(at)
        if place.count() and low < _DEQUE_ITEMS > high:
            for block in blocks:
                first, end = low if block == blocks[0] else 0, high + 1 if block == last else _DEQUE_ITEMS
                references.extend(place.words(block + 8 + 8 * first, max(0, end - first)))
        return _DEQUE_BYTES * len(blocks)

    def _array(self, place: RemoteObject, _: array[int]) -> int:
        room, description = place.pair(32)
        return room * (place.words(description, 1)[0] >> 32)

    def _class(self, place: RemoteObject, references: array[int]) -> int:
        references.append(place.word(264))  # its namespace
        return 0

    # --- numpy

    def _ndarray(self, place: RemoteObject, references: array[int]) -> int:
        shape_at, (base, description) = place.word(32), place.pair(NDARRAY_BASE_AT)
        dimensions = place.word(24) & 0xFFFFFFFF
        if dimensions > _DIMENSIONS_MOST:
            raise SourceError("no array")
        references.append(description)
        if base or not place.word(64) & _OWNS:
            references.append(base)
            return 16 * dimensions
        shape = place.words(shape_at, dimensions) if dimensions else array("Q")
        width, has_references = self._element(place, description)
        items = math.prod(shape)
        if not 0 <= items * width < COUNT_MOST:
            raise SourceError("no array")
        if has_references:
            references.extend(place.words(place.word(NDARRAY_DATA_AT), items))
        return 16 * dimensions + items * width

    def _element(self, place: RemoteObject, description: int) -> tuple[int, bool]:
        """Bytes of an element, and whether it is a reference."""
        known = self._elements.get(description)
        if known is None:
            raw = place.read(description, 48)
            number, width, alignment = _INT(raw, 28)[0], _INT(raw, 32)[0], _INT(raw, 36)[0]
            if not alignment:  # numpy 2 has flags of 64 bits there, of which the higher half is not used
                width = _SIGNED(raw, 40)[0]
            known = self._elements[description] = (width, number == _REFERENCES)
        return known
