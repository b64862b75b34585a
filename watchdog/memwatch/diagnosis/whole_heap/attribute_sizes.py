"""The total size of what is at the end of a path of attributes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np

from memwatch.core.examination import AttributeSize
from memwatch.diagnosis.heap.attribute_path_syntax import STEP, AttributePath, matching_names
from memwatch.diagnosis.heap.attributes import Attributes, items_and_capacity
from memwatch.diagnosis.heap.object_layouts import Layouts
from memwatch.diagnosis.whole_heap.program_namespaces import Program
from memwatch.diagnosis.whole_heap.reachable_objects import HeapObjects, HeapWalk


class AttributePathSizer:
    """Follows paths in one heap; `new_walk` prepares a walk through it."""

    def __init__(
        self,
        attributes: Attributes,
        layouts: Layouts,
        heap: HeapObjects,
        program: Program,
        new_walk: Callable[[], HeapWalk],
    ) -> None:
        self._attributes, self._layouts, self._new_walk = attributes, layouts, new_walk
        self._heap, self._program = heap, program

    def size(self, track: AttributePath, may_go_on: Callable[[], bool]) -> AttributeSize:
        """Return the size of all objects at the end of a path.

        An attribute of the class itself counts where its instances have none of that name.
        """
        of_instances: dict[int, list[int]] = defaultdict(list)  # by the number of names that lead to them
        of_classes: dict[int, list[int]] = defaultdict(list)
        class_names: dict[int, set[str]] = defaultdict(set)  # full names of the classes
        for number, kind in enumerate(self._heap.types):
            if "." in kind.name and (length := matching_names(track, kind.name)):  # a class, no builtin type
                of_instances[length] += self._heap.addresses[self._heap.kinds == number].tolist()
                class_names[length].add(kind.name)
        for length in range(1, len(track.names) + 1):
            of_instances[length] += self._program.modules(".".join(track.names[:length]))
        for address in {one for name in track.names for one in self._program.classes(name)}:
            name = self._attributes.type_name(address)
            if length := matching_names(track, name):
                of_classes[length].append(address)
                class_names[length].add(name)
        longest = max((length for found in (of_instances, of_classes) for length in found if found[length]), default=0)
        if not longest:
            reason = f"no object of a class {track.names[0]}, and no such module"
            return AttributeSize(track.path, 0, None, reason=reason)
        steps = (*(f".{name}" for name in track.names[longest:]), *track.steps)
        roots = of_instances[longest]
        found, owners, missing = self._follow(roots, steps)
        if not found and of_classes[longest]:
            roots, of_instance = of_classes[longest], missing
            found, owners, missing = self._follow(roots, steps)
            missing = of_instance or missing
        if not found:
            return AttributeSize(track.path, 0, None, reason=f"nothing at {missing}")
        walk = self._new_walk()
        walk.exclude(roots)
        size = int(walk.walk(np.fromiter(found, np.uint64), may_go_on, self._heap).sizes.sum())
        items, capacity = self._items(track.path, owners, found, size)
        rest = track.path[len(".".join(track.names[:longest])) :]
        full = "".join(class_names[longest]) + rest if len(class_names[longest]) == 1 else ""
        return AttributeSize(track.path, len(found), size, items, capacity, full=full)

    def _items(
        self, path: str, owners: Collection[int], found: Iterable[int], size: int
    ) -> tuple[int | None, int | None]:
        """Return the number of items of these containers, and the capacity of a single one of a single owner."""
        objects = [obj for address in found if (obj := self._attributes.object_at(address)) is not None]
        lengths = [length for obj in objects if (length := self._layouts.length(obj)) is not None]
        if not lengths:
            return None, None
        if len(objects) > 1 or len(owners) > 1:
            return sum(lengths), None
        owner = self._attributes.object_at(next(iter(owners)))
        return items_and_capacity(self._attributes, self._layouts, objects[0], owner, path=path, size=size)

    def _follow(self, roots: Iterable[int], steps: Iterable[str]) -> tuple[set[int], set[int], str]:
        """Return the objects at the end of these steps and those a step before; or none, and the step to nowhere."""
        found = owners = set(roots)
        for step in steps:
            owners, found = found, {value for address in found for value in self._take_step(address, step)}
            if not found:
                return found, owners, step
        return found, owners, ""

    def _take_step(self, address: int, step: str) -> Iterator[int]:
        obj = self._attributes.object_at(address)
        if obj is None:
            return
        _, every, index, single, double = STEP.fullmatch(step).groups()  # type: ignore[union-attr]
        if step.startswith("."):
            yield from (value for name, value in self._attributes.named_values(obj) if name == step[1:])
        elif every is not None or index is not None:
            items = self._layouts.elements(obj)
            yield from items if every else items[int(index) : int(index) + 1]
        else:
            yield from (value for name, value in self._attributes.items(address) if name == (single or double))
