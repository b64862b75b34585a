"""Hosts of a cluster on one machine: a network, host name, processes and mounts of its own for each; root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from memwatch.sources.procfs import read_children
from support.mainjob import until

NAMESPACES = ("--net", "--uts", "--pid", "--mount")
INIT = "hostname $0; ip link set lo up; echo ready; exec sleep infinity"


@dataclass(frozen=True)
class Host:
    """One that runs; `init` is its first process, `address` reaches it from the test."""

    name: str
    init: int
    address: str

    def command(self, *words: str) -> Sequence[str]:
        """What runs these words there."""
        return ("nsenter", "--target", str(self.init), *NAMESPACES, f"--wd={Path.cwd()}", *words)


@contextmanager
def hosts(*names: str) -> Iterator[Sequence[Host]]:
    """Hosts of these names, each by a cable of its own; a skip where the kernel or the machine refuses."""
    with ExitStack() as held:
        yield [held.enter_context(_host(name, number)) for number, name in enumerate(names)]


@contextmanager
def _host(name: str, number: int) -> Iterator[Host]:
    command = ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", "sh", "-c", INIT, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        if process.stdout.readline() != "ready\n":
            pytest.skip(f"no namespaces: {process.stderr.read().strip()}")
        [init] = read_children(process.pid)
        try:
            with _cable(init, number) as address:
                yield Host(name, init, address)
        finally:
            process.kill()  # --kill-child: and with it all that runs there


@contextmanager
def _cable(init: int, number: int) -> Iterator[str]:
    """The address of a host at the end of a cable to it: a network of two for each test process and host."""
    ours, net = f"mw{os.getpid() % 2**20:x}n{number}", f"10.{200 + number}.{os.getpid() % 256}"
    made = _ip(f"ip link add {ours} type veth peer name eth0 netns {init}")
    if made:
        pytest.skip(f"no network: {made}")
    try:
        for line in (
            f"ip addr add {net}.1/30 dev {ours}",
            f"ip link set {ours} up",
            f"nsenter --target {init} --net ip addr add {net}.2/30 dev eth0",
            f"nsenter --target {init} --net ip link set eth0 up",
        ):
            assert not (failed := _ip(line)), failed
        yield f"{net}.2"
    finally:
        _ip(f"ip link del {ours}")


def _ip(line: str) -> str:
    """What went wrong with it."""
    done = subprocess.run(line.split(), capture_output=True, text=True, check=False)
    return f"{line}: {done.stderr.strip()}" if done.returncode else ""


def inner(process: subprocess.Popen[bytes]) -> int:
    """The PID, as seen from the test, of what runs in a host by `Host.command`."""
    until(lambda: read_children(process.pid))
    return read_children(process.pid)[0]
