"""The place of one ending: a real trainer, its parent and cgroup, a real memwatch, and what the kernel tells of it."""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import select
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import memwatch
from support.mainjob import Folder, Memwatch, until
from support.trainers import memory_cgroup
from trust.truth import Facts

PROGRAMS = Path(__file__).parents[1] / "programs"
QUIET = ("--listen", "none", "--interval", "0.1", "--json")
POLICY = "policy: {confirmation_seconds: 0.2, checkpoint_seconds: 0.5, kill_after_seconds: 1, save_timeout_seconds: "
ENTER = ("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"')
BLIND = ("setpriv", "--bounding-set=-syslog,-sys_admin", "env")  # the kernel's log may not be read
WHOLE_BYTES = 1_000_000  # of a checkpoint of tests/programs/leak.py
LOOKS_SECONDS = 0.3  # some looks before the end, as in life
PATIENCE_SECONDS = 90.0
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_INFO = struct.Struct("=QQ11Ii")  # struct pidfd_info, Linux >= 6.15
_GET_INFO, _EXIT = (3 << 30) | (_INFO.size << 16) | (0xFF << 8) | 11, 1 << 3


class Stage:
    """Where one ending is played; `chance` draws what it leaves open."""

    def __init__(self, folder: Folder, chance: random.Random, groups: ExitStack, held: ExitStack) -> None:
        """`groups` is closed when nothing of `held` runs any more."""
        self.folder, self.chance, self._groups, self._held = folder, chance, groups, held
        self.group: Path | None = None  # the trainer's own cgroup
        self.pid = 0  # of the trainer
        self.sent: list[str] = []
        self.watches: list[Memwatch] = []
        self.way = ""
        self.least_free_mb = host_free_mb()  # of the host, while an end was awaited
        self.blind = False  # memwatch may not read the kernel's log
        self._pidfd = -1
        self._parent: subprocess.Popen[bytes] | None = None

    # --- the trainer

    def confine(self, megabytes: int) -> None:
        """A cgroup of its own."""
        self.group = self._groups.enter_context(memory_cgroup(f"ending-{self.folder.path.name}", megabytes * 10**6))

    def words(self, command: Sequence[str]) -> list[str]:
        """To start it by: in its cgroup."""
        return [*command] if self.group is None else [*ENTER, str(self.group), *command]

    def start(self, command: Sequence[str], parent: str = "") -> None:
        """Start it, below a parent of tests/programs/parent.py if one is named."""
        above = [self.folder.python, "-S", str(PROGRAMS / "parent.py"), parent] if parent else []
        with self.folder.log.open("ab") as log:
            process = subprocess.Popen(
                self.words([*above, *command]),
                stdout=log,
                stderr=log,
                cwd=self.folder.path,
                env=self.folder.environ(),
                start_new_session=True,
            )
        if not parent:
            self.know(process.pid)
            return
        self._parent = process
        self.know_by_file()

    def know_by_file(self) -> None:
        """Its PID, as it says."""
        file = self.folder.path / "pid"
        until(lambda: file.exists() and file.read_text(), PATIENCE_SECONDS)
        self.know(int(file.read_text()))

    def know(self, pid: int) -> None:
        """The trainer is that process."""
        self.pid, self._pidfd = pid, os.pidfd_open(pid)
        self._held.callback(os.close, self._pidfd)

    def let_go(self) -> None:
        """What it waits for."""
        (self.folder.path / "go").touch()

    def send(self, *numbers: int) -> None:
        """Signal it, as somebody."""
        for number in numbers:
            signal.pidfd_send_signal(self._pidfd, number)
            self.sent.append(signal.Signals(number).name)

    def send_if_there(self, number: int) -> None:
        """The same, unless it has ended."""
        with suppress(ProcessLookupError):
            self.send(number)

    def await_gone(self) -> None:
        """Until it has ended."""
        select.select([self._pidfd], [], [], PATIENCE_SECONDS)

    def run(self, *command: str) -> None:
        """What a test does besides."""
        subprocess.run(command, cwd=self.folder.path, check=True, timeout=PATIENCE_SECONDS)

    def beside(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """A process of others."""
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder.path, start_new_session=True
        )

    def wrote(self, text: str) -> Callable[[], bool]:
        """Whether its log says so."""
        return lambda: text.encode() in self.folder.log.read_bytes()

    # --- memwatch

    def watch(self, *arguments: str, before: Sequence[str] = ()) -> Memwatch:
        """Another memwatch; it is not waited for."""
        before = (*before, *(BLIND if self.blind else ()))
        command = arguments[:1] if arguments[0] in ("run", "serve") else ()
        words = (*command, *QUIET, *arguments[len(command) :])
        watch = Memwatch(self.folder, *words, name=f"memwatch-{len(self.watches)}", before=before)
        self.watches.append(watch)
        self._held.callback(_end, watch.process)
        return watch

    def attach(self, *arguments: str) -> Memwatch:
        """One that watches the trainer, and has looked."""
        watch = self.watch("--pid", str(self.pid), *arguments)
        self.await_looks(watch)
        return watch

    def await_looks(self, watch: Memwatch) -> None:
        """Until it has attached, and looked a few times."""
        _until_told(watch, "attached", PATIENCE_SECONDS)
        time.sleep(LOOKS_SECONDS)

    def configured(self, more: str = "", save_seconds: float = 1.5) -> tuple[str, str]:
        """A policy for trainers that end within seconds; `save_seconds`: that their checkpoints may take."""
        path = self.folder.path / "memwatch.yaml"
        path.write_text(f"{POLICY}{save_seconds}{more}}}\ndaemon: {{wait_seconds: 0.1}}\n")
        return ("--config", str(path))

    # --- the story that most endings share

    def play(
        self,
        command: Sequence[str],
        *arguments: str,
        ways: Sequence[str] = ("pid", "pid", "run", "serve"),
        act: Callable[[], object] = lambda: None,
        **facts: Any,
    ) -> Facts:
        """Start it, watch it in one of these ways, let it go on, `act`, and wait for its end; what is known of that.

        The ways: `pid`, `run`, `serve`, or a parent of tests/programs/parent.py.
        """
        self.way = self.chance.choice(ways)
        arguments = arguments if "--config" in arguments else (*self.configured(), *arguments)
        if self.way == "run":
            watch = self.watch("run", *arguments, "--", *self.words(command))
        elif self.way == "serve":
            path = Path(arguments[arguments.index("--config") + 1])
            path.write_text(f"{path.read_text()}target: {{pidfile: {self.folder.path / 'pid'}}}\n")
            watch = self.watch("serve", *arguments)
            self.start(command)
        else:
            self.start(command, "" if self.way == "pid" else self.way)
            watch = self.watch("--pid", str(self.pid), *arguments)
        if self.way == "run":
            _until_told(watch, "attached", PATIENCE_SECONDS)
            self.know(watch.named("attached")[0]["pid"])
            self.folder.log = next((self.folder.path / "state/memwatch/runs").glob("*.log"))
        self.await_looks(watch)
        self.let_go()
        act()
        self.await_end(watch)
        return self.facts(**facts)

    def await_end(self, watch: Memwatch, seconds: float = PATIENCE_SECONDS) -> None:
        """Until the trainer has ended and memwatch has said so, or has ended itself."""

        def look() -> None:
            self.least_free_mb = min(self.least_free_mb, host_free_mb())

        _until_told(watch, "exited", seconds, look)

    # --- what is known

    def facts(self, **more: Any) -> Facts:
        """Of the trainer's end, which must have come, or be about to."""
        code, died = self._status()
        kills = self.kills() if "kills" not in more else more.pop("kills")
        heard = self.folder.path / "heard"
        words = tuple(heard.read_text().split()) if heard.exists() else ()
        return Facts(code, died, tuple(self.sent), words, kills, **more)

    def with_checkpoint(self, facts: Facts) -> Facts:
        """The same, and whether its checkpoint is complete."""
        file = self.folder.path / "state.ckpt"
        return replace(facts, whole=file.exists() and file.stat().st_size == WHOLE_BYTES)

    def said(self) -> dict[str, Any] | None:
        """The last that any memwatch said of an end."""
        told = [one for watch in self.watches for one in watch.named("exited")]
        return told[-1] if told else None

    def kills(self) -> int:
        """Kills in its own cgroup."""
        if self.group is None:
            return 0
        fields = dict(line.split() for line in (self.group / "memory.oom_control").read_text().splitlines())
        return int(fields["oom_kill"])

    def _status(self) -> tuple[int | None, str | None]:
        raw = self._wait_status()
        if raw is None:
            return None, None
        if os.WIFSIGNALED(raw):
            return None, signal.Signals(os.WTERMSIG(raw)).name
        return os.WEXITSTATUS(raw), None

    def _wait_status(self) -> int | None:
        """From waitpid() where it is ours, also as an orphan; from its parent; else from the kernel's pidfd."""
        told = self.folder.path / "status"
        if self.way == "reaps":
            until(lambda: told.exists() and told.read_text(), PATIENCE_SECONDS)
            return int(told.read_text())
        if self._parent is not None and self.way == "never":
            _end(self._parent)
        with suppress(ChildProcessError):
            return os.waitpid(self.pid, 0)[1]
        buffer = bytearray(_INFO.size)
        struct.pack_into("=Q", buffer, 0, _EXIT)
        try:
            fcntl.ioctl(self._pidfd, _GET_INFO, buffer)
        except OSError:
            return None
        mask, *_, status = _INFO.unpack(buffer)
        return int(status) if mask & _EXIT else None


def use_this_memwatch() -> None:
    """What is started in other folders runs the memwatch that this process would."""
    os.environ["PYTHONPATH"] = str(Path(memwatch.__file__).resolve().parents[1])


@contextmanager
def stage(path: Path, seed: int) -> Iterator[Stage]:
    """A stage of its own below `path`; nothing of it is left running."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    with ExitStack() as groups, ExitStack() as held:
        place = Stage(Folder(path), random.Random(seed), groups, held)
        held.callback(_end_children)
        yield place


def host_free_mb() -> int:
    """What programs could have."""
    return int(Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]) // 1000


def _until_told(watch: Memwatch, event: str, seconds: float, look: Callable[[], None] = lambda: None) -> None:
    """Until memwatch has told of that, or has ended; `look` each time."""
    mark = f'"event":"{event}"'.encode()

    def is_over() -> bool:
        look()
        told = (file.read_bytes() for file in (watch.out, watch.err))
        return watch.process.poll() is not None or any(mark in one for one in told)

    until(is_over, seconds)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _end_children() -> None:
    """All that this process has below it: orphans come to it."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := [int(word) for word in children.read_text().split()]:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
