"""Runs the hook, the user's command for an interrupt, without a shell; the loop never waits for it."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from string import Formatter

from memwatch.actions.signal_sender import ExitStatus
from memwatch.core.events import HookRan
from memwatch.core.text_and_units import printable
from memwatch.errors import ConfigError, SourceError

FACTS = ("run_id", "node", "rank", "pid", "signal", "generation", "resource", "reason", "sentence")
SYSTEM = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_KEPT_OUTPUT_BYTES = 4096  # only the first line of the hook's output is reported
_PIPE_BYTES = 1 << 20  # how much the hook may print between two polls without being blocked
_READ_BYTES, _MAX_READS = 1 << 16, 32  # in one poll: a hook that prints without end must not block the loop
_POLL_SECONDS = 0.02  # between two polls while the loop waits for the hook
_MAX_COMMAND_LENGTH, _MAX_LINE_LENGTH = 200, 200  # characters, in reports


# --- what is run ----------------------------------------------------------------------------------------------------


def find_program(word: str, environ: Mapping[str, str]) -> str:
    """Return the absolute path of the program `word` in this environment; ConfigError when there is none."""
    import shutil  # with three compressors; most watches have no hook

    found = shutil.which(word, path=environ["PATH"])
    if found is None:
        where = f"no executable file {word}" if "/" in word else f"{word!r} is not in {environ['PATH']}"
        raise ConfigError(where, "write the program's whole path, and see that it may be executed")
    return os.path.abspath(found)  # noqa: PTH100 - some programs go by the name of the link


def placeholders(word: str) -> Iterator[str]:
    """Yield the names in braces; ConfigError for an unknown one."""
    fix = f"there are {', '.join(FACTS)}, and variables of the trainer, as SLURM_JOB_ID; write {{{{ and }}}} for braces"
    try:
        for _, name, form, conversion in Formatter().parse(word):
            if name is None:
                continue
            if form or conversion or (name not in FACTS and not _VARIABLE.fullmatch(name)):
                raise ConfigError(f"nothing is known as {{{name}}}", fix)
            yield name
    except ValueError as error:
        raise ConfigError(f"a single brace ({error})", fix) from error


def fill_placeholders(word: str, values: Mapping[str, str]) -> str:
    parts = Formatter().parse(word)
    return "".join(text + (values[name] if name is not None else "") for text, name, _, _ in parts)


def hook_environ(names: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the hook's environment without the facts: the system's variables, and those passed on by name."""
    return SYSTEM | {name: own[name] for name in names if name in own}


# --- running it -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Running:
    """A hook that was started."""

    t: float
    command: str
    signal: str  # the hook may end by it: it is expected to send it to the whole job
    pid: int
    output_descriptor: int  # reading it never blocks
    output: bytes = b""  # the beginning


