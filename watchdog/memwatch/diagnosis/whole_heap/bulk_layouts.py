"""The layouts of many objects at once: how many bytes each takes, and where its references are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from memwatch.diagnosis.heap.object_layouts import (
    CLASS_DICT_AT,
    DEQUE_BYTES,
    DEQUE_ITEMS,
    DTYPE_BYTES,
    MAX_DEQUE_BLOCKS,
    MAX_DIMENSIONS,
    MAX_LOCALS,
    NDARRAY_BASE_AT,
    NDARRAY_DATA_AT,
    OWNS_DATA,
    QUEUE_LIST_AT,
    RING_BEHIND,
    RING_COUNT_AT,
    RING_TABLE_AT,
    Layouts,
    dtype_of,
    frame_locals,
)
from memwatch.diagnosis.heap.remote_memory import RemoteMemory, UnreadableError
from memwatch.diagnosis.heap.remote_objects import (
    FRONT_BYTES,
    MAX_BODY_BYTES,
    MAX_COUNT,
    MAX_ENTRIES,
    MAX_WORDS,
    HeapType,
    TypeTable,
)
from memwatch.diagnosis.heap.torch_tensors import Tensors
from memwatch.diagnosis.whole_heap.bulk_reads import LONGEST_BYTES, BulkReader, Places, Words, distinct, ragged
from memwatch.diagnosis.whole_heap.gc_object_scan import are_refcounts, likely_types

HEAD_BYTES = CLASS_DICT_AT + 8  # of each object that are read: no known layout has a farther word
_PIECE_WORDS = LONGEST_BYTES // 64  # of a long table that are read at once
_NONE_YET = np.empty(0, np.int64)
_NONE = -MAX_COUNT  # bytes of what is no object
# Types that are not gone into: names, constants and tables of code are a third of the objects of a torch program.
_CLOSED = {"code"}
_MANAGED, _INLINE = 1, 2  # how an instance has its attributes

Sizes = NDArray[np.int64]


@dataclass(slots=True)
class _References:
    """Tables of references in memory, and references that were read already."""

    owners: list[Places] = field(default_factory=list)
    tables: list[Words] = field(default_factory=list)
    counts: list[Places] = field(default_factory=list)
    steps: list[Places] = field(default_factory=list)  # one word of so many is a reference
    read: list[tuple[Places, Words]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects of which the first bytes were read."""

    places: Places  # in the heap
    addresses: Words
    kinds: NDArray[np.int32]  # numbers of their types
    words: Words
    at: Places  # index of their first words in `words`
    room: Places  # number of words from there on that are theirs

    def word(self, offset: int) -> Words:
        found: Words = self.words[self.at + offset // 8]
        return found

    def number(self, offset: int = 16) -> Places:
        return self.word(offset).view(np.int64)

    def chosen(self, which: NDArray[np.bool_] | Places) -> Objects:
        places, addresses, kinds = self.places[which], self.addresses[which], self.kinds[which]
        return Objects(places, addresses, kinds, self.words, self.at[which], self.room[which])


class BulkLayouts:
    """Measures the objects of one process, and collects their references."""

    def __init__(
        self,
        memory: RemoteMemory,
        types: TypeTable,
        layouts: Layouts,
        left_out: Callable[[HeapType], bool] = lambda _: False,
    ) -> None:
        """Objects of `left_out` types are passed over."""
        self._memory, self._layouts, self._builtins = memory, layouts, layouts.builtins
        self.types, self.minor, self.left_out = types, layouts.builtins.minor, left_out
        self.ascii_offset = 48 if self.minor <= 11 else 40  # of the characters in a str of ASCII
        self._reader = BulkReader(memory)
        self.tables = BulkReader(memory)  # The objects themselves are in the buffer of the other one.
        self.tensors = Tensors(memory)
        self.kinds: list[HeapType] = []  # of the objects that were measured, by number
        self._addresses, self._numbers = np.empty(0, np.uint64), np.empty(0, np.int32)  # of these, in order
        self._columns = np.empty((0, 8), np.int64)  # of these, by number
        self._shapes: list[str] = []
        self._found = _References()
        self._dtypes: dict[int, tuple[int, bool]] = {}

    def measure(self, places: Places, addresses: Words) -> Iterator[tuple[Places, NDArray[np.int32], Sizes]]:
        """Yield which of the objects at these addresses are some, the numbers of their types, and their bytes.

        Bytes are those of `sys.getsizeof`, with the values of instances and the memory that arrays own.
        """
        room = np.minimum(self._reader.mapped_until(addresses) - addresses, np.uint64(HEAD_BYTES)) & ~np.uint64(7)
        for which, words, at in self._reader.windows(addresses, room, FRONT_BYTES):
            kinds = self._numbers_of(words[at + 1])
            are = (kinds >= 0) & are_refcounts(self._memory, words[at])
            of_each = room[which].view(np.int64)
            are[are] = np.minimum(self._columns[kinds[are], 0], HEAD_BYTES) <= of_each[are]
            objects = Objects(places[which], addresses[which], kinds, words, at, of_each // 8).chosen(are)
            sizes = self._sizes(objects)
            yield objects.places[sizes >= 0], objects.kinds[sizes >= 0], sizes[sizes >= 0]

    def references(self) -> Iterator[tuple[Places, Words]]:
        """Yield what the objects measured since the last call refer to: places, and words that may be addresses."""
        found, self._found = self._found, _References()
        yield from found.read
        if not found.tables:
            return
        owners, tables = np.concatenate(found.owners), np.concatenate(found.tables)
        counts, steps = np.concatenate(found.counts), np.concatenate(found.steps)
        whole = self._reader.mapped_until(tables) >= tables + (8 * counts * steps).astype(np.uint64)
        owners, tables, counts, steps = owners[whole], tables[whole], counts[whole], steps[whole]
        if len(counts) and counts.max() > _PIECE_WORDS:
            pieces = -(-counts // _PIECE_WORDS)
            within = ragged(np.zeros(len(pieces), np.int64), pieces)
            owners, counts, steps = np.repeat(owners, pieces), np.repeat(counts, pieces), np.repeat(steps, pieces)
            tables = np.repeat(tables, pieces) + (within * _PIECE_WORDS * 8 * steps).astype(np.uint64)
            counts = np.minimum(counts - within * _PIECE_WORDS, _PIECE_WORDS)
        for which, words, at in self._reader.windows(tables, (8 * counts * steps).astype(np.uint64)):
            number = counts[which]
            for step in distinct(steps[which]).tolist():
                same = steps[which] == step
                yield np.repeat(owners[which[same]], number[same]), words[ragged(at[same], number[same], step)]

    # --- objects that were found, read again for the names in them ---

    def read(self, addresses: Words, kinds: NDArray[np.int32]) -> Iterator[tuple[Places, Objects]]:
        """Yield which of these objects of known types were read again, and their fixed parts."""
        sizes = np.clip(self._columns[kinds, 0] // 8 * 8, 8, MAX_BODY_BYTES)
        types = np.array([kind.address for kind in self.kinds], np.uint64)
        for which, words, at in self._reader.windows(addresses, sizes.astype(np.uint64), FRONT_BYTES):
            objects = Objects(which, addresses[which], kinds[which], words, at, sizes[which] // 8)
            same = objects.chosen(objects.word(8) == types[objects.kinds])
            if len(same.at):
                yield same.places, same

    def attributes_at(self, objects: Objects) -> tuple[Words, Words]:
        """Return of instances of one type the addresses of the dict, and of the values by the names of the class."""
        none = np.zeros(len(objects.at), np.uint64)
        kind = self.kinds[objects.kinds[0]]
        if kind.shape == "class":
            return objects.word(CLASS_DICT_AT), none
        if kind.has_managed_dict:
            return self._managed_at(objects)
        if kind.dict_offset == 0:
            return none, none
        dicts, places = none.copy(), objects.addresses + self._dict_offsets(objects).astype(np.uint64)
        for which, words, at in self.tables.windows(places, np.full(len(places), 8, np.uint64)):
            dicts[which] = words[at]
        return dicts, none

    def items(self, dicts: Objects, most: int) -> Iterator[tuple[Places, Words, Words]]:
        """Yield of some of these dicts which they are, keys, and values; of one with more than `most` entries none."""
        keys_at, values_at = dicts.word(32), dicts.word(40)
        whole = [(_NONE_YET, _NONE_YET, _NONE_YET, _NONE_YET)]
        for which, first, count, width, _, room in self._key_tables(keys_at):
            fits = (count > 0) & (count <= room) & (count <= most)
            whole.append((which[fits], first[fits], count[fits], width[fits]))
        owners, first, count, width = (np.concatenate(parts) for parts in zip(*whole, strict=True))
        split = values_at[owners] > 0
        for table in distinct(first[split]).tolist():
            same = split & (first == table)
            keys = self._words(table, int(count[same].max() * width[same][0]))[width[same][0] - 2 :: width[same][0]]
            values = values_at[owners[same]] + np.uint64(self._builtins.values_offset)
            yield from self.values(owners[same], values, keys)
        own = np.flatnonzero(~split)
        sizes = (8 * count[own] * width[own]).astype(np.uint64)
        for which, words, at in self.tables.windows(first[own].view(np.uint64), sizes):
            for step in (2, 3):
                same = np.flatnonzero(width[own[which]] == step)
                entries = own[which[same]]
                places = ragged(at[same], count[entries], step) + step - 2
                yield np.repeat(owners[entries], count[entries]), words[places], words[places + 1]

    def values(self, owners: Places, tables: Words, keys: Words) -> Iterator[tuple[Places, Words, Words]]:
        """Yield owners, keys, and the values that each owner has for these keys in its table."""
        for which, words, at in self.tables.windows(tables, np.full(len(tables), 8 * len(keys), np.uint64)):
            places = ragged(at, np.full(len(at), len(keys)))
            yield np.repeat(owners[which], len(keys)), np.tile(keys, len(at)), words[places]

    def shared_keys(self, kind: HeapType) -> Words:
        """Return the addresses of the names that the instances of a class share."""
        names = self._layouts.shared_keys(kind)
        if names is None:
            return np.empty(0, np.uint64)
        return self._words(names.first, names.count * names.width)[names.width - 2 :: names.width]

    def _words(self, address: int, count: int) -> Words:
        try:
            return np.frombuffer(self._memory.read(address, 8 * count), np.uint64)
        except UnreadableError:
            return np.empty(0, np.uint64)

    def _refer(self, places: Places, tables: Words, counts: Places, step: int = 1) -> None:
        """Add tables of `counts` references, one in each `step` words; none where the count is 0 or less."""
        some = counts > 0
        if some.any():
            found, counts = self._found, np.minimum(counts[some], MAX_WORDS)
            found.owners.append(places[some])
            found.tables.append(tables[some] & ~np.uint64(7))
            found.counts.append(counts)
            found.steps.append(np.full(len(counts), step, np.int64))

    def _refer_behind(self, objects: Objects, offsets: Places, counts: Places) -> None:
        """Add so many references from these bytes of the objects on."""
        here = (counts > 0) & (offsets // 8 + counts <= objects.room)
        starts, number = objects.at[here] + offsets[here] // 8, counts[here]
        self._found.read.append((np.repeat(objects.places[here], number), objects.words[ragged(starts, number)]))
        if len(far := np.flatnonzero(~here & (counts > 0))):
            self._refer(objects.places[far], objects.addresses[far] + offsets[far].astype(np.uint64), counts[far])

    # --- types ---

    def _numbers_of(self, words: Words) -> NDArray[np.int32]:
        """Return the numbers of the types at these addresses; -1 where there is none."""
        for _ in range(2):
            at = np.searchsorted(self._addresses, words)
            at[at == len(self._addresses)] = 0
            known = self._addresses[at] == words if len(self._addresses) else np.zeros(len(words), bool)
            if known.all() or not self._learn(distinct(words[~known])):
                break
        numbers = np.full(len(words), -1, np.int32)
        numbers[known] = self._numbers[at[known]]
        return numbers

    def _learn(self, words: Words) -> bool:
        """Read the types at some of these addresses; return whether there were any."""
        found = [self.types.type_at(one) for one in likely_types(self.tables, words).tolist()]
        new = [kind for kind in found if kind is not None and not self.left_out(kind)]
        if not new:
            return False
        rows = [self._row(kind) for kind in new]
        addresses = np.concatenate([self._addresses, np.array([kind.address for kind in new], np.uint64)])
        numbers = np.concatenate(
            [self._numbers, np.arange(len(self.kinds), len(self.kinds) + len(new), dtype=np.int32)]
        )
        order = np.argsort(addresses)
        self._addresses, self._numbers = addresses[order], numbers[order]
        self._columns = np.concatenate([self._columns, np.array(rows, np.int64)])
        self.kinds += new
        return True

    def _row(self, kind: HeapType) -> tuple[int, ...]:
        shape = kind.shape if kind.shape in _MEASURERS else ""
        if shape not in self._shapes:
            self._shapes.append(shape)
        start, end = (kind.shape_bytes + 7) // 8 * 8, min(kind.basic_bytes, MAX_BODY_BYTES) // 8 * 8
        has_rest = kind.shape_bytes < kind.basic_bytes or kind.has_managed_dict or kind.dict_offset != 0
        has_rest &= kind.name not in _CLOSED
        how = (_MANAGED if kind.has_managed_dict else 0) | (_INLINE if kind.has_inline_values else 0)
        words = max(0, end - start) // 8 if has_rest else 0
        front = kind.front_bytes + kind.basic_bytes
        return kind.basic_bytes, kind.item_bytes, self._shapes.index(shape), front, start, words, how, kind.dict_offset

    # --- any type ---

    def _sizes(self, objects: Objects) -> Sizes:
        """Return the bytes of objects; less than 0 where it is none."""
        sizes = np.zeros(len(objects.at), np.int64)
        shapes, rest = self._columns[objects.kinds, 2], self._columns[objects.kinds, 5]
        for number, shape in enumerate(self._shapes):
            if len(which := np.flatnonzero(shapes == number)):
                sizes[which] = _MEASURERS[shape](self, objects.chosen(which))
        sizes += self._columns[objects.kinds, 3]
        real = (sizes >= 0) & (sizes < MAX_COUNT)
        sizes[~real] = -1
        if len(which := np.flatnonzero(real & (rest > 0))):  # these words may be references
            self._refer_behind(objects.chosen(which), self._columns[objects.kinds[which], 4], rest[which])
        how = self._columns[objects.kinds, 6]
        if len(which := np.flatnonzero(real & (how > 0))):
            sizes[which] += self._managed_attributes(objects.chosen(which))
        if len(which := np.flatnonzero(real & (self._columns[objects.kinds, 7] != 0))):
            more = objects.chosen(which)
            self._refer_behind(more, self._dict_offsets(more), np.ones(len(which), np.int64))
        return sizes

    def _items(self, objects: Objects) -> Sizes:
        """Measure the part of variable length, right after the fixed part."""
        basic, item = self._columns[objects.kinds, 0], self._columns[objects.kinds, 1]
        number = objects.number()
        number = np.where((item > 0) & (number > 0) & (number < MAX_COUNT), number, 0)  # The word may be no count.
        self._refer_behind(objects, basic // 8 * 8, np.where(item == 8, number, 0))
        sizes: Sizes = number * item
        return sizes

    def _managed_attributes(self, objects: Objects) -> Sizes:
        """Refer to the attributes of instances that lie before or behind them."""
        sizes = np.zeros(len(objects.at), np.int64)
        dicts, values = self._managed_at(objects)
        self._found.read.append((objects.places[dicts > 0], dicts[dicts > 0]))
        some = np.flatnonzero(values)
        for kind in distinct(objects.kinds[some]).tolist():
            names = self._layouts.shared_keys(self.kinds[kind])
            if names is not None:
                same = some[objects.kinds[some] == kind]
                self._refer(objects.places[same], values[same], np.full(len(same), names.count))
                sizes[same] = 8 * (names.shared + 1)
        return sizes

    def _managed_at(self, objects: Objects) -> tuple[Words, Words]:
        """Return the addresses of the dicts of instances and, without one, of the values by the names of the class."""
        first, second = objects.words[objects.at - 4], objects.words[objects.at - 3]
        none = np.zeros(len(objects.at), np.uint64)
        if self.minor == 11:
            return second, np.where(second > 0, none, first)
        if self.minor == 12:
            has_values = second & np.uint64(1) > 0
            return np.where(has_values, none, second), np.where(has_values, second + np.uint64(1), none)
        inline = (self._columns[objects.kinds, 6] & _INLINE > 0) & (second == 0)
        behind = objects.addresses + (self._columns[objects.kinds, 0] + 8).astype(np.uint64)
        return second, np.where(inline, behind, none)

    def _dict_offsets(self, objects: Objects) -> Places:
        """Return where in instances the address of their dict is; a negative offset is from the end of the items."""
        offsets, basic, item = (self._columns[objects.kinds, column] for column in (7, 0, 1))
        number = np.abs(objects.number())
        if self.minor >= 12:
            are_int = np.array([kind.shape == "int" for kind in self.kinds], bool)[objects.kinds]
            number = np.where(are_int, number >> 3, number)
        ends = (basic + np.minimum(number, MAX_COUNT) * item + 7) // 8 * 8
        found: Places = np.where(offsets > 0, offsets, ends + offsets)
        return found

    # --- types that are known by name ---

    def _list(self, objects: Objects) -> Sizes:
        count, room = objects.number(), objects.number(32)
        fits = (count >= 0) & (count <= room)
        self._refer(objects.places, objects.word(24), np.where(fits, count, 0))
        return np.where(fits, 8 * room, _NONE)

    def _tuple(self, objects: Objects) -> Sizes:
        count = objects.number()
        fits = (count >= 0) & (count < MAX_COUNT)
        offsets = np.full(len(count), self._builtins.tuple_bytes)
        self._refer_behind(objects, offsets, np.where(fits, count, 0))
        return np.where(fits, 8 * count, _NONE)

    def _dict(self, objects: Objects) -> Sizes:
        sizes = np.full(len(objects.at), _NONE, np.int64)
        places, keys_at, values_at = objects.places, objects.word(32), objects.word(40)
        for which, first, count, width, table_bytes, room in self._key_tables(keys_at):
            fits = (count >= 0) & (count <= room) & (room <= MAX_ENTRIES)
            own, tables, split = places[which], first.view(np.uint64), values_at[which] > 0
            sizes[which] = np.where(fits, np.where(split, 8 * room, np.where(room > 0, table_bytes, 0)), _NONE)
            number = np.where(fits, count, 0)
            values = values_at[which] + np.uint64(self._builtins.values_offset)
            self._refer(own, values, np.where(split, number, 0))
            self._refer(own, tables, np.where(~split & (width == 2), 2 * number, 0))
            for word in (8, 16):  # after the hash: the key, and the value
                self._refer(own, tables + np.uint64(word), np.where(~split & (width == 3), number, 0), 3)
        return sizes

    def _key_tables(self, tables: Words) -> Iterator[tuple[Places, Places, Places, Places, Sizes, Places]]:
        """Yield which of these were read: address of the entries, their number, words of one, bytes in all, room."""
        for which, words, at in self.tables.windows(tables & ~np.uint64(7), np.full(len(tables), 40, np.uint64)):
            addresses = tables[which].view(np.int64)
            if self.minor <= 10:
                size, count = np.clip(words[at + 1].view(np.int64), 0, MAX_COUNT), words[at + 4].view(np.int64)
                index = size * np.select([size < 1 << 8, size < 1 << 16, size < 1 << 32], [1, 2, 4], 8)
                first, width = addresses + 40 + index, np.full(len(at), 3, np.int64)
            else:
                head, count = words[at + 1].view(np.int64), words[at + 3].view(np.int64)
                size, index = (1 << np.minimum(head >> shift & 0xFF, 40) for shift in (0, 8))
                first, width = addresses + 32 + index, np.where(head >> 16 & 0xFF > 0, 2, 3)
            room = (size << 1) // 3
            yield which, first, count, width, first - addresses + room * width * 8, room

    def _set(self, objects: Objects) -> Sizes:
        slots, table = objects.number(32) + 1, objects.word(40)
        fits = (slots > 0) & (slots < MAX_COUNT)
        self._refer(objects.places, table, np.where(fits, slots, 0), 2)
        basic = self._columns[objects.kinds, 0].astype(np.uint64)
        inside = (table >= objects.addresses) & (table < objects.addresses + basic)
        return np.where(fits, np.where(inside, 0, 16 * slots), _NONE)

    def _str(self, objects: Objects) -> Sizes:
        length, state = objects.number(), objects.number(32)
        width, compact, ascii_only = state >> 2 & 7, state & 32, state & 64
        other = self.ascii_offset + (24 if self.minor <= 11 else 16)
        start = np.where(ascii_only > 0, self.ascii_offset, other)
        fits = (compact > 0) & ((width == 1) | (width == 2) | (width == 4)) & (length >= 0) & (length < MAX_COUNT)
        return np.where(fits, start + (length + 1) * width - self._columns[objects.kinds, 0], _NONE)

    def _int(self, objects: Objects) -> Sizes:
        word = objects.number()
        digits = word >> 3 if self.minor >= 12 else np.abs(word)
        return np.where((digits >= 0) & (digits < MAX_COUNT), digits * self._columns[objects.kinds, 1], 0)

    def _deque(self, objects: Objects) -> Sizes:
        sizes = np.empty(len(objects.at), np.int64)
        columns = [objects.word(offset).tolist() for offset in (16, 24, 32, 40, 48)]
        for i, (count, left, right, low, high) in enumerate(zip(*columns, strict=True)):
            try:
                blocks = self._blocks(left, right, min(MAX_DEQUE_BLOCKS, 2 + count // DEQUE_ITEMS))
            except UnreadableError:
                sizes[i] = _NONE
                continue
            sizes[i] = DEQUE_BYTES * len(blocks)
            if count and low < DEQUE_ITEMS > high:
                first = np.zeros(len(blocks), np.int64)
                end = np.full(len(blocks), DEQUE_ITEMS, np.int64)
                first[0], end[-1] = low, high + 1 if blocks[-1] == right else DEQUE_ITEMS
                tables = np.array(blocks, np.uint64) + (8 + 8 * first).astype(np.uint64)
                self._refer(np.full(len(blocks), objects.places[i]), tables, end - first)
        return sizes

    def _blocks(self, left: int, right: int, most: int) -> list[int]:
        blocks = [left]
        while blocks[-1] != right and len(blocks) < most:
            blocks.append(self._memory.word(blocks[-1] + DEQUE_BYTES - 8))
        return blocks

    def _queue(self, objects: Objects) -> Sizes:
        if self.minor < RING_BEHIND:
            self._refer(
                objects.places, objects.addresses + np.uint64(QUEUE_LIST_AT), np.ones(len(objects.at), np.int64)
            )
            return np.zeros(len(objects.at), np.int64)
        room, count = objects.number(RING_TABLE_AT + 8), objects.number(RING_COUNT_AT)
        fits = (count >= 0) & (count <= room) & (room < MAX_COUNT)
        self._refer(objects.places, objects.word(RING_TABLE_AT), np.where(fits, room, 0))
        return np.where(fits, 8 * room, _NONE)

    def _array(self, objects: Objects) -> Sizes:
        room, descriptions = objects.number(32), objects.word(40)
        distinct, which = np.unique(descriptions, return_inverse=True)
        widths = np.array([self._word_or_0(one) >> 32 for one in distinct.tolist()], np.int64)
        return np.where(room >= 0, room * widths[which], _NONE)

    def _word_or_0(self, address: int) -> int:
        try:
            return self._memory.word(address)
        except UnreadableError:
            return 0

    def _class(self, objects: Objects) -> Sizes:
        self._found.read.append((objects.places, objects.word(CLASS_DICT_AT)))
        return np.zeros(len(objects.at), np.int64)

    def _frame(self, objects: Objects) -> Sizes:
        sizes = np.zeros(len(objects.at), np.int64)
        for number in distinct(objects.kinds).tolist():
            kind, same = self.kinds[number], np.flatnonzero(objects.kinds == number)
            some = objects.chosen(same)
            first, count = frame_locals(
                self.minor, kind.shape, kind.basic_bytes, some.addresses.view(np.int64), some.number
            )
            count = np.where((count > 0) & (count <= MAX_LOCALS), count, 0)
            self._refer_behind(some, np.full(len(same), first), count)
            sizes[same] = 8 * count
        return sizes

    # --- of numpy and torch ---

    def _ndarray(self, objects: Objects) -> Sizes:
        base, description = objects.word(NDARRAY_BASE_AT), objects.word(NDARRAY_BASE_AT + 8)
        dimensions = objects.number(24) & 0xFFFFFFFF
        self._found.read.append((objects.places, description))
        owns = (base == 0) & (objects.word(64) & np.uint64(OWNS_DATA) > 0)
        self._found.read.append((objects.places[~owns], base[~owns]))
        dtypes, of_dtype = np.unique(description, return_inverse=True)
        known = np.array([self._dtype(one) for one in dtypes.tolist()], np.int64).reshape(-1, 2)
        items = self._products(objects.word(32), np.where(dimensions <= MAX_DIMENSIONS, dimensions, 0))
        width, has_references = known[of_dtype, 0], known[of_dtype, 1] > 0
        fits = (dimensions <= MAX_DIMENSIONS) & (~owns | ((items >= 0) & (width >= 0) & (items * width < MAX_COUNT)))
        self._refer(objects.places, objects.word(NDARRAY_DATA_AT), np.where(fits & owns & has_references, items, 0))
        return np.where(fits, 16 * dimensions + np.where(owns, items * width, 0), _NONE)

    def _products(self, shapes: Words, dimensions: Places) -> Places:
        """Return the number of items of each array; -1 for none."""
        found = np.where(dimensions > 0, -1.0, 1.0)
        for which, words, at in self.tables.windows(shapes & ~np.uint64(7), (8 * dimensions).astype(np.uint64)):
            found[which] = 1.0
            for k in range(int(dimensions[which].max())):
                more = dimensions[which] > k
                found[which[more]] *= words[at[more] + k].view(np.int64)
        return np.where(np.abs(found) < MAX_COUNT, found, -1.0).astype(np.int64)

    def _dtype(self, description: int) -> tuple[int, bool]:
        if description not in self._dtypes:
            try:
                self._dtypes[description] = dtype_of(self._memory.read(description, DTYPE_BYTES))
            except UnreadableError:
                self._dtypes[description] = -1, False
        return self._dtypes[description]

    def _tensor(self, objects: Objects) -> Sizes:
        def size(at: int) -> int:
            return self.tensors.add(lambda offset: int(objects.words[at + offset // 8]))

        return np.array([size(at) for at in objects.at.tolist()], np.int64)


_MEASURERS: dict[str, Callable[[BulkLayouts, Objects], Sizes]] = {
    "": BulkLayouts._items,
    "array": BulkLayouts._array,
    "bytearray": lambda _, objects: objects.number(24),
    "class": BulkLayouts._class,
    "deque": BulkLayouts._deque,
    "dict": BulkLayouts._dict,
    "frame": BulkLayouts._frame,
    "generator": BulkLayouts._frame,
    "int": BulkLayouts._int,
    "list": BulkLayouts._list,
    "ndarray": BulkLayouts._ndarray,
    "queue": BulkLayouts._queue,
    "set": BulkLayouts._set,
    "str": BulkLayouts._str,
    "tensor": BulkLayouts._tensor,
    "tuple": BulkLayouts._tuple,
    "weak": lambda _, objects: np.zeros(len(objects.at), np.int64),
}
