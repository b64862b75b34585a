"""Searches the memory of a running CPython for what counts its progress: loops, counters, bars, libraries' states.

It reads the variables of all frames and the attributes of the objects in them, and follows neither data nor modules.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from struct import unpack_from

from memwatch.core.text_and_units import printable
from memwatch.diagnosis.heap.attributes import Attributes, is_program
from memwatch.diagnosis.heap.cpython_runtime import find_interpreter
from memwatch.diagnosis.heap.object_layouts import Layouts
from memwatch.diagnosis.heap.remote_memory import Hop, RemoteMemory
from memwatch.diagnosis.heap.remote_objects import BuiltinValues, HeapType, RemoteObject, TypeTable
from memwatch.diagnosis.heap.stack_frames import Frames, FrameValues
from memwatch.errors import SourceError
from memwatch.sources.log.unit_mentions import unit_from_name
from memwatch.sources.memory.process_descendants import find_largest_processes
from memwatch.sources.progress.counter_places import CounterPlace, FoundPlaces, SearchRequest, number
from memwatch.system.python_workers import serve_task

MOST_PLACES = 48  # that are returned, the outermost: a bound on the time to read them (chosen)
SEARCH_SECONDS = 0.15  # of CPU; a program of torch and transformers takes 0.05 (measured)
FIND_SECONDS = 3.0  # for the interpreter
_MOST_OTHERS = 3  # processes of a job that are searched: a launcher's first child may be its helper (chosen)
_MOST_OBJECTS = 3000  # that are read: a bound on time
_STEPS = 2  # attributes from a variable (chosen): Trainer.state.global_step
_LEVELS = 8  # of loops in one frame, and of what else it counts
_BARS_LEVEL = 1 << 16  # bars come after all frames
_MOST_BARS = 16
_NUMBER_BYTES = 32
_ITERATOR_BYTES = 48
_TYPE_AT, _CELL_AT = 8, 16
_UNNAMED = "iteration"  # of a loop whose variable names no unit
_NEAR_SHARE = 0.02  # of a loop's length: so far it may go on while it is read (chosen)
_STATE_BYTES = 9216  # of an interpreter's state, which refers to sys.modules
_SOURCE_SUFFIX = re.compile(r"\.py[cw]?$")

# Words that a name may have beside that of a unit: of the present number, of how many there will be, of settings.
_OF_COUNTERS = {
    *(
        "current",
        "cur",
        "curr",
        "now",
        "this",
        "global",
        "local",
        "main",
        "outer",
        "env",
        "train",
        "training",
        "optimizer",
    ),
    *("n", "num", "number", "no", "nr", "i", "id", "idx", "index", "count", "counter", "total"),
    *("trained", "done", "completed", "finished", "seen", "grad"),
}
_OF_TOTALS = {
    *("max", "maximum", "total", "num", "n", "nb", "number", "of", "final", "end", "target", "to", "train", "training")
}
_NUMBERS = {"num", "n", "nb", "number"}
_OF_SETTINGS = {
    *("args", "arg", "arguments", "config", "configuration", "cfg", "conf", "opt", "opts", "options", "params"),
    *("parameters", "hparams", "hyperparameters", "settings", "flags"),
}
_MAY_COUNT = re.compile(r"n_?[a-z]+(?<!s)$")  # of names of totals: n_gen and ngen are used for either
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@dataclass(frozen=True, slots=True)
class _Known:
    """A library's own counter: attributes of an object, by the end of its class's name or by having both."""

    class_name: str  # empty: any class
    unit: str
    value: str
    total: str


_KNOWN = (
    _Known("transformers.trainer_callback.TrainerState", "step", "global_step", "max_steps"),
    _Known("FitLoop", "epoch", "epoch_progress.current.completed", "max_epochs"),  # Lightning
    _Known("", "timestep", "num_timesteps", "_total_timesteps"),  # stable-baselines3
)


def unit_of_counter(name: str) -> str | None:
    """Return the unit that a variable of this name counts; None where it is none, or another number of that unit."""
    if unit := unit_from_name(name.strip("_")):
        return unit
    words = _words(name)
    units = [unit for word in words if (unit := unit_from_name(word))]
    return units[0] if len(units) == 1 and sum(word in _OF_COUNTERS for word in words) == len(words) - 1 else None


def unit_of_total(name: str) -> str | None:
    """Return the unit of which a variable of this name says how many there will be."""
    words = _words(name)
    places = [i for i, word in enumerate(words) if unit_from_name(word)]
    if len(places) != 1:
        return None
    at, word = places[0], words[places[0]]
    before, after = set(words[:at]), set(words[at + 1 :])
    if not _OF_TOTALS.issuperset(before | after) or not _NUMBERS.isdisjoint(after):  # epoch_num is that of an epoch
        return None
    is_plural = word.endswith("s") or word.startswith("n")
    return unit_from_name(word) if len(words) > 1 or is_plural else None


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def find_in_program(pid: int, member_pids: Collection[int] = ()) -> FoundPlaces:
    """Search process `pid` and, where that has no count with an end, the largest others: it may launch a trainer.

    The others are its descendants and `member_pids`. SourceError, with a hint, when none of them can be read.
    """
    best, error = FoundPlaces(), None
    others = [one.pid for one in find_largest_processes(pid, member_pids) if one.pid != pid]
    for one in (pid, *others[:_MOST_OTHERS]):
        try:
            found = find_places(one)
        except SourceError as raised:
            error = error or raised
            continue
        best = best if best.places else found
        if any(place.known or place.total is not None for place in found.places):
            return found
    if error is not None and not best.pid:
        raise error
    return best


def find_places(pid: int) -> FoundPlaces:
    """Search process `pid`; SourceError, with a hint, when its memory cannot be read or it runs no CPython."""
    with closing(RemoteMemory(pid)) as memory:
        search = _Search(memory)
        places = sorted(search.places(), key=lambda place: (not place.known, place.total is None, place.level))
        return replace(search.found, places=tuple(places[:MOST_PLACES]))


@dataclass(frozen=True, slots=True)
class _Number:
    """A number with a name in one namespace: the variables of a frame, or the attributes of an object."""

    name: str
    hops: tuple[Hop, ...]
    value: float
    is_int: bool


class _Search:
    def __init__(self, memory: RemoteMemory) -> None:
        self._memory, self._deadline = memory, time.process_time() + SEARCH_SECONDS
        interpreter = find_interpreter(memory, FIND_SECONDS)
        self._states, self._minor = interpreter.states, interpreter.minor[1]
        self._builtins = BuiltinValues(memory, interpreter.minor)
        self._types, self._layouts = TypeTable(memory, self._builtins), Layouts(self._builtins)
        self._attributes = Attributes(memory, self._builtins, self._types, self._layouts)
        self._frames = Frames(memory, interpreter)
        self.found = FoundPlaces(memory.pid, self._minor)
        self._objects: deque[tuple[int, int, int]] = deque()  # address, level, steps
        self._seen: set[int] = set()

    def places(self) -> Iterator[CounterPlace]:
        modules = self._modules()
        self._find_number_types(modules)
        level = 0
        for thread in self._frames.threads():
            for frame in self._frames.frame_values(thread):
                level += _LEVELS
                with suppress(SourceError):
                    yield from self._of_frame(frame, level)
        while self._objects and len(self._seen) < _MOST_OBJECTS and time.process_time() < self._deadline:
            with suppress(SourceError, ValueError):
                yield from self._of_object(*self._objects.popleft())
        with suppress(SourceError):
            yield from self._bars(modules)

    def _find_number_types(self, modules: dict[str, int]) -> None:
        """Find int and float: the module `builtins` of the interpreter has both."""
        builtins = modules.get("builtins", 0)
        names = dict(self._attributes.items(self._memory.word(builtins + 16))) if builtins else {}
        self.found = replace(self.found, int_type=names.get("int", 0), float_type=names.get("float", 0))

    def _modules(self) -> dict[str, int]:
        """Return sys.modules."""
        for state in self._states:
            for low, high in self._memory.writable.within(state, state + _STATE_BYTES)[:1]:
                raw = self._memory.read(low, (high - low) & ~7)
                for at in range(0, len(raw), 8):
                    address = unpack_from("<Q", raw, at)[0]
                    if address % 8 or address not in self._memory.writable:
                        continue
                    with suppress(SourceError):
                        kind = self._types.type_at(self._memory.word(address + _TYPE_AT))
                        if kind is None or kind.name != "dict":
                            continue
                        found = dict(self._attributes.items(address))
                        if "sys" in found and "builtins" in found and "__main__" in found:
                            return found
        return {}

    # --- frames ---

    def _of_frame(self, frame: FrameValues, level: int) -> Iterator[CounterPlace]:
        """Yield the loops of a frame, and its variables with the name of a unit; note its objects."""
        is_module = frame.function.function == "<module>"
        owner = _SOURCE_SUFFIX.sub("", frame.function.file.rpartition("/")[2]) if is_module else frame.function.function
        start, named = frame.address, list(self._variables(frame))
        if is_module:
            start, named = frame.globals, list(self._attributes.item_ways(frame.globals))
        numbers, objects = self._split(named)
        known = [one.value for one in self._settings(numbers, objects) if one.is_int]
        taken = set()
        for position, (latest, end, length, first) in enumerate(self._loops(frame)):
            variable = _loop_variable([one for one in numbers if one.name not in taken], latest, length)
            if variable is None:
                continue
            taken.add(variable.name)
            unit = unit_of_counter(variable.name)
            counts_from = first if first in (0, 1) else _counts_from(end, known)
            name = f"{variable.name} of {owner}" if is_module else f"{variable.name} of {owner}()"
            yield CounterPlace(
                name=name,
                unit=unit or _UNNAMED,
                start=start,
                hops=variable.hops,
                value=variable.value,
                total=end - 1 if counts_from == 1 else end,
                level=level + min(position, _LEVELS - 2),
                first=counts_from,
                is_loop=True,
                known=unit is not None,
            )
        rest = [one for one in numbers if one.name not in taken]
        for place in self._counters(start, rest, objects, level + _LEVELS - 1):
            is_with_total = not is_module and place.total is not None and place.total in known
            name = f"{place.name} of {owner}" if is_module else f"{place.name} of {owner}()"
            yield replace(place, name=name, known=is_with_total)
        self._objects.extend((address, level + _LEVELS - 1, 0) for _, address in objects)

    def _variables(self, frame: FrameValues) -> Iterator[tuple[str, tuple[Hop, ...], int]]:
        for name, at, value in frame.variables:
            hop = Hop(at, frame.code_at, frame.code_word)
            kind = self._kind(value)
            if kind is not None and kind.name == "cell":
                yield name, (hop, Hop(_CELL_AT, _TYPE_AT, kind.address)), self._memory.word(value + _CELL_AT)
            else:
                yield name, (hop,), value

    def _loops(self, frame: FrameValues) -> Iterator[tuple[int, int, int, int | None]]:
        """Yield of each loop over a range, the outermost first: its latest number, end, length, and first number.

        The first is None where it is not known, as from CPython 3.12 on.
        """
        for address in frame.stack:
            kind = self._kind(address) if address in self._memory.writable else None
            if kind is None or kind.name != "range_iterator":
                continue
            raw = self._memory.read(address, _ITERATOR_BYTES)
            if self._minor >= 12:
                following, step, left = unpack_from("<qqq", raw, 16)
                first, end = None, following + step * left
            else:
                done, first, step, length = unpack_from("<qqqq", raw, 16)
                following, end = first + step * done, first + step * length
            if step > 0 and 0 <= following - step <= end:
                yield following - step, end, (end - following) // step + 1, first

    def _settings(self, numbers: list[_Number], objects: list[tuple[str, int]]) -> Iterator[_Number]:
        """Yield the numbers of a namespace, and those of the settings in it: `args.epochs`, `self.config.epochs`."""
        yield from numbers
        for name, address in objects:
            with suppress(SourceError, ValueError):
                obj = self._instance(address)
                if obj is not None and (name == "self" or _is_settings(name, obj.heap_type.name)):
                    yield from self._split(list(self._attributes.ways(obj)))[0]

    # --- objects ---

    def _of_object(self, address: int, level: int, steps: int) -> Iterator[CounterPlace]:
        if address in self._seen:
            return
        self._seen.add(address)
        obj = self._instance(address)
        if obj is None:
            return
        named = list(self._attributes.ways(obj))
        short = obj.heap_type.name.rpartition(".")[2]
        numbers, objects = self._split(named)
        names = {name for name, _, _ in named}
        for known in _KNOWN:
            has_both = known.value.partition(".")[0] in names and known.total in names
            if not has_both or not obj.heap_type.name.endswith(known.class_name):
                continue
            value, total = self._at(obj, known.value), self._at(obj, known.total)
            if value is not None and total is not None:
                end = int(total.value) if 0 < total.value < 1 << 53 else None
                name = f"{short}.{known.value}"
                yield CounterPlace(
                    name, known.unit, address, value.hops, value.value, end, "end", level=level, known=True
                )
                numbers = [one for one in numbers if one.name not in (known.value, known.total)]
        for place in self._counters(address, numbers, objects, level):
            yield replace(place, name=f"{short}.{place.name}")
        if steps < _STEPS:
            self._objects.extend((value, level, steps + 1) for _, value in objects)

    def _at(self, obj: RemoteObject, path: str) -> _Number | None:
        """Return the number at a path of attributes."""
        hops: tuple[Hop, ...] = ()
        current: RemoteObject | None = obj
        for name in path.split("."):
            if current is None:
                return None
            found = next(((more, value) for key, more, value in self._attributes.ways(current) if key == name), None)
            if found is None:
                return None
            hops, address = hops + found[0], found[1]
            current = self._instance(address)
        value = self._number(address)
        return None if value is None else _Number(path, hops, *value)

    def _counters(
        self, start: int, numbers: list[_Number], objects: list[tuple[str, int]], level: int
    ) -> Iterator[CounterPlace]:
        """Yield the numbers that have the name of a unit, with the total that the same namespace has for it."""
        units = {one.name: unit_of_counter(one.name) if one.is_int else None for one in numbers}
        if not any(units.values()):
            return
        totals = [(unit, one.value) for one in numbers if one.is_int and (unit := unit_of_total(one.name))]
        beside: list[tuple[str, float]] | None = None
        for one in numbers:
            unit = units[one.name]
            if unit is None or (unit_of_total(one.name) and not _MAY_COUNT.match(one.name.strip("_"))):
                continue
            if beside is None:
                settings = self._settings([], objects)
                beside = [(of, two.value) for two in settings if two.is_int and (of := unit_of_total(two.name))]
            total = _only([value for of, value in totals if of == unit and value != one.value], one.value)
            total = total or _only([value for of, value in beside if of == unit], one.value)
            yield CounterPlace(one.name, unit, start, one.hops, one.value, total, level=level)

    def _split(self, named: list[tuple[str, tuple[Hop, ...], int]]) -> tuple[list[_Number], list[tuple[str, int]]]:
        """Return the numbers, and the names and addresses of all else."""
        numbers, objects = [], []
        for name, hops, address in named:
            value = self._number(address)
            if value is not None:
                numbers.append(_Number(name, hops, *value))
            else:
                objects.append((name, address))
        return numbers, objects

    def _number(self, address: int) -> tuple[float, bool] | None:
        """Return the value of an int or float, and whether it is an int."""
        with suppress(SourceError):
            raw = self._memory.read(address, _NUMBER_BYTES)
            value = number(raw, self.found)
            return None if value is None else (value, unpack_from("<Q", raw, _TYPE_AT)[0] == self.found.int_type)
        return None

    def _kind(self, address: int) -> HeapType | None:
        with suppress(SourceError):
            return self._types.type_at(self._memory.word(address + _TYPE_AT))
        return None

    def _instance(self, address: int) -> RemoteObject | None:
        """Return the object at an address if it is an instance of a class with attributes."""
        obj = self._attributes.object_at(address) if address in self._memory.writable else None
        if obj is None or "." not in obj.heap_type.name or is_program(obj.heap_type):
            return None
        return None if obj.heap_type.shape in ("ndarray", "tensor") else obj

    # --- bars ---

    def _bars(self, modules: dict[str, int]) -> Iterator[CounterPlace]:
        """Yield tqdm's progress bars, which their class keeps in a set of weak references."""
        module = modules.get("tqdm.std", 0)
        if not module:
            return
        names = dict(self._attributes.items(self._memory.word(module + 16)))
        kind = self._attributes.object_at(names.get("tqdm", 0))
        held = dict(self._attributes.items(self._attributes.dict_of(kind))) if kind is not None else {}
        weak_set = self._attributes.object_at(held.get("_instances", 0))
        if weak_set is None:
            return
        data = self._attributes.object_at(dict(self._attributes.named_values(weak_set)).get("data", 0))
        for reference in self._layouts.elements(data)[:_MOST_BARS] if data is not None else ():
            bar = self._instance(self._memory.word(reference + 16))
            if bar is None:
                continue
            done, total = self._at(bar, "n"), self._at(bar, "total")
            if done is None or total is None or done.value >= total.value:
                continue
            texts = {key: self._builtins.text_or_none(value) for key, _, value in self._attributes.ways(bar)}
            description = (texts.get("desc") or "").strip(": ")
            unit = unit_of_counter(description) or unit_of_counter(texts.get("unit") or "")
            name = f"the bar {printable(description, 40)!r}" if description else "a progress bar"
            yield CounterPlace(
                name, unit or "step", bar.address, done.hops, done.value, int(total.value), "end", level=_BARS_LEVEL
            )


