"""The hook, as real processes: what it is given, and what it may do without harm to the loop."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from memwatch.actions.interrupt_hook import (
    FACTS,
    SYSTEM,
    Hook,
    fill_placeholders,
    find_program,
    hook_environ,
    placeholders,
)
from memwatch.core.events import HookRan
from memwatch.errors import ConfigError, SourceError
from support.freezer import frozen
from support.mainjob import until

GIVEN = dict.fromkeys(FACTS, "") | {"run_id": "4711", "node": "node-a", "signal": "SIGINT", "sentence": "OOM in 5 m"}
Make = Callable[..., Hook]


@pytest.fixture
def make() -> Iterator[Make]:
    """A hook of these words; what it left running is ended."""
    made: list[Hook] = []

    def hook(*words: str, seconds: float = 10.0, environ: dict[str, str] | None = None, **variables: str) -> Hook:
        made.append(Hook(words, environ or SYSTEM, variables, seconds=seconds, now=time.monotonic))
        return made[-1]

    yield hook
    for one in made:
        one.close()


def shell(make: Make, script: str, **options: float) -> Hook:
    return make("sh", "-c", script.replace("{", "{{").replace("}", "}}"), **options)


def outcome(hook: Hook, facts: dict[str, str] = GIVEN) -> HookRan:
    """Of a hook that is started now."""
    hook.start(time.monotonic(), facts)
    [ran] = hook.wait_until_ended(lambda: False)
    return ran


# --- what it is given -----------------------------------------------------------------------------------------------


def test_its_words_and_its_environment_are_the_facts_and_nothing_else(make: Make, tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = f'env -0 > {told}; printf "%s\\n" "$@"'
    hook = make("sh", "-c", script, "sh", "--job={run_id}", "{{{node}}}", "{SLURM_JOB_ID}.0", SLURM_JOB_ID="17")
    ran = outcome(hook)
    assert (ran.status, ran.error, ran.output) == (0, "", "--job=4711")
    assert ran.command.endswith("sh --job=4711 '{node-a}' 17.0")
    found = dict(entry.split("=", 1) for entry in told.read_text().split("\0") if entry)
    for name in ("PWD", "SHLVL", "OLDPWD", "_"):  # of the shell's own making
        found.pop(name, None)
    assert found == SYSTEM | {f"MEMWATCH_{name.upper()}": value for name, value in GIVEN.items()}


def test_names_of_memwatch_s_own_environment_are_passed_on_and_may_replace_the_path(make: Make) -> None:
    environ = hook_environ(["KUBECONFIG", "PATH", "NOT_SET"], {"KUBECONFIG": "/etc/k", "PATH": "/bin", "SECRET": "x"})
    assert environ == {"PATH": "/bin", "LANG": "C.UTF-8", "KUBECONFIG": "/etc/k"}
    assert outcome(make("sh", "-c", "echo $KUBECONFIG$SECRET", environ=environ)).output == "/etc/k"


def test_it_has_a_session_of_its_own_no_descriptors_no_input_and_default_signals(make: Make) -> None:
    leaked = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(leaked, True)
    ignored = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        status = "[line.split()[1] for line in open('/proc/self/status') if line[:6] in ('SigIgn', 'SigBlk')]"
        inherited = f"os.path.exists('/proc/self/fd/{leaked}')"
        code = f"[os.getsid(0) == os.getpid(), {inherited}, os.read(0, 1).decode(), {status}]"
        ran = outcome(make(sys.executable, "-I", "-S", "-c", f"import json, os; print(json.dumps({code}))"))
    finally:
        os.close(leaked)
        signal.signal(signal.SIGUSR1, ignored)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
    own_session, has_leaked, read, (blocked, ignores) = json.loads(ran.output)
    assert (own_session, has_leaked, read) == (True, False, "")
    of_python_and_libc = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1 | 3 << 31  # 32 and 33 are for its threads
    assert int(blocked, 16) == 0 and int(ignores, 16) & ~of_python_and_libc == 0


@pytest.mark.parametrize(
    "word", ["{user}", "{run_id!r}", "{run_id:>9}", "{run_id.x}", "{}", "a{", "b}", "{0}", "{pAth}"]
)
def test_what_will_never_be_known_is_refused(word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        list(placeholders(word))
    assert "run_id" in caught.value.hint


def test_braces_are_written_twice() -> None:
    assert fill_placeholders("-o=jsonpath={{.items[0].{node}}}", {"node": "a"}) == "-o=jsonpath={.items[0].a}"


def test_a_variable_that_the_trainer_lacks_is_refused(make: Make) -> None:
    with pytest.raises(ConfigError, match="wants SLURM_JOB_ID"):
        make("true", "{SLURM_JOB_ID}")


def test_a_program_that_is_not_there_or_may_not_be_executed_is_refused(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    for word in ("no-such-program", str(plain), str(tmp_path), "./nowhere"):
        with pytest.raises(ConfigError) as caught:
            find_program(word, SYSTEM)
        assert "whole path" in caught.value.hint


# --- what it may do -------------------------------------------------------------------------------------------------


def test_one_that_fails_is_told_with_the_first_line_of_what_it_said(make: Make) -> None:
    ran = outcome(shell(make, "echo; printf '\\033[31merror: no\\033[0m job\\n' >&2; echo more; exit 3"))
    assert (ran.status, ran.error, ran.output) == (3, "status 3", "error: no job")


def test_one_that_is_killed_is_told(make: Make) -> None:
    ran = outcome(shell(make, "kill -9 $$"))
    assert (ran.status, ran.error) == (None, "ended by SIGKILL")


def test_one_that_falls_to_the_signal_that_it_brought_about_has_done_so(make: Make) -> None:
    """As scancel does within the job that it signals, where Slurm signals every process."""
    ran = outcome(shell(make, "kill -INT $$; sleep 5"))
    assert (ran.status, ran.error) == (None, "")


def test_one_that_hangs_is_killed_with_all_that_it_started(make: Make, tmp_path: Path) -> None:
    child = tmp_path / "child"
    ran = outcome(shell(make, f"sleep 600 & echo $! > {child}; wait", seconds=0.5))
    assert ran.error == "it took more than 0.5 s and was killed" and ran.status is None
    assert 0.5 <= ran.seconds < 5
    until(lambda: not alive(int(child.read_text())))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_one_that_prints_without_end_holds_nobody_and_is_killed(make: Make) -> None:
    hook = make("yes", "x" * 100, seconds=1.0)
    hook.start(time.monotonic(), GIVEN)
    longest, before = 0.0, Path("/proc/self/statm").read_text().split()[1]
    ran: Sequence[HookRan] = ()
    while not ran:
        began = time.monotonic()
        ran = hook.poll(began)
        longest = max(longest, time.monotonic() - began)
    after = Path("/proc/self/statm").read_text().split()[1]
    assert "was killed" in ran[0].error and ran[0].output == "x" * 100
    assert longest < 0.5 and (int(after) - int(before)) * 4096 < 16 << 20


def test_one_that_prints_a_megabyte_at_once_does_not_wait_to_be_heard(make: Make) -> None:
    hook = shell(make, "head -c 1000000 /dev/zero")
    hook.start(time.monotonic(), GIVEN)
    time.sleep(1.0)  # nobody listens
    [ran] = hook.poll(time.monotonic())
    assert ran.error == ""


def test_one_that_closes_its_output_is_waited_for(make: Make) -> None:
    ran = outcome(shell(make, "exec >&- 2>&-; sleep 0.3; exit 4"))
    assert ran.status == 4 and ran.seconds >= 0.3


def test_what_it_leaves_in_the_background_is_not_waited_for_nor_ended(make: Make, tmp_path: Path) -> None:
    child = tmp_path / "child"
    ran = outcome(shell(make, f"sleep 600 >/dev/null & echo $! > {child}"))
    pid = int(child.read_text())
    try:
        assert ran.error == "" and ran.seconds < 5 and alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_one_that_not_even_a_kill_ends_is_left_behind_and_reaped_later(make: Make, tmp_path: Path) -> None:
    own = tmp_path / "own"
    hook = shell(make, f"echo $$ > {own}; exec sleep 600", seconds=0.5)
    with frozen("hook") as freeze:
        hook.start(time.monotonic(), GIVEN)
        until(lambda: own.exists() and own.read_text())
        freeze(pid := int(own.read_text()))
        [ran] = hook.wait_until_ended(lambda: False)
        assert "was killed" in ran.error and alive(pid)
        hook.start(time.monotonic(), GIVEN)  # another interrupt has its hook
    until(lambda: (hook.poll(time.monotonic()), not Path(f"/proc/{pid}").exists())[1])


def test_there_is_one_at_a_time(make: Make) -> None:
    hook = shell(make, "sleep 600", seconds=0.5)
    hook.start(time.monotonic(), GIVEN)
    with pytest.raises(SourceError, match="still runs"):
        hook.start(time.monotonic(), GIVEN)


def test_nobody_waits_for_it_who_is_told_to_stop(make: Make) -> None:
    hook = shell(make, "sleep 600", seconds=60)
    hook.start(time.monotonic(), GIVEN)
    assert hook.wait_until_ended(lambda: True) == ()


def test_a_program_that_went_away_is_told(make: Make, tmp_path: Path) -> None:
    program = tmp_path / "stop-job"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    hook = make(str(program))
    program.unlink()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(SourceError, match="No such file"):
        hook.start(time.monotonic(), GIVEN)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_no_descriptor_left_is_told(make: Make) -> None:
    hook = make("true")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(SourceError, match="Too many open files"):
            hook.start(time.monotonic(), GIVEN)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


REFUSED = """
import os, resource, time
from memwatch.actions.interrupt_hook import FACTS, SYSTEM, Hook
from memwatch.errors import SourceError
hook = Hook(("true",), SYSTEM, {}, now=time.monotonic)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
os.setuid(65534)
try:
    hook.start(0.0, dict.fromkeys(FACTS, ""))
except SourceError as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to become a user whose processes are counted")
def test_a_fork_that_is_refused_is_told() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REFUSED],
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "could not be started: Resource temporarily unavailable" in done.stdout, done.stderr
