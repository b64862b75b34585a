"""A /proc tree of files, as small as the test needs, with the kernel's formats and hostile content on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

PAGE = 4096
NOISE = "\n".join(["Cpus_allowed:\t3", "voluntary_ctxt_switches:\t0", ""])


class FakeProc:
    """Write processes with `process()`, change them by writing again; `str(fake)` is the root to read from."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.forked = 100
        self.write("meminfo", "MemTotal: 1000 kB\nMemAvailable: 800 kB\nSwapFree: 0 kB\n")
        self.write("self/mountinfo", "")
        self.touch_last_pid()

    def __str__(self) -> str:
        return str(self.root)

    def write(self, path: str, content: str | bytes) -> Path:
        """Write a file in place (held descriptors see the new content)."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def touch_last_pid(self) -> None:
        """Let the world know that something was forked."""
        self.forked += 1
        self.write("loadavg", f"0.06 0.02 0.00 1/110 {self.forked}\n")

    def process(
        self,
        pid: int,
        *,
        anon: int = 0,
        shared: int = 0,
        size: int | None = None,
        children: tuple[int, ...] = (),
        parent: int = 1,
        layout: int = 7,
        comm: str = "python",
        state: str = "S",
        shmem: int = 0,
        swap: int = 0,
        with_children_file: bool = True,
        group: int | None = None,
        start: int = 0,
        session: int = 0,
        process_group: int = 0,
        terminal: int = 0,
        argv: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """One process; sizes in bytes. A process without a size has no memory: a zombie."""
        pages = anon // PAGE + shared // PAGE
        total = pages if size is None else size // PAGE
        self.write(f"{pid}/statm", f"{total} {pages} {shared // PAGE} 1 0 {total} 0\n")
        fields = ["0"] * 49
        fields[2:5], fields[19] = [str(process_group), str(session), str(terminal)], str(start)
        fields[0], fields[1], fields[23], fields[25] = state, str(parent), str(layout), str(layout)
        self.write(f"{pid}/stat", f"{pid} ({comm}) {' '.join(fields)}\n")
        self.write(
            f"{pid}/status",
            f"Name:\t{comm}\nTgid:\t{group or pid}\nVmSize:\t{total * 4} kB\nRssAnon:\t{anon // 1024} kB\n"
            f"RssFile:\t{(shared - shmem) // 1024} kB\nRssShmem:\t{shmem // 1024} kB\n"
            f"VmData:\t{total * 4 - 8} kB\nVmStk:\t8 kB\nVmSwap:\t{swap // 1024} kB\n{NOISE}",
        )
        unlimited = "unlimited            unlimited            bytes     \n"
        self.write(f"{pid}/limits", f"Max data size             {unlimited}Max address space         {unlimited}")
        if argv:
            self.write(f"{pid}/cmdline", "".join(f"{word}\0" for word in argv))
        if environ is not None:
            self.write(f"{pid}/environ", "".join(f"{name}={value}\0" for name, value in environ.items()))
        self.write(f"{pid}/task/{pid}/stat", "")
        if with_children_file:
            self.write(f"{pid}/task/{pid}/children", " ".join(map(str, children)) + " ")
        self.touch_last_pid()

    def pages(self, pid: int, *stretches: tuple[int, bytes, str]) -> None:
        """Its mappings: the page number where each begins, the highest byte of each pagemap entry, and the inode."""
        lines = []
        for first, kinds, inode in stretches:
            start, end = first * PAGE, (first + len(kinds)) * PAGE
            lines.append(f"{start:x}-{end:x} rw-{'s' if inode else 'p'} 00000000 00:01 {inode or 0}  /some/file\n")
        self.write(f"{pid}/maps", "".join(lines))
        with self.write(f"{pid}/pagemap", b"").open("r+b") as pagemap:
            for first, kinds, _ in stretches:
                pagemap.seek(first * 8)
                pagemap.write(b"".join(bytes(7) + bytes([kind]) for kind in kinds))

    def zombie(self, pid: int) -> None:
        """The process ended and nobody waited for it. (A reaped one, whose held files give ESRCH, cannot be faked.)"""
        self.process(pid, state="Z", size=0)
