"""What a program's own names lead to, in real programs: containers, arrays that fill, and nothing of bookkeeping."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest

from memwatch.app.examination_worker import _resident_reader
from memwatch.core.examination import Census
from memwatch.diagnosis.heap.attribute_path_syntax import parse_attribute_path
from memwatch.diagnosis.heap.named_objects import look_at_names
from memwatch.diagnosis.whole_heap.object_census import CensusOptions, take_census
from memwatch.errors import SourceError
from support.processes import running
from support.pythons import NAMES, needed_python

READY = "\nprint('ready', flush=True)\nsys.stdin.read()\n"
HELD = """
import collections, sys
from beside import Store, note
class Loss:
    def __init__(self): self.inputs = bytes(10_000)
class Callback:
    def __init__(self):
        self.seen, self.locals = [bytes(5000) for _ in range(400)], {f"k{i}": bytes(900) for i in range(50)}
class Trainer:
    shared = [bytes(1000) for _ in range(300)]
    def __init__(self):
        self.kept = [Loss() for _ in range(2000)]
        self.queue = collections.deque((bytes(2000) for _ in range(900)), maxlen=1000)
        self.state = {"memory": {n: bytes(3000) for n in range(700)}, "name": "x"}
        self.callback, self.capacity = Callback(), 5000
trainer, store, table = Trainer(), Store(), {n: str(n) for n in range(1000)}
def train():
    records = [Loss() for _ in range(500)]
    print('ready', flush=True)
    sys.stdin.read()
train()
"""
BESIDE = """
history = [bytes(4000) for _ in range(250)]
class Store: pass
def note(): pass
"""


def looked(pid: int) -> Census:
    with ExitStack() as stack:
        return look_at_names(pid, _resident_reader(pid, stack), names_seconds=1.0, content_seconds=1.5)[0]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Census:
    folder: Path = tmp_path_factory.mktemp("program")
    (folder / "beside.py").write_text(BESIDE)
    (folder / "train.py").write_text(HELD)
    with running([sys.executable, str(folder / "train.py")]) as program:
        return looked(program.pid)


@pytest.mark.parametrize(
    ("path", "items", "size"),
    [
        ("__main__.Trainer.kept", 2000, 2000 * 10_000),
        ("__main__.Trainer.queue", 900, 900 * 2000),
        ("__main__.Trainer.state['memory']", 700, 700 * 3000),
        ("__main__.Trainer.shared", 300, 300 * 1000),
        ("__main__.Callback.seen", 400, 400 * 5000),
        ("__main__.table", 1000, 37_000 + 1000 * (28 + 52)),
        ("beside.history", 250, 250 * 4000),
        ("local variable of train: records", 500, 500 * 10_000),
    ],
)
def test_a_container_is_found_by_its_name_with_its_size(held: Census, path: str, items: int, size: int) -> None:
    (found,) = [one for one in held.containers if one.path == path]
    assert found.items == items and found.bytes == pytest.approx(size, rel=0.25)


RECORDS = """
import collections, sys
Step = collections.namedtuple("Step", "a b c d e")
class Item:
    def __init__(self, *parts): self.a, self.b, self.c, self.d, self.e = parts
def parts(large): return [bytes(5000 if i == large else 8) for i in range(5)]
kept = {}
for large in range(5):
    kept[f"tuple{large}"] = [tuple(parts(large)) for _ in range(600)]
    kept[f"list{large}"] = [parts(large) for _ in range(600)]
    kept[f"dict{large}"] = collections.deque(dict(zip("abcde", parts(large))) for _ in range(600))
    kept[f"named{large}"] = [Step(*parts(large)) for _ in range(600)]
    kept[f"object{large}"] = [Item(*parts(large)) for _ in range(600)]
