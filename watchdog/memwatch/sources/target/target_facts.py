"""Identifies a process by PID and start time, and reads what is known of it at attach."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from memwatch.core.measurements import RunIdentity, SchedulerLimit, Target
from memwatch.core.text_and_units import printable
from memwatch.core.trainer_rules import CgroupNames, Workload, parse_cgroup_path
from memwatch.errors import AttachError, NoTrainerError, SourceError, TargetGoneError
from memwatch.sources.kernel_files import read_whole
from memwatch.sources.procfs import THREAD_GROUP, read_children, read_lineage, read_stat

_ENVIRON_BYTES = 1 << 20  # read at most
# The longest wait for a child's exec, and between two checks: the kernel takes microseconds, a busy machine more.
EXEC_SECONDS, EXEC_POLL_SECONDS = 1.0, 0.001
_PYTHON = re.compile(r"(?:.*/)?(?:i?python[0-9.]{0,5})")
_KERNEL = re.compile(r"(?:^|[/.])(?:ipykernel|ipython|colab_kernel)")  # python -m ipykernel_launcher -f ....json


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What is known of the trainer at attach; what could not be read is None."""

    target: Target
    command: str  # printable
    argv: tuple[str, ...]
    cwd: str | None
    uid: int | None
    stdout_path: str | None  # the regular file of its standard output
    stdout_reason: str  # why stdout_path is None; else empty
    environ: Mapping[str, str] | None
    is_torchrun: bool  # it is the agent, not one of its ranks
    is_wrapper: bool  # a shell or the like, which runs the trainer below it
    status: bytes  # /proc/PID/status, for actions.signals.plan


def identify(pid: int, root: str = "/proc") -> Target:
    """Return the identity of the process that has this PID now; AttachError when it cannot be watched."""
    _require_watchable_pid(pid)
    try:
        found = read_stat(pid, root)
    except TargetGoneError as error:
        raise _no_such_process(pid) from error
    except SourceError as error:
        raise AttachError(f"process {pid} cannot be read: {error}", "Run memwatch as the trainer's user.") from error
    if found.kernel_thread:
        raise AttachError(f"process {pid} ({printable(found.name)}) is a kernel thread", "Name the trainer's PID.")
    if found.dead:
        hint = f"Its parent, {found.parent_pid}, has not reaped it."
        raise NoTrainerError(f"process {pid} has ended: it is a zombie", hint)
    group = THREAD_GROUP.search(_read(f"{root}/{pid}/status") or b"")
    if group is not None and int(group[1]) != pid:
        leader = int(group[1])
        raise AttachError(f"{pid} is a thread of process {leader}", f"Use --pid {leader}.")
    return Target(_boot_id(root), pid, found.start_ticks)


def require_own_proc(root: str = "/proc") -> None:
    """AttachError when /proc shows another PID namespace than memwatch's, where its PIDs mean other processes.

    This happens when a container, or a new PID namespace, has /proc mounted from outside.
    """
    own = _link(f"{root}/self")
    if own != str(os.getpid()):
        hint = "Mount one: mount -t proc proc /proc, or unshare --mount-proc; a container needs its own."
        raise AttachError(f"{root} does not show the processes of memwatch's own PID namespace", hint)


def is_same_process(target: Target, root: str = "/proc") -> bool:
    """Whether the process still runs: neither exited nor replaced by another with its PID."""
    try:
        found = read_stat(target.pid, root)
    except SourceError:
        return False
    return found.start_ticks == target.start_ticks and not found.dead


def read_target_facts(target: Target, root: str = "/proc") -> TargetFacts:
    """Read the facts at attach; what is not permitted is None. TargetGoneError when it exited meanwhile."""
    base = f"{root}/{target.pid}"
    argv = tuple(read_argv(target.pid, root))
    path, reason = reachable_path(base)
    facts = TargetFacts(
        target=target,
        command=command_line(argv) or printable(read_stat(target.pid, root).name),
        argv=argv,
        cwd=_link(f"{base}/cwd"),
        uid=_uid(base),
        stdout_path=path,
        stdout_reason=reason,
        environ=read_environ(target.pid, root),
        is_torchrun=is_torchrun(argv),
        is_wrapper=is_wrapper(argv),
        status=_read(f"{base}/status") or b"",
    )
    if not is_same_process(target, root):
        raise TargetGoneError(f"process {target.pid} has ended")
    return facts


