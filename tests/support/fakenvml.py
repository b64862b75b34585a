"""A libnvidia-ml.so.1 of our own, compiled once, that plays the world a test writes for the real pynvml."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
SOURCE = Path(__file__).with_name("fake_nvml.c")
GIB = 1 << 30


@cache
def library_folder() -> Path | None:
    """The folder (for LD_LIBRARY_PATH) with the compiled library; None without a C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="fake-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-Wl,-soname,{LIBRARY}"]
    subprocess.run([compiler, *flags, "-o", folder / LIBRARY, SOURCE, "-lpthread"], check=True)
    return folder


class World:
    """What the fake library plays; every change is seen by its next call."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._calls = file.with_suffix(".calls")
        self._lines: dict[str, str] = {}
        self._write()

    def environ(self, *, count: bool = True) -> dict[str, str]:
        """What a process needs in its environment to find this world; `count`: its calls, for `calls`."""
        counted = {"FAKE_NVML_CALLS": str(self._calls)} if count else {}
        return {"LD_LIBRARY_PATH": str(library_folder()), "FAKE_NVML_WORLD": str(self.file), **counted}

    def calls(self, function: str) -> int:
        """How often `function` was called."""
        return self._calls.read_text().splitlines().count(function) if self._calls.exists() else 0

    def gpu(
        self, index: int, *, total: int = 80 * GIB, free: int = 60 * GIB, mig: int = 0, minor: int = -1, name: str = ""
    ) -> None:
        """A GPU with UUID `GPU-<index>...`; mig is 1 (on), 0 (off) or -1 (this model has none)."""
        minor = index if minor < 0 else minor
        self._put(f"gpu {index}", f"{uuid('GPU', index)} {minor} {total} {free} {mig} {name or f'Fake H{index}'}")

    def mig(self, gpu: int, index: int, *, total: int = 10 * GIB, free: int = 4 * GIB) -> None:
        """A MIG instance with UUID `MIG-<gpu><index>...`."""
        self._put(f"mig {gpu} {index}", f"{uuid('MIG', gpu * 10 + index)} {total} {free} Fake H{gpu} MIG 1g")

    def process(self, unit: str, pid: int, used: int | str, kind: str = "Compute") -> None:
        """A process on unit "0" or "0:1"; used may be "na"."""
        self._put(f"proc {unit} {kind} {pid}", str(used))

    def fail(self, function: str, code: int, unit: str = "*") -> None:
        self._put(f"fail {function} {unit}", str(code))

    def hang(self, function: str) -> None:
        self._put(f"hang {function}", "")

    def crash(self, function: str) -> None:
        self._put(f"crash {function}", "")

    def say(self, line: str, value: object = "") -> None:
        """Any other line of the file: "init", "epoch", "driver", "wide", "count", "room"."""
        self._put(line, str(value))

    def forget(self, start: str) -> None:
        """Take out all lines that begin with `start`."""
        self._lines = {line: rest for line, rest in self._lines.items() if not line.startswith(start)}
        self._write()

    def _put(self, line: str, rest: str) -> None:
        self._lines[line] = rest
        self._write()

    def _write(self) -> None:
        fresh = self.file.with_suffix(".new")
        text = "".join(f"{line} {rest}\n" for line, rest in self._lines.items())
        fresh.write_bytes(text.encode("utf-8", "surrogateescape"))
        fresh.replace(self.file)


def uuid(kind: str, number: int) -> str:
    return f"{kind}-{number:08x}-1111-2222-3333-444444444444"