class Hook:
    """The user's command, one at a time; an event source that reports its end."""

    name = "hook"

    def __init__(
        self,
        words: Sequence[str],
        environ: Mapping[str, str],
        variables: Mapping[str, str],
        *,
        seconds: float = 30.0,
        now: Callable[[], float],
    ) -> None:
        """`variables`: the trainer's. ConfigError for a variable that is missing there, and for a missing program."""
        self._program, self._words = find_program(words[0], environ), tuple(words)
        self._environ, self._seconds, self._now = dict(environ), seconds, now
        self._running: _Running | None = None
        self._killed: list[int] = []  # PIDs that are not reaped yet
        names = {name for word in words[1:] for name in placeholders(word)}
        self.facts = names.intersection(FACTS)  # the facts that its words use
        if missing := sorted(names - self.facts - variables.keys()):
            hint = "take it out of actions.hook, or start the trainer with it"
            raise ConfigError(f"the hook wants {missing[0]}, and the trainer's environment has none", hint)
        self._variables = {name: variables[name] for name in names - self.facts}
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # inherited: the kernel would keep the status to itself
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def command(self, facts: Mapping[str, str]) -> str:
        """Return the command as a user would type it."""
        return printable(shlex.join(self._argv(facts)), _MAX_COMMAND_LENGTH)

    def _argv(self, facts: Mapping[str, str]) -> list[str]:
        return [self._words[0], *(fill_placeholders(word, {**facts, **self._variables}) for word in self._words[1:])]

    def start(self, t: float, facts: Mapping[str, str]) -> None:
        """Start the hook, which takes about 1 ms; SourceError when that fails, and while the last one runs."""
        if self._running is not None:
            raise SourceError("the one before still runs")
        try:
            pid, output = self._launch(facts)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SourceError(f"it could not be started: {reason}") from error
        self._running = _Running(t, self.command(facts), facts["signal"], pid, output)

    def _launch(self, facts: Mapping[str, str]) -> tuple[int, int]:
        """Start the command; return its PID and the descriptor of its output; OSError."""
        environ = self._environ | {f"MEMWATCH_{name.upper()}": value for name, value in facts.items()}
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        try:
            os.set_blocking(ours, False)
            with suppress(OSError):  # the user's limit of memory in pipes is reached
                fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            return _spawn(self._program, self._argv(facts), environ, theirs), ours
        except (OSError, ValueError):
            os.close(ours)
            raise
        finally:
            os.close(theirs)

    def poll(self, now: float) -> Sequence[HookRan]:
        """Report the hook's end, once; kill it with its process group when it takes longer than its timeout."""
        self._killed = [pid for pid in self._killed if _reap(pid) is None]
        running = self._running
        if running is None:
            return ()
        ended = _reap(running.pid)
        _read_output(running)
        seconds, error = max(0.0, now - running.t), ""
        if ended is None:
            if now - running.t < self._seconds:
                return ()
            self._kill(running.pid)
            error = f"it took more than {self._seconds:g} s and was killed"
        elif ended.exit_code:
            error = f"status {ended.exit_code}"
        elif ended.signal not in (None, running.signal):  # a job manager may signal the hook with the rest of the job
            error = f"ended by {ended.signal}"
        self.close()
        exit_code = None if ended is None else ended.exit_code
        return (HookRan(now, running.command, exit_code, seconds, error, _first_line(running.output)),)

    def wait_until_ended(self, stopped: Callable[[], bool]) -> Sequence[HookRan]:
        """Wait for the hook, within its timeout and until a stop is requested."""
        while self._running is not None and not stopped():
            if ran := self.poll(self._now()):
                return ran
            time.sleep(_POLL_SECONDS)
        return ()

    def close(self) -> None:
        """Stop watching the hook. A running one continues, because it stops a job."""
        if self._running is not None:
            os.close(self._running.output_descriptor)
            self._running = None

    def _kill(self, pid: int) -> None:
        with suppress(OSError):  # it may have changed its user
            os.killpg(pid, signal.SIGKILL)
        if _reap(pid) is None:
            self._killed.append(pid)


def _spawn(program: str, argv: list[str], environ: Mapping[str, str], output: int) -> int:
    """Start a process in a session of its own, with memwatch's folder and user; return its PID; OSError."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
        *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable()),
    ]
    spawn = partial(
        os.posix_spawn,
        program,
        argv,
        environ,
        file_actions=actions,
        setsigmask=(),
        setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
    )
    try:
        return spawn(setsid=True)
    except NotImplementedError:  # this Python was built on an old C library, as conda's
        return spawn(setpgroup=0)


def _inheritable() -> list[int]:
    """List inherited descriptors beyond the standard streams; those that Python opens are closed by exec."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(OSError):  # the descriptor of the listing itself is closed by now
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def _reap(pid: int) -> ExitStatus | None:
    """Return the exit status of a child; None while it runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return ExitStatus.from_wait_status(status) if ended else None


def _read_output(running: _Running) -> None:
    """Keep the beginning of the hook's output and drop the rest."""
    with suppress(BlockingIOError):
        for _ in range(_MAX_READS):
            read = os.read(running.output_descriptor, _READ_BYTES)
            if not read:
                return
            running.output += read[: _KEPT_OUTPUT_BYTES - len(running.output)]


def _first_line(output: bytes) -> str:
    lines = (printable(line.decode("utf-8", "replace").strip(), _MAX_LINE_LENGTH) for line in output.splitlines())
    return next(filter(None, lines), "")