def read_started_target_facts(pid: int) -> TargetFacts:
    """As read_target_facts, for a process started just now, which has no command line until its exec is done."""
    deadline = time.monotonic() + EXEC_SECONDS
    while not (facts := read_target_facts(identify(pid))).argv and time.monotonic() < deadline:
        time.sleep(EXEC_POLL_SECONDS)
    return facts


def command_line(argv: Sequence[str]) -> str:
    """Return the command line as typed, with the program's name without its directory; printable."""
    return printable(" ".join((PurePath(argv[0]).name, *argv[1:]))) if argv else ""


def read_argv(pid: int, root: str = "/proc") -> list[str]:
    """Read the command line; empty for a kernel thread, a zombie and an exited process."""
    data = _read(f"{root}/{pid}/cmdline") or b""
    words = data.rstrip(b"\0").split(b"\0") if data else []
    return [os.fsdecode(word) for word in words]


def read_environ(pid: int, root: str = "/proc") -> Mapping[str, str] | None:
    """Read the environment at the process's start; None when not permitted."""
    data = _read(f"{root}/{pid}/environ", _ENVIRON_BYTES)
    if data is None:
        return None
    pairs = (os.fsdecode(entry).partition("=") for entry in data.split(b"\0") if b"=" in entry)
    return {name: value for name, _, value in pairs}


def read_torchrun_ranks(agent: Target, root: str = "/proc") -> list[Target]:
    """Find the current rank processes of a torchrun agent, by rank; the agent may restart them."""
    found = []
    for pid in read_children(agent.pid, root):
        environ = read_environ(pid, root) or {}
        if "LOCAL_RANK" in environ:
            with contextlib.suppress(AttachError):
                rank = parse_number(environ.get("RANK", ""))
                found.append((rank is None, rank or 0, pid, identify(pid, root)))
    return [target for *_, target in sorted(found)]


def _require_watchable_pid(pid: int) -> None:
    if pid < 1:
        raise AttachError(f"{pid} is not a process ID", "Name the trainer's PID, a positive number.")
    if pid == 1:
        hint = "In a container, start the trainer under an init (docker run --init) or with `memwatch run -- ...`."
        raise AttachError("PID 1 is never watched: it is the system's init", hint)
    if pid == os.getpid():
        raise AttachError(f"process {pid} is memwatch itself", "Name the trainer's PID.")


def _no_such_process(pid: int) -> AttachError:
    """The error for a PID that /proc lacks: the process exited, or the mount option hidepid hides it."""
    try:
        os.close(os.pidfd_open(pid))
    except PermissionError:
        pass
    except (OSError, AttributeError, OverflowError):
        return NoTrainerError(f"no process {pid}", "It may have ended, or have another PID outside of its container.")
    hint = "Run memwatch as the trainer's user or as root: /proc is mounted with hidepid, or it is no process's PID."
    return AttachError(f"process {pid} exists but /proc does not show it", hint)


def _boot_id(root: str) -> str:
    data = _read(f"{root}/sys/kernel/random/boot_id")
    if not data:
        hint = f"Mount all of the proc file system at {root}, without subset=pid."
        raise AttachError(f"{root}/sys/kernel/random/boot_id cannot be read", hint)
    return data.decode("ascii", "replace").strip()


def is_interactive(argv: Sequence[str]) -> bool:
    """Whether it is a notebook's kernel or a prompt of Python, which may be much older than what runs in it."""
    is_prompt = len(argv) == 1 and _PYTHON.fullmatch(argv[0]) is not None
    return is_prompt or any(map(_KERNEL.search, argv))


def reachable_path(base: str, descriptor: str = "1") -> tuple[str | None, str]:
    """Return a path by which memwatch can open the file of a descriptor, or None and, of stdout, why there is none."""
    try:
        status = Path(base, "fd", descriptor).stat()
        name = str(Path(base, "fd", descriptor).readlink())
    except PermissionError:
        return None, "not permitted to see where its standard output goes"
    except OSError:
        return None, "its standard output is closed"
    if not stat.S_ISREG(status.st_mode):
        return None, f"its standard output is no file but {printable(name, 60)}"
    if status.st_nlink == 0:
        return None, f"the file of its standard output was deleted: {printable(name, 120)}"
    for path in (name, f"{base}/root{name}"):  # the second path for a trainer in a container
        with contextlib.suppress(OSError):
            if os.path.samestat(Path(path).stat(), status):
                return path, ""
    return None, f"the file of its standard output cannot be reached from here: {printable(name, 120)}"


