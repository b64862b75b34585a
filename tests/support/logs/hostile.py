"""Logs that count nothing, or that try to look as if they did."""

# ruff: noqa: E501 - lines as long as the programs print them
from __future__ import annotations

from collections.abc import Iterator

from support.logs import falling, log, n


@log()
def web_server() -> Iterator[str]:
    for i in range(60):
        yield f'10.0.0.{i * 37 % 250} - - [21/Nov/2026:03:{i:02}:10 +0000] "GET /item/{i * 7919 % 1000} HTTP/1.1" 200 {(i * i * 311 + i) % 9001}'


@log()
def pip_install() -> Iterator[str]:
    yield "Collecting torch==2.1.0\n  Downloading torch-2.1.0-cp311-cp311-manylinux1_x86_64.whl (670.2 MB)"
    yield "\r".join(
        f"     {'━' * k}{' ' * (40 - k)} {k * 16.7:.1f}/670.2 MB 11.2 MB/s eta 0:00:{40 - k:02}"
        for k in range(0, 41, 4)
    )
    yield "Collecting numpy>=1.24\n  Downloading numpy-1.26.0 (18.2 MB)\nSuccessfully installed numpy-1.26.0 torch-2.1.0"


@log()
def memory_monitor() -> Iterator[str]:
    for i in range(50):
        yield f"[00:{i // 2:02}:{i % 2 * 30:02}] rss {900 + i * 13 + i * i % 7} MB, vms {4000 + i * 17 % 31} MB, {12 + i % 3} threads, gpu {31 + i % 4} C"


@log()
def countdown() -> Iterator[str]:
    for i in range(40, 0, -1):
        yield f"{i} jobs left in the queue, 3 running"


@log()
def clock_only() -> Iterator[str]:
    for i in range(50):
        yield f"2024-05-01 12:{i:02}:00 INFO still training, elapsed {i * 60} seconds, uptime {i + 5} min"


@log()
def binary_junk() -> Iterator[str]:
    for i in range(40):
        yield (
            "".join(chr((i * 7919 + k * k * 31) % 0x2FF + 1) for k in range(300))
            .replace("«", "?")
            .replace("»", "?")
            .replace("\n", "?")
        )


@log()
def very_long_lines() -> Iterator[str]:
    for i in range(4):
        yield "tensor([" + ", ".join(f"{falling(i + k):.4f}" for k in range(9000)) + "])"


@log("epoch", None, "start")
def between_long_lines() -> Iterator[str]:
    for e in range(5):
        yield f"epoch {n(e)}"
        yield "weights [" + " ".join(f"{falling(e + k):.3f}" for k in range(4000)) + "]"


@log()
def traceback() -> Iterator[str]:
    yield "Traceback (most recent call last):"
    for line in (12, 118, 204, 311, 415, 502):
        yield f'  File "/usr/lib/python3.11/site-packages/torch/nn/modules/module{line}.py", line {line}, in forward\n    return self.step(epoch)'
    yield "ValueError: batch 3 has 5 of 8 items"


@log()
def model_summary() -> Iterator[str]:
    yield "Layer (type)                Output Shape              Param #\n================================================================="
    for k in range(1, 12):
        yield f"conv2d_{k} (Conv2D)           (None, {26 - k}, {26 - k}, {32 << k // 3})        {k * k * 928 + 32}"
    yield "Total params: 1,234,567\nTrainable params: 1,234,567\nEpochs: 0"


@log()
def advice_about_epochs() -> Iterator[str]:
    for k in (5, 3, 9, 5):
        yield f"hint: training longer than {k} epochs seldom helps; early stopping after step {k * 100} of the schedule"
        yield "see epoch 3 of the paper"


@log()
def prices() -> Iterator[str]:
    for i in range(40):
        yield f"BUY {100 + (i * i * 53 + i) % 17} AAPL @ 1{i * 31 % 90}.{i * 7 % 100:02} (bid 12{i * 3 % 10}, ask 13{i * 7 % 10})"


@log("epoch", 10, "start")
def escape_sequences() -> Iterator[str]:
    for e in range(1, 11):
        yield f"\x1b]0;epoch 99/99\x07\x1b[2K\x1b[1G\x1b[38;5;{e}mEpoch {n(e)}/10\x1b[0m"


@log()
def compiler() -> Iterator[str]:
    for k in range(1, 30):
        yield f"[{k * 3}%] Building CXX object src/CMakeFiles/core.dir/file{k * 7919 % 100}.cpp.o"
    yield "[100%] Linking CXX static library libcore.a"