globals().update(kept)
del kept
print('ready', flush=True)
sys.stdin.read()
"""


def test_each_field_of_a_record_counts() -> None:
    with running([sys.executable, "-c", RECORDS]) as program:
        sizes = {one.path: one.bytes for one in looked(program.pid).containers}
    kinds = ("tuple", "list", "dict", "named", "object")
    assert {f"__main__.{kind}{large}" for kind in kinds for large in range(5)} <= sizes.keys()
    own = 600 * (5000 + 5 * 41)  # beside the records' own
    assert all(own <= size <= 1.15 * own for path, size in sizes.items() if path[-1].isdecimal()), sizes


GENERATIONS = """
import sys
import numpy as np
class Individual:
    def __init__(self): self.genome, self.scores = np.random.rand(200), {"fitness": 1.5}
class Algorithm:
    def __init__(self):
        members = np.empty(400, dtype=object)
        members[:] = [Individual() for _ in range(400)]
        self.population, self.best = members.reshape(20, 20), members[3]
history = [Algorithm() for _ in range(40)]
print('ready', flush=True)
sys.stdin.read()
"""


def test_arrays_of_objects_are_sampled_as_lists_are() -> None:
    with running([sys.executable, "-c", GENERATIONS]) as program:
        (size,) = (one.bytes for one in looked(program.pid).containers if one.path == "__main__.history")
    assert size == pytest.approx(40 * 400 * (112 + 1600 + 2 * 184 + 100), rel=0.2)


CALLBACKS = """
import sys
class Printer: pass
class Progress:
    def __init__(self): self.lines = []
class Batches:
    def __init__(self): self.seen = [bytes(9000) for _ in range(300)]
class Steps:
    def __init__(self): self.times = [float(i) for i in range(5000)]
class Loop:
    def __init__(self): self.callbacks, self.hooks = [Printer(), Progress(), Steps()], [(Batches(), {"every": 3})]
class Loss:
    def __init__(self): self.inputs = [bytes(3000)]
def recorder():
    losses, every = [bytes(500) for _ in range(400)], 3
    def record(): losses.append(every)
    return record
class Trainer:
    def __init__(self): self.loop, self.kept, self.hooks = Loop(), [Loss(), Loss()], [recorder()]
trainer = Trainer()
print('ready', flush=True)
sys.stdin.read()
"""


def test_what_callbacks_in_a_list_keep_has_their_name() -> None:
    with running([sys.executable, "-c", CALLBACKS]) as program:
        sizes = {one.path: one.bytes or 0 for one in looked(program.pid).containers}
    assert sizes["__main__.Batches.seen"] == pytest.approx(300 * 9050, rel=0.05)
    assert sizes["__main__.Steps.times"] == pytest.approx(5000 * 32, rel=0.05)
    assert sizes["local variable of recorder.<locals>.record: losses"] == pytest.approx(400 * 545, rel=0.05)
    assert "__main__.Loss.inputs" not in sizes and sizes["__main__.Trainer.kept"] > 6000, "of one class: data"


REGISTERED = """
import collections, io, sys, warnings
sys.stderr = io.StringIO()
class Plan:
    def __init__(self): self.masks = bytes(20_000)
    def apply(self): return self.masks
class Net:
    def __init__(self): self.hooks, self.listeners = collections.OrderedDict(), []
    def register(self, plan):
        def hook(): return plan
        self.hooks[len(self.hooks)] = hook
        self.listeners.append(Plan().apply)
net, log, kept = Net(), io.StringIO(), io.BytesIO()
for i in range(100):
    net.register(Plan())
    log.write("a line of a log\\n" * 500)
    kept.write(bytes(5000))
    warnings.warn(f"{i} " + 3000 * "x")
