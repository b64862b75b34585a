"""Leads whoever reads its heap to memory full of what looks like objects, and goes on changing that. argv: a seed."""

import ctypes
import gc
import mmap
import random
import sys
import threading
import time
from array import array
from collections import deque

SIZE = 4 << 20
FRONT, BODY = 32, 1024  # bytes around an object that are copied


class Real:
    def __init__(self):
        self.value = [self]


class Slotted:
    __slots__ = ("a", "b")


def samples():
    slotted = Slotted()
    slotted.a = slotted.b = "text"
    plain = [[1], {"a": 1}, {1: 2}, (1, 2), {1, 2}, deque([1], maxlen=5), "text", b"bytes", bytearray(9), 1 << 70]
    others = [array("d", [1.0]), Real(), slotted, Real, list, deque, sys, main, sys._getframe(), ValueError("why")]
    return [*plain, *others]


def forge(memory, base, chance):
    """Copies of real objects, some of their words replaced by others; the addresses of all of them."""
    made, at, originals = [], 0, samples()
    while at + FRONT + BODY < SIZE:
        one = chance.choice(originals)
        length = FRONT + chance.choice([64, 96, 512, BODY])
        memory[at : at + length] = ctypes.string_at(id(one) - FRONT, length)
        made.append(base + at + FRONT)
        for _ in range(chance.choice([0, 1, 2, 5])):
            spoil(memory, base, chance, at + 8 * chance.randrange(length // 8), originals)
        at += (length + 15) // 16 * 16
    return made


def spoil(memory, base, chance, at, originals):
    inside = base + 8 * chance.randrange(SIZE // 8)
    number = chance.choice([0, 1, 2, 3, 64, 4096, 1 << 16, 1 << 20, 1 << 28, 1 << 39, 1 << 63, chance.getrandbits(64)])
    value = chance.choice([inside, inside & ~15, base + at, number, number, -number, id(chance.choice(originals))])
    memory[at : at + 8] = (value % (1 << 64)).to_bytes(8, "little")


def write(address, *words):
    ctypes.memmove(address, array("Q", words).tobytes(), 8 * len(words))


def main():
    gc.disable()
    chance = random.Random(int(sys.argv[1]))
    memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    made, real, keep = forge(memory, base, chance), [Real() for _ in range(1000)], samples()
    hooks = [[None] * len(made) for _ in range(4)]
    for hook in hooks:
        chance.shuffle(made)
        write(ctypes.c_uint64.from_address(id(hook) + 24).value, *made)
        write(id(hook) - 16, made[0] - 16)  # what the collector would go to next
    print("ready", flush=True)

    def change():
        while True:
            for _ in range(200):
                spoil(memory, base, chance, 8 * chance.randrange(SIZE // 8), keep)
            time.sleep(0.001)

    threading.Thread(target=change, daemon=True).start()
    sys.stdin.read()
    return real


main()
