from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memwatch.errors import AttachError, ConfigError, NoTrainerError
from memwatch.sources.procfs import read_stat
from memwatch.sources.target.find_process import find_trainer_pid, running_trainers
from memwatch.system.python_workers import start_python
from support.processes import WAIT, python, running

FORKS = (
    "import os, time\n"
    "children = []\n"
    "for _ in range(3):\n"
    "    pid = os.fork()\n"
    "    if pid == 0:\n"
    "        time.sleep(60); os._exit(0)\n"
    "    children.append(pid)\n"
    "print('ready', flush=True)\n"
    "try: input()\n"
    "finally:\n"
    "    for pid in children: os.kill(pid, 9)\n"
)


@pytest.fixture
def mark() -> str:
    """A word that no other process has."""
    return f"train-{uuid.uuid4().hex}"


@pytest.fixture
def forking(mark) -> Iterator[subprocess.Popen[str]]:
    """A trainer with three workers of the same command line."""
    child = subprocess.Popen(python(FORKS, mark), stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    child.stdout.readline()
    yield child
    child.communicate("\n")


def test_a_pid_is_taken_as_it_is():
    assert find_trainer_pid(pid=4711) == 4711


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"pid": 3, "match": "x"},
        {"pidfile": "a", "match": "x"},
        {"unit": "a", "cgroup": "/b"},
        {"pid": 3, "unit": "a"},
    ],
)
def test_exactly_one_way(given):
    with pytest.raises(ConfigError):
        find_trainer_pid(**given)


# --- PID files


@pytest.mark.parametrize("content", [b"4711", b"4711\n", b" 4711 \r\n", b"4711\n/var/lib/x\n5432\n"])
def test_pid_files(tmp_path, content):
    (tmp_path / "p").write_bytes(content)
    assert find_trainer_pid(pidfile=str(tmp_path / "p")) == 4711


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n4711", "is empty"),
        (b"pid=4711", "no PID"),
        (b"-5", "no PID"),
        (b"\xff\x00", "no PID"),
        (b"9" * 99, "no PID"),
    ],
)
def test_broken_pid_files(tmp_path, content, message):
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(AttachError, match=message) as raised:
        find_trainer_pid(pidfile=str(tmp_path / "p"))
    assert raised.value.hint


def test_a_missing_pid_file(tmp_path):
    with pytest.raises(AttachError, match="No such file"):
        find_trainer_pid(pidfile=str(tmp_path / "p"))


def test_a_pid_file_that_was_written_before_the_process_began_is_of_another(tmp_path):
    path = tmp_path / "p"
    with running(python(WAIT)) as child:
        path.write_text(str(child.pid))
        assert find_trainer_pid(pidfile=str(path)) == child.pid
        an_hour_ago = time.time() - 3600
        os.utime(path, (an_hour_ago, an_hour_ago))
        with pytest.raises(NoTrainerError, match=f"of an earlier process: {child.pid} began 1 h after") as raised:
            find_trainer_pid(pidfile=str(path))
        assert "touch" in raised.value.hint
        os.utime(path, None)
        assert find_trainer_pid(pidfile=str(path)) == child.pid


# --- match


def test_one_match(mark):
    with running(python(WAIT, mark)) as child:
        assert find_trainer_pid(match=mark) == child.pid


def test_forked_workers_are_their_trainer(mark, forking):
    assert find_trainer_pid(match=mark) == forking.pid


def test_a_shell_around_the_trainer_is_not_the_trainer(mark):
    command = f"'{sys.executable}' -S -c \"{WAIT}\" {mark} & wait"
    with running(["sh", "-c", command]) as shell:
        inner = int(Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text())
        try:
            assert find_trainer_pid(match=mark) == inner
        finally:
            os.kill(inner, 9)


def test_a_runner_with_the_command_in_its_own_is_not_the_trainer(mark):
    code = "import subprocess, sys; p = subprocess.Popen(sys.argv[1:]); sys.stdin.read(); p.kill(); p.wait()"
    with running(python(code, *python(WAIT, mark))) as runner:
        inner = int(Path(f"/proc/{runner.pid}/task/{runner.pid}/children").read_text())
        assert find_trainer_pid(match=mark) == inner
        runner.stdin.close()
        runner.wait(10)


def test_two_matches_are_listed(mark):
    with running(python(WAIT, mark, "--one")) as one, running(python(WAIT, mark, "--two")) as two:
        with pytest.raises(AttachError, match="fits 2 processes") as raised:
            find_trainer_pid(match=mark)
        assert find_trainer_pid(match=f"{mark} --two") == two.pid
    text = str(raised.value)
    for part in (f"pid {one.pid}", f"pid {two.pid}", "rss ", "MB", " ago", "--one"):
        assert part in text


def test_no_match_gives_the_closest(mark):
    with running(python(WAIT, mark)) as child, pytest.raises(AttachError, match="fits no process") as raised:
        find_trainer_pid(match=mark.upper())
    assert "case only" in raised.value.hint
    assert f"pid {child.pid}" in raised.value.hint