models = [Plan()] * 100
models[0].masks = bytes(9_000_000)
net.callbacks = {1: models[0].apply, 2: models[0].apply}
print('ready', flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("python", NAMES)
def test_what_hooks_listeners_files_in_memory_and_warnings_keep_has_their_name(python: str) -> None:
    with running([*needed_python(python).command, "-W", "default", "-c", REGISTERED]) as program:
        sizes = {one.path: one.bytes or 0 for one in looked(program.pid).containers}
    assert sizes["__main__.Net.hooks"] == pytest.approx(100 * 20_500, rel=0.05)
    assert sizes["__main__.Net.listeners"] == pytest.approx(100 * 20_500, rel=0.05)
    assert sizes["__main__.Net.callbacks"] <= 0.03 * sizes["__main__.models"], "most of it is held by others"
    assert 100 * 8000 <= sizes["__main__.log"] <= 1.5 * 100 * 8000
    assert 100 * 5000 <= sizes["__main__.kept"] <= 1.5 * 100 * 5000
    assert sizes["__main__.__warningregistry__"] == pytest.approx(100 * 3400, rel=0.2)


SHARED = """
import collections, sys
def steps(number, episode):
    state = {"image": bytes(4000), "step": 0}
    for i in range(number):
        after = {"image": bytes(4000), "step": i}
        yield (state, i, 0.5, after, False)
        state = {"image": bytes(4000), "step": 0} if i % episode == episode - 1 else after
class Model:
    def __init__(self): self.weights, self.parts = bytes(900_000), [bytes(1000) for _ in range(100)]
chained = collections.deque(steps(600, 10), maxlen=1000)
listed = list(steps(600, 50))
model, same = Model(), {"table": bytes(700_000)}
in_turn = [one for i in range(300) for one in (bytes(9000), i)]
with_model = [{"model": model, "own": bytes(3000)} for _ in range(600)]
repeated = [same] * 600
print('ready', flush=True)
sys.stdin.read()
"""


def test_what_items_share_counts_once() -> None:
    with running([sys.executable, "-c", SHARED]) as program:
        sizes = {one.path: one.bytes for one in looked(program.pid).containers}
    for path, size in {
        "chained": 660 * 4300 + 600 * 100,
        "listed": 612 * 4300 + 600 * 100,
        "in_turn": 300 * 9070,
        "with_model": 600 * 3300,
        "repeated": 5000,  # what has a name of its own is counted there
    }.items():
        assert sizes[f"__main__.{path}"] == pytest.approx(size, rel=0.15), path


def test_what_is_in_it_is_counted_from_a_sample(held: Census) -> None:
    counts = {(one.type, one.path): one.count for one in held.holders}
    assert counts["__main__.Loss", "__main__.Trainer.kept[i]"] == 2000
    assert counts["bytes", "__main__.Trainer.kept[i].inputs"] == 2000


def test_capacities_are_read_and_bookkeeping_is_no_holder(held: Census) -> None:
    capacities = {one.path: one.capacity for one in held.containers}
    assert capacities["__main__.Trainer.queue"] == 1000 and capacities["__main__.Trainer.kept"] == 5000
    assert not any(".locals" in one.path for one in (*held.containers, *held.holders))


REPLICAS = """
import sys
from contextlib import ExitStack
class Layer:
    def __init__(self): self.parameters = {"weight": bytes(50_000), "bias": bytes(500)}
class Policy:
    def __init__(self): self.modules = {"first": Layer(), "last": Layer()}
class Replica:
    def __init__(self): self.policy = Policy()
    def __enter__(self): return self
    def __exit__(self, *exc): pass
class Pool(ExitStack):
    def launch(self): return self.enter_context(Replica())
pool = Pool()
for _ in range(200): pool.launch()
def main():
    print("ready", flush=True)
    sys.stdin.read()
main()
"""


def test_a_record_of_few_parts_is_no_level_of_its_own() -> None:
    """An ExitStack has tuples with bound methods of what has dicts of layers with dicts of weights."""
    with running([sys.executable, "-c", REPLICAS]) as program:
        sizes = {one.path: one.bytes for one in looked(program.pid).containers}
    assert sizes["__main__.Pool._exit_callbacks"] == pytest.approx(200 * 2 * 51_000, rel=0.15)


MADE = {"mmap": "mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE)", "numpy": "numpy.zeros(64 << 20, dtype='u1')"}


@pytest.mark.parametrize("package", MADE)
def test_a_buffer_that_fills_is_told_with_what_is_in_memory(package: str) -> None:
    pytest.importorskip(package)
    fills = f"import sys, {package}\nclass Buffer: pass\nbuffer = Buffer()\nbuffer.data = {MADE[package]}\n"
    fills += "buffer.data[: 16 << 20] = bytearray(b'x' * (16 << 20))" + READY
    with running([sys.executable, "-c", fills]) as program:
        (large,) = looked(program.pid).large
    assert large.path == "__main__.Buffer.data" and large.bytes >> 20 == 64
    assert large.resident_bytes == pytest.approx(16 << 20, rel=0.1)


def test_an_interpreter_that_ends_has_no_names_instead_of_an_empty_heap() -> None:
    """Its last function has returned, and C's exit() still runs."""
    code = """
import ctypes
kept, libc = [bytes(5000) for _ in range(400)], ctypes.CDLL(None)
libc.__cxa_atexit(ctypes.cast(libc.pause, ctypes.c_void_p), None, None)  # waits in C's exit()
print('ready', flush=True)
"""
    with running([sys.executable, "-c", code]) as process:
        end = time.monotonic() + 20.0
        while time.monotonic() < end:
            try:
                looked(process.pid)
            except SourceError as error:
                assert "no function of Python runs in it" in str(error) or "no CPython" in str(error)
                return
            time.sleep(0.05)
    raise AssertionError("it was looked into for ever")


def test_a_look_at_many_objects_is_bounded() -> None:
    many = (
        "import sys\nclass Node: pass\nkept = []\nfor i in range(300_000):\n    n = Node(); n.a = [i]; kept.append(n)\n"
    )
    with running([sys.executable, "-c", many + READY]) as program:
        census = looked(program.pid)
    assert census.seconds < 0.4  # 0.02 to 0.1 s where no other program is in the way
    (kept,) = [one for one in census.containers if one.path == "__main__.kept"]
    assert kept.items == 300_000 and kept.bytes is not None and kept.bytes > 300_000 * 100


CACHED = """
import functools, sys
@functools.lru_cache(maxsize=1000)
def load(i): return bytes(3000)
class Model:
    @functools.lru_cache(maxsize=None)
    def logdet(self, i): return bytes(2000)
model = Model()
def train():
    for i in range(400): load(i), model.logdet(i)
    print('ready', flush=True)
    sys.stdin.read()
train()
"""


@pytest.mark.parametrize("python", NAMES)
def test_what_a_cached_function_keeps_is_found_by_its_name_with_its_bound(python: str) -> None:
    with running([*needed_python(python).command, "-c", CACHED]) as program:
        held = {one.path: (one.items, one.capacity, one.bytes) for one in looked(program.pid).containers}
        whole = take_census(program.pid, CensusOptions(bytes=True, traced_types=("bytes",), containers=True))
    listed = {one.full or one.path: (one.items, one.capacity, one.bytes) for one in whole.containers}
    is_read = python not in ("3.8", "3.9")  # what a cache with a bound holds has no type that can be read there
    for found in (held, listed) if is_read else (held,):
        for path, capacity, size in (("load", 1000, 3000), ("Model.logdet", None, 2000)):
            items, bound, taken = found[f"__main__.{path}.cache"]
            assert (items, bound) == (400, capacity)
            assert taken == pytest.approx(400 * size, rel=0.2) or (bound and not is_read)
    assert any(one.path.startswith("__main__.load.cache[k]") for one in whole.holders) or not is_read


BOUNDED = """
import sys
class Store:
    def __init__(self, **bounds):
        self.images, self.hits, self.max_steps = {{i: bytes(10_000) for i in range(200)}}, 10**6, 500
        self.__dict__.update(bounds)
store = Store({})
def train():
    print('ready', flush=True)
    sys.stdin.read()
train()
"""


@pytest.mark.parametrize(
    ("bounds", "capacity"),
    [
        ("", None),
        ("budget=4_000_000", 400),  # of bytes: 200 items have 2 MB
        ("max_cache_mb=4", 420),
        ("limit=300", 300),
        ("max_items=250, budget=4_000_000", 250),
        ("capacity=1000, limit=300", 1000),
        ("budget=1_900_000", 200),  # it is full
        ("limit=150", None),  # there is more already
        ("max_image_size=300, max_words=9000", 300),  # of its own name
    ],
)
def test_a_bound_that_an_owner_states_is_the_capacity(bounds: str, capacity: int | None) -> None:
    with running([sys.executable, "-c", BOUNDED.format(bounds)]) as program:
        (found,) = [one for one in looked(program.pid).containers if one.path == "__main__.Store.images"]
        whole = take_census(program.pid, CensusOptions(attribute_paths=(parse_attribute_path("Store.images"),)))
    for one in (found, whole.tracked[0]):
        assert one.capacity == (capacity and pytest.approx(capacity, rel=0.02)), one


EVICTING = """
import collections, sys
class Store:
    def __init__(self):
        self.tiles, self.cache_tiles, self.hits, self._kept = 4000, 620, 10**6, {kind}
    def get(self, i):
        if i in self._kept:
            self.hits += 1
        {put}
        {evict}
store = Store()
def train():
    for i in range(200): store.get(i)
    print('ready', flush=True)
    sys.stdin.read()
train()
"""


@pytest.mark.parametrize(
    ("kind", "put", "evict", "capacity"),
    [
        ("{}", "self._kept[i] = bytes(9000)", "if len(self._kept) > self.cache_tiles: self._kept.popitem()", 620),
        ("[]", "self._kept.append(bytes(9000))", "if len(self._kept) > self.cache_tiles: self._kept.pop(0)", 620),
        ("[]", "self._kept.append(bytes(9000))", "while len(self._kept) >= self.tiles: self._kept.clear()", 4000),
        ("{}", "self._kept[i] = bytes(9000)", "print(len(self._kept), self.cache_tiles, file=sys.stderr)", None),
        ("{}", "self._kept[i] = bytes(9000)", "str(len(self._kept)), self.tiles, [].extend([1]), [1].pop()", None),
        ("{}", "self._kept[i] = bytes(9000)", "self._kept.pop(-1, 0)", None),
    ],
    ids=["dict", "list", "cleared", "only shown", "removed elsewhere", "only removed"],
)
def test_a_bound_of_any_name_is_told_by_the_code_that_removes_items_then(
    kind: str, put: str, evict: str, capacity: int | None
) -> None:
    with running([sys.executable, "-c", EVICTING.format(kind=kind, put=put, evict=evict)]) as program:
        (found,) = [one for one in looked(program.pid).containers if one.path == "__main__.Store._kept"]
    assert (found.items, found.capacity) == (200, capacity)


DATA_SET = """
import sys
class Base:
    def __getitem__(self, i): raise NotImplementedError
class Images(Base):
    def __init__(self):
        self.count, self.size, self.files, self.kept = 500, 10_000, [f"{{n}}.png" for n in range(500)], {{}}
        self.stored = []
    def __len__(self): return {length}
images = Images()
def train():
    for i in range(0, 400, 2):
        images.stored.append(bytes(100))
        images.kept[{key}] = bytes(10_000)
    print('ready', flush=True)
    sys.stdin.read()
train()
"""


@pytest.mark.parametrize(
    ("length", "key", "capacity"),
    [
        ("self.count", "i", 500),
        ("len(self.files)", "i", 500),
        ("len(self.files)", "images.files[i]", 500),
        ("len(self.files)", "str(i)", None),
        ("self.count", "i + 200", None),
        ("self.count", "(i, 'crop')", None),
        ("len(self.kept)", "i", None),
        ("len(self.stored)", "i // 2", None),
    ],
    ids=["by number", "of a list", "by file", "of other texts", "of other numbers", "of pairs", "its own", "both grow"],
)
def test_a_data_set_keeps_no_more_than_it_has(length: str, key: str, capacity: int | None) -> None:
    with running([sys.executable, "-c", DATA_SET.format(length=length, key=key)]) as program:
        (found,) = [one for one in looked(program.pid).containers if one.path == "__main__.Images.kept"]
    assert (found.items, found.capacity) == (200, capacity)


def test_an_owner_states_the_bound_of_each_series_in_a_dict_of_its_own() -> None:
    code = (
        "import sys\nclass History:\n    def __init__(self):\n        self.history_max_size = 400\n"
        "        self._history = {name: [bytes(1000) for _ in range(100)] for name in ('loss', 'norm')}\n"
        "def main(history):" + READY.replace("\n", "\n    ") + "\nmain(History())\n"
    )
    with running([sys.executable, "-c", code]) as program:
        found = {one.path: one for one in looked(program.pid).containers}
        whole = take_census(program.pid, CensusOptions(attribute_paths=(parse_attribute_path("History._history"),)))
        assert found["__main__.History._history['loss']"].capacity == 400
    assert (whole.tracked[0].items, whole.tracked[0].capacity) == (200, 800)


def test_series_by_names_that_the_program_makes_are_counted_together() -> None:
    code = (
        "import collections, sys\nclass Meters:\n    def __init__(self):\n"
        "        self.meters = collections.defaultdict(lambda: collections.deque(maxlen=50))\n"
        "        for n in range(5):\n            self.meters[f'block{n}'].extend(bytes(1000) for _ in range(20))\n"
        "def main(meters):" + READY.replace("\n", "\n    ") + "\nmain(Meters())\n"
    )
    with running([sys.executable, "-c", code]) as program:
        found = {one.path: (one.items, one.capacity) for one in looked(program.pid).containers}
    assert found["__main__.Meters.meters"] == (100, 250)


def test_what_a_local_variable_holds_is_read_where_it_is_then() -> None:
    code = (
        "def train():\n    while True:\n"
        "        small, large = [None] * 10, [None] * 10_000\n"
        "        for _ in range(20):\n            small, large = [*small], [*large]\n            sum(range(20_000))\n"
        "            large, small = [*large], [*small]\n            sum(range(20_000))\n"
        "print('ready', flush=True)\ntrain()\n"
    )
    sizes = defaultdict[str, set[int | None]](set)
    with running([sys.executable, "-c", code]) as program:
        for _ in range(20):
            for one in looked(program.pid).containers:
                sizes[one.path.removeprefix("local variable of train: ")].add(one.items)
    assert sizes == {"small": {10}, "large": {10_000}}


def test_the_keys_of_a_large_dict_count_too() -> None:
    code = "import sys\nvocab = {f'word {n} ' + 'x' * 900: n for n in range(5000)}\ndef main():" + READY.replace(
        "\n", "\n    "
    )
    with running([sys.executable, "-c", f"{code}\nmain()"]) as program:
        (found,) = looked(program.pid).containers
    assert (found.path, found.items) == ("__main__.vocab", 5000)
    assert found.bytes == pytest.approx(5000 * (960 + 28) + 300_000, rel=0.1)


UNSET = """
import asyncio, queue, sys
class Slots:
    __slots__ = ("data", "error")
    def __init__(self): self.data = bytes(3000)
def kept(n):
    data = bytes(3000)
    def later(): return unset, data
    if n < 0: unset = 1
    return later
async def load(): return bytes(3000)
async def main():
    slots = [Slots() for _ in range(300)]
    closures = [kept(n) for n in range(300)]
    tasks = {asyncio.ensure_future(load()) for _ in range(300)}
    await asyncio.gather(*tasks)
    waiting = queue.SimpleQueue()
    for n in range(400): waiting.put(bytes(3000))
    for n in range(100): waiting.get()
    print("ready", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


@pytest.mark.parametrize("python", NAMES)
def test_what_is_not_set_hides_nothing_and_what_tasks_and_queues_hold_is_found(python: str) -> None:
    with running([*needed_python(python).command, "-c", UNSET]) as program:
        found = {one.path: one.bytes for one in looked(program.pid).containers}
    for name in ("slots", "closures", "tasks", "waiting"):
        assert found[f"local variable of main: {name}"] == pytest.approx(300 * 3000, rel=0.25), (name, found)


CLASSES = """
import sys
class Cell:
    made = []
    def __init_subclass__(cls): Cell.made.append(cls)
    def fit(self): return self
for i in range(400):
    cell = type(f"Cell{i}", (Cell,), {"weights": bytes([i % 250]) * 50_000})().fit()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("python", NAMES)
def test_what_classes_keep_that_a_program_makes_has_the_name_of_their_register(python: str) -> None:
    with running([*needed_python(python).command, "-c", CLASSES]) as program:
        census = looked(program.pid)
    found = {one.path: one for one in census.containers}
    assert found["__main__.Cell.made"].items == 400
    assert found["__main__.Cell.made"].bytes == pytest.approx(400 * 50_033, rel=0.05)
    assert ("bytes", "__main__.Cell.made[i].weights") in {(one.type, one.path) for one in census.holders}


def test_an_installed_package_with_many_names_takes_no_time(tmp_path: Path) -> None:
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "large.py").write_text("".join(f"name_{i} = {i}\n" for i in range(30_000)))
    program = f"import sys\nsys.path.append({str(tmp_path / 'site-packages')!r})\nimport large\n"
    program += "buffer = [bytes(1000) for _ in range(1000)]\n" + READY
    with running([sys.executable, "-c", program]) as child:
        census, _ = look_at_names(child.pid)
    assert [one.path for one in census.containers] == ["__main__.buffer"]