def _loop_variable(numbers: list[_Number], latest: int, length: int) -> _Number | None:
    """Return the variable of a loop, which has its latest number, or had it when it was read a moment ago."""
    exact = [one for one in numbers if one.is_int and one.value == latest]
    near = [one for one in numbers if one.is_int and 0 <= latest - one.value <= _NEAR_SHARE * length]
    for found in (exact, near):
        found.sort(key=lambda one: (unit_of_counter(one.name) is None, unit_of_total(one.name) is not None))
        if found:
            return found[0]
    return None


def _counts_from(end: int, known: list[float]) -> int | None:
    """Whether a loop is over range(n) or range(1, n + 1), by which n there is; None where that is not known."""
    return 0 if end in known else 1 if end - 1 in known else None


def _is_settings(name: str, class_name: str) -> bool:
    """Whether a variable, or its class, is named as what holds a program's settings."""
    words = [name.lower().strip("_"), *_words(class_name.rpartition(".")[2])[-1:]]
    return not _OF_SETTINGS.isdisjoint(words)


def _only(values: list[float], least: float) -> int | None:
    """Return the one total that is not below the present number; None where there are several."""
    possible = {value for value in values if value >= max(1.0, least)}
    return int(possible.pop()) if len(possible) == 1 else None


def serve() -> None:
    """In a process of its own: answer a SearchRequest with FoundPlaces."""
    serve_task(SearchRequest, _answer)


def _answer(request: SearchRequest) -> FoundPlaces:
    try:
        return find_in_program(request.pid, request.member_pids)
    except SourceError as error:
        return FoundPlaces(reason=str(error))
    except Exception as error:  # a bug in memwatch: nobody reads the output of this process
        return FoundPlaces(reason=f"internal error: {type(error).__name__}: {error}")
