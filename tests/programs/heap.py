"""Holds objects of each kind that a census tells the size of, and answers each line with what it knows of them itself.

{type: [count, bytes]} of all that the collector tracks and of all that those refer to.
"""

import array
import gc
import json
import sys
from collections import Counter, OrderedDict, defaultdict, deque

try:
    import numpy
except ImportError:
    numpy = None


class Agent:
    def __init__(self, i):
        self.value = i * 1.5
        self.name = f"agent{i}"
        self.memory = [float(i), {"a": (float(i), 2.5)}]


class Late:
    pass


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a, self.b = 1.25, (1.75, "x")


class Both(Slotted):
    def __init__(self):
        super().__init__()
        self.c = {1.5, 2.5}


class Listed(list):
    pass


class Mapped(dict):
    pass


class Tupled(tuple):
    pass


class Counted(int):
    pass


class Queue(deque):
    pass


class Failed(ValueError):
    pass


def late():
    """Instances that got their attributes from elsewhere, and some more than their class knows of."""
    made = [Late() for _ in range(600)]
    for i, one in enumerate(made):
        one.a = [i]
        if i % 2:
            one.__dict__[f"extra{i % 7}"] = b"x" * i
    return made


def noted(kind):
    made = [kind() for _ in range(100)]
    for one in made:
        one.note = [id(one) * 0.5]
    return made


def arrays():
    made = [numpy.zeros((3, i % 7 + 1), numpy.float32) for i in range(500)]
    held = [{"state": one, "view": one[1:]} for one in made]
    gc.collect()  # a dict of arrays alone is not tracked from now on
    odd = [
        numpy.ones(()),
        numpy.ones(1, numpy.int16),
        numpy.zeros((0, 5)),
        numpy.zeros((2, 3), order="F"),
        numpy.array([{"inside": 1.5}, [2.5]], dtype=object),
        numpy.zeros(7, dtype=[("a", "i4"), ("b", "f8", (3,))]),
        numpy.zeros((512, 1024, 8)),
    ]
    return [held, odd]


KEPT = [
    [Agent(i) for i in range(3000)],
    late(),
    [Slotted() for _ in range(500)],
    [Both() for _ in range(500)],
    [noted(kind) for kind in (Listed, Mapped, Tupled, Counted, Queue, Failed, OrderedDict)],
    [defaultdict(list, {i: [i]}) for i in range(50)],
    [Counter(f"hello{i}") for i in range(50)],
    [deque((float(j) for j in range(60 * i)), maxlen=None if i % 2 else 700) for i in range(40)],
    [set(map(float, range(i))) for i in range(200)],
    [frozenset(map(float, range(i % 40))) for i in range(200)],
    [{str(j): float(j) for j in range(i)} for i in range(200)],
    [{j: float(j) for j in range(i)} for i in range(200)],
    [bytearray(100 * i) for i in range(50)],
    [array.array("d", range(i)) for i in range(50)],
    [tuple(map(float, range(i))) for i in range(200)],
    ["a\u00fc\u20ac\U0001f600"[i % 4] * i for i in range(400)],
    [10 ** (5 * i) * (-1) ** i for i in range(200)],
    arrays() if numpy else None,
]


def name(kind):
    return kind.__qualname__ if kind.__module__ == "builtins" else kind.__module__ + "." + kind.__qualname__


def referents(objects):
    """What these refer to. numpy's arrays do not tell the collector."""
    yield from gc.get_referents(*objects)
    for one in objects if numpy else ():
        if isinstance(one, numpy.ndarray):
            yield from () if one.base is None else (one.base,)
            yield from one.flat if one.dtype == object else ()


def truth():
    waiting = gc.get_objects()
    met = {id(one): one for one in waiting}
    own = {id(met), id(waiting)}  # frames and cells lead here
    while waiting:
        new = [one for one in referents(waiting) if id(one) not in met and id(one) not in own]
        met.update((id(one), one) for one in new)
        waiting = list({id(one): one for one in new}.values())
        own |= {id(new), id(waiting)}
    found = {}
    for one in met.values():
        told = found.setdefault(name(type(one)), [0, 0])
        told[0] += 1
        told[1] += sys.getsizeof(one, 0)
    return found


print("ready", flush=True)
for _ in sys.stdin:
    print(json.dumps(truth()), flush=True)