def test_memwatch_and_the_shell_around_it_never_match_themselves(mark):
    """A real search in a process whose own words, and its shell's, hold the regex."""
    source = Path(__file__).parents[3] / "watchdog"
    code = (
        f"import sys; sys.path.insert(0, {str(source)!r})\n"
        "from memwatch.sources.target.find_process import find_trainer_pid\n"
        "from memwatch.errors import AttachError\n"
        "try: print(find_trainer_pid(match=sys.argv[1]))\n"
        "except AttachError as error: print('none', error)\n"
    )
    script = f"'{sys.executable}' -c \"$0\" {mark}; true"
    done = subprocess.run(["sh", "-c", script, code], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.startswith("none") and "fits no process" in done.stdout, done.stdout


def test_another_memwatch_is_no_trainer(mark, tmp_path):
    program = tmp_path / "memwatch"
    program.write_text("print('ready', flush=True); import time; time.sleep(60)")
    with running([sys.executable, "-S", str(program), "--match", mark]), pytest.raises(AttachError, match="no process"):
        find_trainer_pid(match=mark)


def test_nor_are_the_helper_processes_of_another_memwatch(mark):
    code = f"from memwatch.system.python_workers import start_python; import time; time.sleep(60)  # {mark}"
    worker = start_python(code, subprocess.DEVNULL)
    try:
        assert worker.pid not in {one.pid for one in running_trainers()}
        with pytest.raises(AttachError, match="no process"):
            find_trainer_pid(match=mark)
    finally:
        worker.kill()
        worker.wait()


def test_those_apart_are_not_meant(mark):
    with running(python(WAIT, mark)) as one, running(python(WAIT, mark)) as two:
        left = (one.pid, read_stat(one.pid).start_ticks)
        assert find_trainer_pid(match=mark, excluded={left}) == two.pid
        assert find_trainer_pid(match=mark, excluded={left, (two.pid, 1)}) == two.pid  # of that number, but another one


# --- cgroups and units


@pytest.fixture
def placed(tmp_path) -> Callable[..., None]:
    """Puts processes into a made-up /proc."""
    (tmp_path / "uptime").write_text("1000.0 2000.0\n")

    def place(pid: int, parent: int, argv: str, cgroup: str) -> None:
        folder = tmp_path / str(pid)
        folder.mkdir()
        numbers = " ".join(["0"] * 17)
        (folder / "stat").write_text(f"{pid} (x) S {parent} {numbers} 500 0 0 " + " ".join(["0"] * 30))
        (folder / "statm").write_text("100 50 10 1 0 20 0")
        (folder / "cmdline").write_bytes(argv.replace(" ", "\0").encode() + b"\0")
        (folder / "cgroup").write_text(cgroup)

    return place


JOB = "/kubepods.slice/pod1.slice/cri-abc.scope"


def test_a_cgroup_means_the_trainer_in_it_or_below(tmp_path, placed):
    placed(10, 1, "tini -- python main.py", f"0::{JOB}\n")
    placed(11, 10, "python main.py", f"0::{JOB}\n")
    placed(12, 11, "python main.py", f"0::{JOB}/workers\n")
    placed(20, 1, "python main.py", f"0::{JOB.replace('pod1', 'pod12')}-other\n")
    for pattern in (JOB, JOB[1:] + "/", "/kubepods.slice/pod1.slice", "*/cri-a??.scope"):
        assert find_trainer_pid(cgroup=pattern, root=str(tmp_path)) == 11, pattern


def test_any_hierarchy_of_version_1_will_do(tmp_path, placed):
    placed(10, 1, "python main.py", "4:memory:/docker/98b3\n1:name=systemd:/docker/98b3\n")
    placed(11, 1, "python other.py", "4:memory:/docker/77\n1:name=systemd:/\n")
    assert find_trainer_pid(cgroup="/docker/98b3", root=str(tmp_path)) == 10


def test_an_empty_cgroup_has_no_trainer_yet(tmp_path, placed):
    placed(10, 1, "python main.py", "0::/elsewhere\n")
    with pytest.raises(NoTrainerError, match="cgroup /job has no process"):
        find_trainer_pid(cgroup="/job", root=str(tmp_path))


def test_a_regex_chooses_among_the_processes_of_a_cgroup(tmp_path, placed):
    placed(10, 1, "sh train.sh", "0::/job\n")
    placed(11, 10, "python main.py", "0::/job\n")
    placed(12, 10, "tee log", "0::/job\n")
    placed(13, 1, "python main.py", "0::/\n")
    with pytest.raises(AttachError, match="cgroup /job fits 2 processes") as raised:
        find_trainer_pid(cgroup="/job", root=str(tmp_path))
    assert "--match" in raised.value.hint and not isinstance(raised.value, NoTrainerError)
    assert find_trainer_pid(cgroup="/job", match="python", root=str(tmp_path)) == 11
    with pytest.raises(NoTrainerError, match="--match 'julia' of cgroup /job fits no process"):
        find_trainer_pid(cgroup="/job", match="julia", root=str(tmp_path))


def test_a_broken_regex_is_a_usage_error():
    with pytest.raises(ConfigError, match="regular expression"):
        find_trainer_pid(match="train(")


def test_hostile_command_lines_are_printed_safely(mark):
    with (
        running(python(WAIT, mark, "\x1b]0;owned\x07")),
        running(python(WAIT, mark)),
        pytest.raises(AttachError) as raised,
    ):
        find_trainer_pid(match=mark)
    assert "\x1b" not in str(raised.value)


# --- the trainers that run


def test_a_family_is_one_trainer_with_the_memory_of_all(forking):
    found = {one.pid: one for one in running_trainers()}
    mine = found[forking.pid]
    assert mine.command.endswith(forking.args[-1])
    assert mine.age_seconds is not None and mine.age_seconds < 60
    workers = [pid for pid in found if read_stat(pid).parent_pid == forking.pid]
    assert not workers
    assert mine.used_bytes > 3_000_000


def test_neither_this_process_nor_a_shell_is_a_trainer():
    with running(("sh", "-c", "echo ready; read line")) as child:
        found = {one.pid for one in running_trainers()}
    assert os.getpid() not in found
    assert child.pid not in found


def test_the_largest_comes_first():
    sizes = [one.used_bytes for one in running_trainers() if not one.gpus]
    assert sizes == sorted(sizes, reverse=True)
