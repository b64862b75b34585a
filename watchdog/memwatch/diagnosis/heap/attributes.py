"""The attributes of remote objects: their names and values, and the capacity that they state."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache

from memwatch.core.examination import LRU_ITEM
from memwatch.core.text_and_units import printable
from memwatch.diagnosis.heap.object_layouts import CLASS_DICT_AT, Layouts
from memwatch.diagnosis.heap.program_modules import is_installed
from memwatch.diagnosis.heap.remote_memory import REFERENCE, Hop, RemoteMemory, UnreadableError
from memwatch.diagnosis.heap.remote_objects import (
    MAX_COUNT,
    BuiltinValues,
    DictKeys,
    HeapType,
    RemoteObject,
    TypeTable,
    read_remote_object,
)
from memwatch.errors import SourceError

_MEMBER_BYTES, _MAX_MEMBERS = 40, 256  # PyMemberDef: name, type, offset, flags, doc
_OBJECT_MEMBERS = {6, 16}  # T_OBJECT, T_OBJECT_EX
FEW_NAMES = 8  # So few keys of a dict are names in a namespace, and so few items fields of a record (chosen).
_MAX_BASES = 64  # of a type: a bound against circles
_MAX_NAME_BYTES = 256
_DEQUE_MAXLEN_AT = 64  # in a dequeobject
# In lru_cache_object, and in the lru_list_elem that its dict holds where it has a bound; these are read since 3.10.
LRU_CACHE = "functools._lru_cache_wrapper"
LRU_CACHE_AT, _LRU_MAXSIZE_AT, _LRU_RESULT_AT = 72, 96, 48
_HIDDEN_MEMBERS = {  # the cache is a ring of items, too
    LRU_CACHE: [("cache", LRU_CACHE_AT), ("cache[k]", 16), ("cache[k]", 24)],
    LRU_ITEM: [("result", _LRU_RESULT_AT)],
    # Also of a Task. Between its exception and its result is the traceback, in 3.11 and later versions of 3.10.
    "_asyncio.Future": [("exception", 48), ("result", 56), ("result", 64)],
}
_CAPACITIES = ("capacity", "maxlen", "max_len", "max_size", "maxsize", "max_length", "buffer_size", "max_capacity")
# Words of other names that state a bound, by themselves or with what they are a bound of; and the bytes of their units.
_BOUNDS, _MOST = {"capacity", "budget", "quota", "limit", "bound"}, {"max", "maximum", "most"}
_OF_CONTAINERS = {
    *("len", "length", "size", "count", "num", "number", "n", "items", "entries", "elements", "bytes", "memory"),
    *("buffer", "cache", "queue", "pool", "history", "window", "kept"),
}
_UNITS = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_NEARLY_FULL = 0.8  # The bytes of what is in a container are estimated, and are more than its owner counts (chosen).
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Objects that belong to the program itself and do not count as an attribute's data, by shape and by name of the type.
_PROGRAM_SHAPES = {"class", "weak"}
_PROGRAM = {"module", "function", "builtin_function_or_method", "code", "method"}
BOOKKEEPING = ("locals", "globals", "f_locals", "f_globals")  # dicts of variables, which are held elsewhere, too
_MODULE_NAMES = ("__name__", "__file__")
_MODULE_ITEMS = 16  # first items of a module's dict: the import puts these names among them
_MAX_ITEMS = 1 << 16  # of a dict: a bound on time
_SAMPLED_KEYS = 16  # of a dict, that tell whether they are numbers of the items of a data set (chosen)
_REMOVALS = {"popitem", "pop", "popleft", "clear", "remove"}
_MAX_LISTED = 1 << 16  # items of a data set that are looked through: a bound on time
_MAX_KEYS = 1 << 14  # of dicts that are remembered: a bound on memory, of about 2 MB (chosen)
TYPE_AT = 8
_FUNCTION_AT = 16  # in a bound method
_QUALIFIED_NAME_AT = {False: 104, True: 40}  # in a function, by whether it is of 3.10 or later
_CODE_AT = {False: 16, True: 48}  # as above
# In the code, by whether it is of 3.11 or later: the names of globals and attributes, and the file.
_NAMES_AND_FILE_AT = {False: (64, 104), True: (32, 112)}
_MAX_CODE_NAMES = 256  # of one method: a bound on time
_DEFAULTS_AT = {False: 32, True: 56}  # as above; those of keyword-only arguments come next
_MANAGED_DICT_AT, _VALUES_AT = -24, -32  # from an instance, since 3.11: its dict, and in 3.11 its values
_VALUES_INSIDE = 13  # CPython 3.13: an instance's values are in itself

Way = tuple[str, tuple[Hop, ...], int]  # a name, the way to its value, and the address of the value now


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the program."""

    name: str  # empty: it has none
    file: str  # empty: it has none, or it is not known
    namespace: int  # the address of its dict


