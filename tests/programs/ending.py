"""A trainer that waits until the file `go` is there, and then ends in the way that is named; its PID is in `pid`
(or the file that ENDING_PID_FILE names).

Arguments: the way, and what it wants besides. Each signal that it hears is a line of the file `heard`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 39.39 GiB "
    "of which 1.19 GiB is free."
)
JAX = (
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes."
)
TENSORFLOW = (
    "tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node __wrapped__AddV2}} "
    "OOM when allocating tensor with shape[32768,32768] and type float on /job:localhost/replica:0/task:0/device:GPU:0 "
    "by allocator GPU_0_bfc [Op:AddV2]"
)
HIP = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 15.98 GiB"
CUBLAS = "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
DEVICE = {"torch": TORCH, "jax": JAX, "tensorflow": TENSORFLOW, "hip": HIP, "cublas": CUBLAS}
LIES = (
    "Killed",
    "Evaluating (out of memory tests):  40%|████      | 4/10 [00:00<00:00, 9.1it/s]",
    "config: on_error=MemoryError:retry oom_kill=false",
    "worker 3: Killed process 17, out of memory, as asked for by the scheduler",
)


def traceback(line: str) -> None:
    """As Python prints one that nobody has caught."""
    print("Traceback (most recent call last):", file=sys.stderr)
    print('  File "/srv/train.py", line 41, in step\n    loss = model(batch)', file=sys.stderr)
    print(line, file=sys.stderr, flush=True)


def pause(words: list[str]) -> None:
    """As many seconds as the next word says."""
    time.sleep(float(words.pop(0)) if words else 0.0)


def exits(words: list[str]) -> None:
    sys.exit(int(words[0]) if words else 0)


def raises(_words: list[str]) -> None:
    raise ValueError("shapes (3,4) and (5,6) not aligned")


def allocates(_words: list[str]) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (1 << 27, 1 << 27))
    bytearray(1 << 28)


def device(words: list[str]) -> None:
    traceback(DEVICE[words[0]])
    sys.exit(1)


def java(_words: list[str]) -> None:
    print('Exception in thread "main" java.lang.OutOfMemoryError: Java heap space', file=sys.stderr)
    print("\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)", file=sys.stderr, flush=True)
    sys.exit(1)


def survives(words: list[str]) -> None:
    """A failed allocation that is caught; then the rest of the words is another way."""
    kind = words.pop(0)
    if kind == "retries":
        print("MemoryError: retrying with half the batch", flush=True)
    elif kind == "logs":  # as logging.exception() does
        traceback("MemoryError")
        print("WARNING out of memory: the batch is left out", flush=True)
    else:
        print(f"caught: {DEVICE[kind]} Halving the batch.", flush=True)
    pause(words)
    ends(words)


def survives_long(words: list[str]) -> None:
    """The same, with a generation after it."""
    traceback("MemoryError")
    time.sleep(0.3)
    print("Generation 2 / 3", flush=True)
    pause(words)
    ends(words)


def throws(words: list[str]) -> None:
    os.execv(words[0], words)


def aborts(_words: list[str]) -> None:
    os.abort()


def crashes(_words: list[str]) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def lies(words: list[str]) -> None:
    for line in LIES:
        print(line, end="\r" if "%|" in line else "\n", flush=True)
    pause(words)
    ends(words)


def waits(_words: list[str]) -> None:
    time.sleep(60)


def fills(words: list[str]) -> None:
    """Holds so many MB, says so and waits."""
    kept = b"x" * (int(words[0]) * 1_000_000)
    print("full", flush=True)
    time.sleep(60)
    del kept


def grows(_words: list[str]) -> None:
    kept = []
    while True:
        kept.append(b"x" * 20_000_000)


def worker(words: list[str]) -> None:
    """A worker of it is what the kernel kills; it goes on in another way."""
    pid = os.fork()
    if not pid:
        Path("/proc/self/oom_score_adj").write_text("1000")
        grows([])
    os.waitpid(pid, 0)
    print("a worker died, going on", flush=True)
    pause(words)
    ends(words)


def becomes(words: list[str]) -> None:
    """Another program by exec."""
    os.execvp(words[0], words)


def ends(words: list[str]) -> None:
    WAYS[words[0]](words[1:])


WAYS: dict[str, Callable[[list[str]], None]] = {
    way.__name__: way
    for way in (
        *(exits, raises, allocates, device, java, survives, survives_long, throws, aborts, crashes, lies),
        *(waits, fills, grows, worker, becomes),
    )
}


def main() -> None:
    Path(os.environ.get("ENDING_PID_FILE", "pid")).write_text(str(os.getpid()))
    print("Generation 1 / 3", flush=True)
    while not Path("go").exists():
        time.sleep(0.02)
    ends(sys.argv[1:])


if __name__ == "__main__":
    main()