SEARCH = """
import sys
def nodes(depth): yield from range(depth)
def search(depth): return sum(search(depth - 1) for _ in nodes(depth)) if depth else 1
def main():
    kept = [bytes(1000) for _ in range(1000)]
    print("ready", flush=True)
    while True: search(6)
main()
"""


def test_variables_of_outer_functions_are_found_while_inner_ones_come_and_go() -> None:
    with running([sys.executable, "-c", SEARCH]) as child:
        found = [{one.path for one in look_at_names(child.pid)[0].containers} for _ in range(40)]
    assert sum("local variable of main: kept" in paths for paths in found) >= 38, found


PARTS = """
import sys
import numpy as np
class Axes:
    def __init__(self): self.children = [bytes(10_000) for _ in range(300)]
class Layer:
    def __init__(self): self.seen = [bytes(10_000) for _ in range(300)]
class Item:
    def __init__(self): self.data = [bytes(10_000) for _ in range(300)]
class View:
    def __init__(self):
        self.axes = np.array([[Axes(), Axes()]], dtype=object).squeeze()
        self.layers, self.items = (Layer(), Layer()), [Item(), Item()]
view = View()
"""


def test_parts_of_one_class_in_an_array_or_a_tuple_have_their_own_names() -> None:
    """Those of a list are data, of which there may be more: they have the name of the list."""
    with running([sys.executable, "-c", PARTS + READY]) as child:
        found = {one.path: one.bytes for one in looked(child.pid).containers}
    for path in ("__main__.Axes.children", "__main__.Layer.seen", "__main__.View.items"):
        assert found[path] == pytest.approx(2 * 300 * 10_033, rel=0.05), found