class Attributes:
    """Reads attributes in one process; values that change meanwhile are left out."""

    def __init__(self, memory: RemoteMemory, builtins: BuiltinValues, types: TypeTable, layouts: Layouts) -> None:
        self._memory, self._builtins, self._types, self._layouts = memory, builtins, types, layouts
        self.module = cache(self._module)  # reads the module at an address; fields that cannot be read are empty
        self.members = cache(self._members)  # names and offsets of the references in an object's fixed part
        self.identifier = cache(self._identifier)  # the name in the program's code that a str is; None for data
        # Of a class that no package has installed: names of globals and attributes that each method uses, in order.
        self.methods = cache(self._methods)
        self._shared_names: dict[DictKeys, list[str | None]] = {}
        self._key = lru_cache(_MAX_KEYS)(self._read_key)  # Objects of a class share the str of an attribute's name.

    def named_values(self, obj: RemoteObject) -> Iterator[tuple[str, int]]:
        """Yield names and addresses of values, of slots and of the instance's dict."""
        kind = obj.heap_type
        with suppress(UnreadableError):
            for name, offset in self.members(kind):
                yield name, obj.words(obj.address + offset, 1)[0]
            dict_at, values_at = self._layouts.attributes_at(obj)
            if dict_at:
                yield from self.items(dict_at)
            elif values_at and (keys := self._layouts.shared_keys(kind)) is not None and keys.count:
                values = self._memory.words(values_at, keys.count)
                yield from (
                    (name, value) for name, value in zip(self._shared(keys), values, strict=True) if name and value
                )

    def ways(self, obj: RemoteObject) -> Iterator[Way]:
        """Yield the attributes of an instance: name, way from its address, address of the value."""
        kind, words, minor = obj.heap_type, self._memory.words, self._builtins.minor
        for name, offset in self.members(kind):
            yield name, (Hop(offset, TYPE_AT, kind.address),), obj.words(obj.address + offset, 1)[0]
        dict_at, values_at = self._layouts.attributes_at(obj)
        if dict_at:
            pointer_at = _MANAGED_DICT_AT if kind.has_managed_dict else kind.dict_offset
            if pointer_at > 0 or kind.has_managed_dict:
                yield from self.item_ways(dict_at, (Hop(pointer_at, TYPE_AT, kind.address),))
        elif values_at and (keys := self._layouts.shared_keys(kind)) is not None and keys.count:
            way: tuple[Hop, ...] = ()
            first = values_at - obj.address
            if minor < _VALUES_INSIDE:
                pointer_at = _VALUES_AT if minor == 11 else _MANAGED_DICT_AT
                way = (Hop(pointer_at, TYPE_AT, kind.address),)
                first = values_at - (self._memory.word(obj.address + pointer_at) & REFERENCE)
            for i, (text, value) in enumerate(zip(self._shared(keys), words(values_at, keys.count), strict=True)):
                if value and text is not None:
                    last = Hop(first + 8 * i) if way else Hop(first + 8 * i, TYPE_AT, kind.address)
                    yield text, (*way, last), value

    def _shared(self, keys: DictKeys) -> list[str | None]:
        """Return the names in a key table that objects of a class share."""
        known = self._shared_names.get(keys)
        if known is None:
            words = self._memory.words(keys.first, keys.count * keys.width)[keys.width - 2 :: keys.width]
            known = self._shared_names[keys] = [self._key(key) for key in words]
        return known

    def item_ways(self, dict_at: int, way: tuple[Hop, ...] = ()) -> Iterator[Way]:
        """Yield the items of a dict whose keys are text; `way` leads to the dict."""
        keys_at, values_at = self._memory.words(dict_at + 32, 2)
        keys, values_offset = self._builtins.keys(keys_at), self._builtins.values_offset
        if not keys.count or keys.count > _MAX_ITEMS:
            return
        raw = self._memory.words(keys.first, keys.count * keys.width)
        split = self._memory.words(values_at + values_offset, keys.count) if values_at else ()
        for i in range(keys.count):
            at = keys.width * (i + 1) - 2
            key, value = raw[at], split[i] if values_at else raw[at + 1]
            name = self._key(key) if key and value else None
            if name is not None and values_at:
                yield name, (*way, Hop(40, 32, keys_at), Hop(values_offset + 8 * i)), value
            elif name is not None:
                key_at = keys.first - keys_at + 8 * at
                yield name, (*way, Hop(32), Hop(key_at + 8, key_at, key)), value

    def dict_of(self, obj: RemoteObject) -> int:
        """Return the address of the dict of attributes; 0 without one."""
        try:
            if obj.heap_type.name == "module":
                return obj.word(16)
            if obj.heap_type.shape == "class":
                return obj.word(CLASS_DICT_AT)
            return self._layouts.attributes_at(obj)[0]
        except SourceError:
            return 0

    def items(self, address: int, most: int = _MAX_ITEMS) -> Iterator[tuple[str, int]]:
        """Yield those of the first `most` items of a dict whose keys are text."""
        with suppress(SourceError):
            for key, value in self._builtins.items(address, most):
                if (name := self._key(key)) is not None:
                    yield name, value

    def _read_key(self, address: int) -> str | None:
        text = self._builtins.text_or_none(address)
        return printable(text) if text is not None else None

    def named_items(self, address: int) -> Iterator[tuple[str, int]]:
        """Yield the items of a dict whose keys are names in the program's code, not data."""
        with suppress(SourceError):
            for key, value in self._builtins.items(address, _MAX_ITEMS):
                if (name := self.identifier(key)) is not None:
                    yield name, value

    def _identifier(self, address: int) -> str | None:
        with suppress(SourceError):
            name = self._builtins.text_or_none(address)
            if name is None or not name.isidentifier():
                return None
            is_special = name.startswith("__") and name.endswith("__")  # Those of CPython itself need not be interned.
            return printable(name) if is_special or self._builtins.is_interned(address) else None
        return None

    def _members(self, kind: HeapType) -> list[tuple[str, int]]:
        """Return the names and offsets of the references in an object's fixed part, those of its base classes too."""
        found = []
        base: HeapType | None = kind
        for _ in range(_MAX_BASES):
            if base is None:
                break
            found += self._own_members(base)
            base = self._types.type_at(base.base_at)
        return found

    def _own_members(self, kind: HeapType) -> list[tuple[str, int]]:
        found = list(_HIDDEN_MEMBERS.get(kind.name, ()))
        if kind.name == "function":
            defaults_at = _DEFAULTS_AT[self._builtins.minor >= 10]
            found += [("__defaults__", defaults_at), ("__kwdefaults__", defaults_at + 8)]
        with suppress(SourceError):
            for i in range(_MAX_MEMBERS if kind.members_at else 0):
                name_at, sort, offset = self._memory.words(kind.members_at + i * _MEMBER_BYTES, 3)
                if not name_at:
                    break
                if sort & 0xFFFFFFFF in _OBJECT_MEMBERS and offset < kind.basic_bytes:
                    found.append((self._memory.text(name_at, _MAX_NAME_BYTES), offset))
        return found

    def _module(self, address: int) -> Module:
        obj = self.object_at(address)
        namespace = self.dict_of(obj) if obj is not None else 0
        first = self.items(namespace, _MODULE_ITEMS) if namespace else ()
        known = {name: value for name, value in first if name in _MODULE_NAMES}
        name, file = (self._builtins.text_or_none(known[key]) if key in known else None for key in _MODULE_NAMES)
        return Module(name or "", file or "", namespace)

    def text(self, address: int) -> str | None:
        """Return the text of the str at an address; None when there is none, or it is no name."""
        return self._builtins.text_or_none(address)

    def method_name(self, address: int) -> str:
        """Return the name of a bound method, with its class: `Simulator.close`; "?" when it is that of no function."""
        with suppress(UnreadableError):
            function = self._memory.word(address + _FUNCTION_AT)
            if self.type_name(self._memory.word(function + TYPE_AT)) == "function":
                at = _QUALIFIED_NAME_AT[self._builtins.minor >= 10]
                return self._builtins.text_or_none(self._memory.word(function + at)) or "?"
        return "?"

    def _methods(self, kind: HeapType) -> dict[str, tuple[str, ...]]:
        found = dict[str, tuple[str, ...]]()
        base: HeapType | None = kind
        while base is not None and "." in base.name:
            with suppress(UnreadableError):
                for name, value in self.items(self._memory.word(base.address + CLASS_DICT_AT)):
                    if self.type_name(self._memory.word(value + TYPE_AT)) != "function":
                        continue
                    code = self._memory.word(value + _CODE_AT[self._builtins.minor >= 10])
                    names_at, file_at = _NAMES_AND_FILE_AT[self._builtins.minor >= 11]
                    file = self._builtins.text(self._memory.word(code + file_at))
                    if is_installed(file, f"{self._memory.folder}/root"):
                        break
                    names = self._memory.word(code + names_at)
                    count = min(self._memory.word(names + 16), _MAX_CODE_NAMES)
                    used = self._memory.words(names + self._builtins.tuple_bytes, count) if count else ()
                    found.setdefault(name, tuple(filter(None, map(self._key, used))))
            base = self._types.type_at(base.base_at)
        return found

    def keys(self, container: RemoteObject) -> list[int]:
        """Return the addresses of some keys of a dict, at equal distances, the last among them."""
        pairs = self._builtins.items(container.address, _MAX_ITEMS)
        return [key for key, _ in pairs[:: -max(1, len(pairs) // _SAMPLED_KEYS)]]

    def type_name(self, address: int) -> str:
        """Return the name of the type at an address; "?" when there is none."""
        found = self._types.type_at(address)
        return found.name if found is not None else "?"

    def object_at(self, address: int) -> RemoteObject | None:
        return read_remote_object(self._memory, self._types, address)


def _capacity_of(
    attributes: Attributes,
    layouts: Layouts,
    container: RemoteObject,
    owner: RemoteObject | None,
    *,
    path: str,
    size: int,
) -> int | None:
    """Return the capacity in items of a container of `size` bytes: a deque's maxlen, else what its owner states.

    An owner may state it in bytes, and by the name of the container: `max_vocab_size` beside `vocab`. What is less than
    the container takes now is none.
    """
    maxlen = container.word(_DEQUE_MAXLEN_AT) if container.heap_type.shape == "deque" else MAX_COUNT
    if owner is not None and owner.heap_type.name == LRU_CACHE:
        maxlen = owner.word(_LRU_MAXSIZE_AT)
    if maxlen < MAX_COUNT or owner is None:
        return maxlen if maxlen < MAX_COUNT else None
    values = {name.lstrip("_"): value for name, value in attributes.named_values(owner)}
    named = (attributes.object_at(values[name]) for name in _CAPACITIES if name in values)
    numbers = (layouts.whole_number(value) for value in named if value is not None)
    if (stated := next((number for number in numbers if number), None)) is not None:
        return stated
    items = layouts.length(container)
    if not items:
        return None
    own_words = {word.lower() for word in _WORD.findall(path.rpartition(".")[2])}
    own_words |= {word.removesuffix("s") for word in own_words}
    fills = [  # times that what is there would fit; a number without a unit is one of what it would hold less of
        fill
        for name, value in values.items()
        if (unit := _unit_of_bound(name, own_words))
        and (obj := attributes.object_at(value))
        and (n := layouts.whole_number(obj))
        for fill in ([n * unit / size] if unit > 1 or "byte" in name.lower() else [n / items, n / size])
        if fill >= _NEARLY_FULL
    ]
    if fills:
        return int(items * max(1.0, min(fills)))
    in_code = _bound_in_code(attributes, layouts, owner, values, name=path.rpartition(".")[2])
    if in_code is not None and in_code >= items:
        return in_code
    return _length_of_data_set(attributes, layouts, container, owner, values)


def _bound_in_code(
    attributes: Attributes, layouts: Layouts, owner: RemoteObject, values: dict[str, int], *, name: str
) -> int | None:
    """Return the number that the owner's code compares a container's length with, to remove items then.

    As in `if len(self.cache) > self.cache_tiles: self.cache.popitem()`: of the names that are new after `len`, the
    first is the bound's, and the second removes.
    """
    for used in attributes.methods(owner.heap_type).values():
        if name in used and "len" in used:
            bound, removal, *_ = (*(one for one in used[used.index("len") + 1 :] if one != name), "", "")
            found = attributes.object_at(values.get(bound.lstrip("_"), 0))
            if removal in _REMOVALS and found is not None:
                return layouts.whole_number(found)
    return None


def _length_of_data_set(
    attributes: Attributes, layouts: Layouts, container: RemoteObject, owner: RemoteObject, values: dict[str, int]
) -> int | None:
    """Return how many items a data set has that keeps them in a dict, by their numbers or by what it lists them by."""
    methods = attributes.methods(owner.heap_type)
    if container.heap_type.shape != "dict" or "__getitem__" not in methods:
        return None
    for name in methods.get("__len__", ()):
        stated = attributes.object_at(values.get(name.lstrip("_"), 0))
        length = None if stated is None else layouts.whole_number(stated) or layouts.length(stated)
        if stated is None or length is None or length <= container.count():  # What both grow with is no bound.
            continue
        keys = attributes.keys(container)
        objects = [attributes.object_at(key) for key in keys]
        numbers = [layouts.whole_number(key) if key is not None else None for key in objects]
        is_list = stated.heap_type.shape in ("list", "tuple") and length <= _MAX_LISTED
        if all(number is not None and number < length for number in numbers) or (
            is_list and set(keys) <= set(layouts.elements(stated))
        ):
            return length
    return None


def items_and_capacity(
    attributes: Attributes,
    layouts: Layouts,
    container: RemoteObject,
    owner: RemoteObject | None,
    *,
    path: str,
    size: int,
) -> tuple[int | None, int | None]:
    """Return the number of items of a container of `size` bytes, and its capacity.

    Of a dict of a few containers that all have a capacity, as `defaultdict(lambda: deque(maxlen=20))`, these are those
    of all of them together.
    """
    if container.heap_type.shape == "dict" and 0 < container.count() <= FEW_NAMES:
        parts = [part for one in layouts.elements(container) if (part := attributes.object_at(one)) is not None]
        lengths = [layouts.length(part) or 0 for part in parts]
        total = sum(lengths)
        capacities = [
            length and _capacity_of(attributes, layouts, part, owner, path=path, size=size * length // total)
            for part, length in zip(parts, lengths, strict=True)
        ]
        if capacities and all(capacities):
            return total, sum(filter(None, capacities))
    capacity = _capacity_of(attributes, layouts, container, owner, path=path, size=size)
    return layouts.length(container), capacity


def _unit_of_bound(name: str, own_words: Set[str]) -> int:
    """Return the bytes of the unit in which an attribute of this name states a bound; 1: none, 0: it states none."""
    words = {word.lower() for word in _WORD.findall(name)}
    is_bound = words & _BOUNDS or (words & _MOST and words <= _MOST | _OF_CONTAINERS | own_words | _UNITS.keys())
    return max((_UNITS.get(word, 1) for word in words), default=0) if is_bound else 0


def is_program(kind: HeapType) -> bool:
    """Whether such objects belong to the program itself, not to its data."""
    return kind.shape in _PROGRAM_SHAPES or kind.name in _PROGRAM
