"""What C code has allocated behind objects, in real programs, by glibc's malloc()."""

from __future__ import annotations

import sys

import pytest

from memwatch.core.examination import Census
from memwatch.diagnosis.heap.named_objects import look_at_names
from support.processes import running

WAITS = "\nprint('ready', flush=True)\nsys.stdin.read()\n"
BLOCKS = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
common = libc.malloc(5_000_000)
def struct(*words):
    at = libc.malloc(64)
    (ctypes.c_uint64 * 8).from_address(at)[:] = [*words, *[0] * (8 - len(words))]
    return at
def handle(size):
    data = libc.malloc(size)
    return ctypes.c_void_p(struct(7, common, struct(data)))
class Model:
    def __init__(self, size): self.handle = handle(size)
class Slots:
    __slots__ = "text", "number"
    def __init__(self): self.text, self.number = bytes(100_000), 3
"""


def looked(code: str) -> Census:
    with running([sys.executable, "-c", code + WAITS]) as program:
        return look_at_names(program.pid, names_seconds=1.0, content_seconds=1.5)[0]


def size_of(code: str) -> int:
    (found,) = [one for one in looked(code).containers if one.path == "__main__.kept"]
    assert found.bytes is not None
    return found.bytes


@pytest.mark.parametrize(
    ("code", "size", "error"),
    [
        pytest.param("kept = [handle(40_000) for _ in range(500)]", 500 * 40_000, 0.05, id="of a pointer"),
        pytest.param("kept = [handle(400_000) for _ in range(30)]", 30 * 400_000, 0.05, id="mapped by itself"),
        pytest.param("kept = {i: Model(40_000) for i in range(500)}", 500 * 40_000, 0.05, id="of an attribute"),
        pytest.param("kept = [handle(30_000 + 20_000 * (i % 2)) for i in range(500)]", 500 * 40_000, 0.3, id="mixed"),
        # zconf.h says how much deflate() allocates.
        pytest.param("import zlib\nkept = [zlib.compressobj() for _ in range(99)]", 99 * 262_144, 0.05, id="of zlib"),
    ],
)
def test_memory_behind_objects_counts_for_what_holds_them(code: str, size: int, error: float) -> None:
    assert size_of(BLOCKS + code) == pytest.approx(size, rel=error)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("kept = [ctypes.c_void_p(struct(common)) for _ in range(500)]", id="what all lead to"),
        pytest.param(
            "kept = [ctypes.c_void_p(struct()) for _ in range(499)] + [handle(50_000_000)]", id="of one alone"
        ),
        pytest.param(
            "kept = [handle(40_000) for _ in range(500)]\n"
            "for one in kept: libc.free((ctypes.c_uint64 * 8).from_address(one.value)[2])\n"
            "for one in kept: libc.free(one.value)",
            id="freed",
        ),
    ],
)
def test_what_is_not_theirs_does_not_count(code: str) -> None:
    assert size_of(BLOCKS + code) < 500_000


def test_what_a_slot_refers_to_counts_once() -> None:
    assert size_of(BLOCKS + "kept = [Slots() for _ in range(300)]") == pytest.approx(300 * 100_000, rel=0.05)


def test_what_two_kinds_of_one_item_lead_to_counts_once() -> None:
    code = "kept = [(one := handle(40_000), ctypes.c_size_t(one.value)) for _ in range(500)]"
    assert size_of(BLOCKS + code) == pytest.approx(500 * 40_000, rel=0.1)