def test_what_a_variable_leads_to_is_found_beside_thousands_of_names_and_a_web_of_options(tmp_path: Path) -> None:
    models = (f"class Model{i}:\n    sizes = [1]\ndef make_{i}(n={i}):\n    return Model{i}\n" for i in range(2000))
    (tmp_path / "models.py").write_text("".join(models))
    (tmp_path / "train.py").write_text(
        "import argparse\nfrom models import *\n"
        "class Data:\n    def __init__(self):\n        self.seen = [bytes(10_000) for _ in range(500)]\n"
        "class Loader:\n    def __init__(self):\n        self.data = Data()\n"
        "parser = argparse.ArgumentParser()\n"
        "for group in range(12):\n    of = parser.add_argument_group(f'group {group}')\n"
        "    for i in range(40):\n        of.add_argument(f'--option-{group}-{i}', type=float, help='an option')\n"
        "def main(loader):\n    print('ready', flush=True)\n    while True:\n        sum(range(1000))\n"
        "main(Loader())\n"
    )
    with running([sys.executable, str(tmp_path / "train.py")]) as program:
        looks = [look_at_names(program.pid)[0] for _ in range(10)]
    found = [one.bytes for look in looks for one in look.containers if one.path == "__main__.Data.seen"]
    assert len(found) >= 6 and found == [pytest.approx(500 * 10_000, rel=0.02)] * len(found), "the machine is shared"
