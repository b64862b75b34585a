"""A trainer whose memory grows by 10 to 30 MB a generation, and no attribute holds what it grows by.

Arguments: the cause, and the seconds of each of a generation's two phases.
"""

import ctypes
import gc
import multiprocessing
import sys
import time
from multiprocessing.shared_memory import SharedMemory

MB = 10**6
SECONDS = float(sys.argv[2])


class Record:
    def __init__(self):
        self.text = bytes(10_000)


def generations():
    for number in range(1, 100):
        print(f"=== Generation {number}/99 ===\n--- Evaluating Population ---", flush=True)
        time.sleep(SECONDS)
        yield number


def train():
    print("--- Training Population ---", flush=True)
    time.sleep(SECONDS)


def leak(size):
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    ctypes.memset(libc.malloc(size), 1, size)


def native_leak():
    for _ in generations():
        train()
        leak(20 * MB)


def native_leak_beside_batches():
    for _ in generations():
        batches = [bytearray(10 * MB) for _ in range(6)]
        train()
        del batches
        leak(20 * MB)


def fragmentation():
    """Buffers are cut down to what was read; what is left of each is too short for the next."""
    read = []
    for _ in generations():
        buffers = [bytearray(100_000) for _ in range(300)]
        train()
        for one in buffers:
            del one[100:]
        read += buffers


def workers_copy_pages():
    data = [bytes(4000) for _ in range(50_000)]  # about a page each

    def work(pipe):
        for one in pipes:  # that it ends with the trainer
            one.close()
        while True:
            first = pipe.recv()
            pipe.send(sum(map(len, data[first : first + 3_000])))

    context, pipes = multiprocessing.get_context("fork"), []
    for _ in range(2):
        ours, theirs = context.Pipe()
        pipes.append(ours)
        context.Process(target=work, args=(theirs,), daemon=True).start()
    for number in generations():
        train()
        for pipe in pipes:
            pipe.send(3_000 * number)
            pipe.recv()


class Environment:
    def __init__(self):
        self.trail = []

    def step(self):
        self.trail.append(bytearray(5 * MB))


def serve(pipe, trainers_ends):
    for one in trainers_ends:  # that it ends with the trainer
        one.close()
    environment = Environment()
    while pipe.recv():
        environment.step()


def worker_heap():
    """Environments in processes of their own keep what they have seen."""
    context, pipes = multiprocessing.get_context("fork"), []
    for _ in range(2):
        ours, theirs = context.Pipe()
        pipes.append(ours)
        context.Process(target=serve, args=(theirs, pipes), daemon=True).start()
    for _ in generations():
        train()
        for pipe in pipes:
            for _ in range(2):
                pipe.send(True)


def kept_exceptions():
    kept = []

    def fail():
        batch = bytearray(20 * MB)
        raise ValueError(len(batch))

    for _ in generations():
        train()
        try:
            fail()
        except ValueError as error:
            kept.append(error)


class Module:
    def __init__(self):
        self.weights, self.hook = bytearray(20 * MB), lambda: self


def garbage_in_cycles():
    gc.disable()
    for _ in generations():
        train()
        Module()


def waiting_generator():
    def batches():
        seen = []
        while True:
            seen.append(bytearray(20 * MB))
            yield len(seen)

    for _, _ in zip(generations(), batches(), strict=False):
        train()


def shared_memory():
    kept = []
    for _ in generations():
        train()
        kept.append(SharedMemory(create=True, size=10 * MB))
        kept[-1].unlink()
        kept[-1].buf[:] = bytes(10 * MB)


def local_variable():
    records = []
    for _ in generations():
        train()
        records += [Record() for _ in range(2000)]


def batches():
    for _ in generations():
        arrays = [bytearray(10 * MB) for _ in range(10)]
        train()
        del arrays


globals()[sys.argv[1]]()