def _uid(base: str) -> int | None:
    try:
        return Path(base).stat().st_uid
    except OSError:
        return None


def _link(path: str) -> str | None:
    try:
        return str(Path(path).readlink())
    except OSError:
        return None


def _read(path: str, size: int = 1 << 16) -> bytes | None:
    try:
        return read_whole(path, size)
    except SourceError:
        return None


# --- what its launcher set --------------------------------------------------------------------------------------------

# The first variable that is set is used. MEMWATCH_* are for trainers without a launcher, such as pods (Downward API).
RUN_ID_VARIABLES = ("MEMWATCH_RUN_ID", "TORCHELASTIC_RUN_ID", "PET_RDZV_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
NODE_VARIABLES = ("MEMWATCH_NODE", "SLURMD_NODENAME", "NODE_NAME")
RANK_VARIABLES = ("MEMWATCH_RANK", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
NODE_COUNT_VARIABLES = ("GROUP_WORLD_SIZE", "PET_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
_NO_ID = "none"  # torchrun's default
# Shells, and what starts a program in an environment of its own, as a child.
_WRAPPERS = {
    *("sh", "bash", "dash", "ash", "ksh", "zsh", "fish", "make", "time"),
    *("uv", "conda", "mamba", "micromamba", "pixi", "poetry", "pipenv", "pdm", "hatch", "rye"),
}
_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")  # after -m, or as the path of a script


def identify_run(
    environ: Mapping[str, str], argv: Sequence[str], *, agent: bool, host: str, run_id: str
) -> RunIdentity:
    """Return what the launcher set; `run_id` and `host` are used when it set nothing.

    `agent`: the process is torchrun, which has no rank and passes its options on only to its ranks.
    """
    given = {**environ, **_options(argv)} if agent else environ
    ids = [name for name in RUN_ID_VARIABLES if given.get(name, _NO_ID) != _NO_ID]
    return RunIdentity(
        printable(given[ids[0]]) if ids else run_id,
        printable(_first(given, NODE_VARIABLES) or host),
        None if agent else parse_number(_first(given, RANK_VARIABLES)),
        parse_number(_first(given, NODE_COUNT_VARIABLES)),
    )


# What Slurm tells a job of its memory, in MiB, and the count that multiplies it; sbatch sets one of the three. LSF and
# PBS have no documented variable for it: LSF sets resource limits and cgroups, PBS cgroups.
_SLURM_MEMORY = (
    ("SLURM_MEM_PER_NODE", None),
    ("SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"),
    ("SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE"),
)
_SLURM_DAEMON = "slurmstepd"


def scheduler_limit(environ: Mapping[str, str]) -> SchedulerLimit | None:
    """Return the memory that Slurm allows the job on this node; None where it set none, or 0 for all of the node's."""
    for name, count in _SLURM_MEMORY:
        if name in environ:
            each, times = parse_number(environ[name]), 1 if count is None else parse_number(environ.get(count, ""))
            return SchedulerLimit("Slurm", (each * times) << 20) if each and times else None
    return None


def read_scheduler_limit(pid: int, environ: Mapping[str, str], root: str = "/proc") -> SchedulerLimit | None:
    """As scheduler_limit, for a descendant of slurmstepd: elsewhere the variables were inherited from another job."""
    limit = scheduler_limit(environ)
    if limit is None or not any(each.name == _SLURM_DAEMON for each in read_lineage(pid, root)):
        return None
    return limit


def is_wrapper(argv: Sequence[str]) -> bool:
    """Whether a command line is that of a program that runs another one and does not pass a signal on to it."""
    names = [PurePath(word.lstrip("-")).name for word in argv[:2]]
    return bool(names) and (names[0] in _WRAPPERS or (names[0].startswith("python") and names[-1] in _WRAPPERS))


def read_wrapped(wrapper: Target, root: str = "/proc") -> Target | None:
    """Return what a shell or the like runs, of several the process with the most memory: Python in `python a.py | tee`.

    None where the process is no wrapper, or runs nothing.
    """
    waiting, found = [wrapper.pid], list[tuple[int, int]]()
    while waiting:
        pid = waiting.pop()
        if is_wrapper(read_argv(pid, root)):
            waiting += read_children(pid, root)
        elif pid != wrapper.pid:
            words = (_read(f"{root}/{pid}/statm") or b"").split()
            found.append((int(words[1]) if len(words) > 1 else 0, pid))
    with contextlib.suppress(AttachError):
        return identify(max(found)[1], root) if found else None
    return None


def is_torchrun(argv: Sequence[str]) -> bool:
    """Whether a command line is the elastic agent's: `torchrun`, `python -m torch.distributed.run` and the like."""
    for index, word in enumerate(argv[:8]):
        name = PurePath(word).name
        if name == "torchrun" or (word in _TORCHRUN_MODULES and index > 0 and argv[index - 1] == "-m"):
            return True
        if name.endswith(".py"):
            return word.replace("/", ".").removesuffix(".py").endswith(_TORCHRUN_MODULES)
    return False


def _options(argv: Sequence[str]) -> dict[str, str]:
    """Return torchrun's options by the names of its environment variables: `--rdzv-id=7` is PET_RDZV_ID."""
    found: dict[str, str] = {}
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        name = f"PET_{option.lstrip('-').replace('-', '_').upper()}"
        if option.startswith("--") and name in (*RUN_ID_VARIABLES, *NODE_COUNT_VARIABLES):
            found.setdefault(name, value if equals else following)
    return found


def _first(environ: Mapping[str, str], names: Sequence[str]) -> str:
    return next(filter(None, (environ.get(name) for name in names)), "")


def parse_number(text: str) -> int | None:
    """Parse a decimal number of at most 9 digits; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


NAME_LENGTH = 120  # characters of a name that is shown or becomes a label
# trainer-0_training_main-9c0f...64 digits.log: pod, namespace, container
_LOG_LINK = re.compile(r"([^_/]+)_([^_/]+)_([^/]+)-([0-9a-f]{64})\.log")


def read_cgroups(pid: int, root: str = "/proc") -> tuple[str, ...]:
    """Its paths in all hierarchies; empty for a process that has ended."""
    try:
        lines = read_whole(f"{root}/{pid}/cgroup").splitlines()
    except SourceError:
        return ()
    return tuple(os.fsdecode(line.split(b":", 2)[-1]) for line in lines)


def read_workload(cgroups: Sequence[str], environ: Mapping[str, str], host: str = "/") -> Workload:
    """The names that a process with these cgroups and this environment belongs to."""
    found = [parse_cgroup_path(path) for path in cgroups]
    ids = CgroupNames(
        *(next(filter(None, (getattr(one, name) for one in found)), "") for name in CgroupNames.__slots__)
    )
    namespace = pod = container = ""
    if ids.container_id:
        namespace, pod, container = _from_log_link(ids.container_id, host) or ("", "", ids.container_id[:12])
    if ids.pod_uid and not pod:
        namespace, pod = _from_log_folder(ids.pod_uid, host) or (
            environ.get("POD_NAMESPACE", ""),
            environ.get("POD_NAME") or environ.get("HOSTNAME") or ids.pod_uid,
        )
    names = (ids.job or environ.get("SLURM_JOB_ID", ""), namespace, pod, container, ids.unit)
    return Workload(*(printable(name, NAME_LENGTH) for name in names))


def _from_log_link(container_id: str, host: str) -> tuple[str, str, str] | None:
    """Namespace, pod and container, by the name of the link to its log."""
    for path in Path(host, "var/log/containers").glob(f"*-{container_id}.log"):
        named = _LOG_LINK.fullmatch(path.name)
        if named is not None:
            return named[2], named[1], named[3]
    return None


def _from_log_folder(uid: str, host: str) -> tuple[str, str] | None:
    """Namespace and pod, by the name of the folder of its logs: NAMESPACE_POD_UID."""
    for path in Path(host, "var/log/pods").glob(f"*_{uid}"):
        namespace, _, pod = path.name.removesuffix(f"_{uid}").partition("_")
        if pod:
            return namespace, pod
    return None
