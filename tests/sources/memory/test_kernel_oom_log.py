from __future__ import annotations

import math
from dataclasses import astuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memwatch.errors import SourceError
from memwatch.sources.memory.kernel_oom_log import KmsgReader, OomContext, parse_record, require_kernel_pid_namespace
from support.trainers import memory_cgroup, running

MB = 1 << 20
CONTEXT = (
    b"6,812,949115464,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/pod,"
    b"task_memcg=/pod/job,task=python,pid=10788,uid=0\n"
)
KILLED = (
    b"3,813,949115489,-;Memory cgroup out of memory: Killed process 10788 (python) total-vm:217316kB, "
    b"anon-rss:50944kB, file-rss:5780kB, shmem-rss:4kB, UID:0 pgtables:168kB oom_score_adj:0\n"
)
GLOBAL = (
    b"6,900,1000000,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    b"task_memcg=/user.slice,task=python3,pid=77,uid=1000\n"
)


def test_a_kill_at_a_cgroups_limit():
    context = parse_record(CONTEXT)
    assert context == OomContext(10788, "memcg", "/pod")
    kill = parse_record(KILLED, context)
    assert (kill.pid, kill.comm, kill.constraint) == (10788, "python", "memcg")
    assert kill.memcg == "/pod"
    assert kill.rss_bytes == (50944 + 5780 + 4) * 1024
    assert kill.uptime_seconds == pytest.approx(949.115489)


def test_a_kill_for_want_of_host_memory():
    assert parse_record(GLOBAL) == OomContext(77, "host", None)
    kill = parse_record(KILLED.replace(b"Memory cgroup out", b"Out"))
    assert (kill.constraint, kill.memcg) == ("host", None)


def test_an_old_kernels_line_does_not_say_why():
    kill = parse_record(b"3,1,5,-;Killed process 12 (python) total-vm:8kB, anon-rss:4kB, file-rss:0kB\n")
    assert (kill.pid, kill.constraint, kill.rss_bytes) == (12, None, 4096)


def test_a_hostile_name_is_not_taken_for_numbers():
    name = rb"x) total-vm:1kB, anon-rss:1kB, file-rss:1kB\x1b"
    kill = parse_record(KILLED.replace(b"(python)", b"(" + name + b")"))
    assert kill.comm == name.decode()
    assert kill.anon_bytes == 50944 * 1024


def test_what_a_program_wrote_to_the_log_is_not_believed():
    assert parse_record(KILLED.replace(b"3,", b"12,", 1)) is None


def test_other_lines_are_nothing():
    assert parse_record(b"6,1,2,-;EXT4-fs (vda): mounted filesystem\n SUBSYSTEM=block\n") is None


PIECES = [CONTEXT[i : i + 9] for i in range(0, len(CONTEXT), 9)] + [KILLED[i : i + 9] for i in range(0, len(KILLED), 9)]


@given(st.binary() | st.lists(st.sampled_from([*PIECES, CONTEXT, KILLED, b"9" * 30])).map(b"".join))
@example(KILLED.replace(b"50944", b"18446744073709551615"))
@example(KILLED.replace(b"949115489", b"9" * 400))
def test_any_bytes_give_a_finite_record_nothing_or_a_named_error(raw):
    try:
        found = parse_record(raw)
    except SourceError:
        return
    for value in astuple(found) if found else ():
        assert not isinstance(value, int | float) or (math.isfinite(value) and 0 <= value < 2**63)


def test_reading_never_waits_and_begins_at_attach(tmp_path):
    log = tmp_path / "kmsg"
    log.write_bytes(CONTEXT + KILLED)
    reader = KmsgReader(str(log))
    assert reader.read_new_kills(0.0) == ()
    with log.open("ab") as file:
        file.write(KILLED)
    (kill,) = reader.read_new_kills(1.0)
    assert kill.pid == 10788
    reader.close()


def test_a_context_is_joined_to_the_kill_that_follows(tmp_path):
    log = tmp_path / "kmsg"
    log.write_bytes(b"")
    reader = KmsgReader(str(log))
    kills = []
    for record in (CONTEXT, KILLED.replace(b"10788", b"4"), KILLED):
        with log.open("ab") as file:
            file.write(record)
        kills += reader.read_new_kills(0.0)
    assert [(kill.pid, kill.memcg) for kill in kills] == [(4, None), (10788, "/pod")]
    reader.close()


def test_an_unreadable_log_is_said(tmp_path):
    with pytest.raises(SourceError):
        KmsgReader(str(tmp_path / "none"))


@pytest.mark.parametrize("link", ["pid:[4026532281]", None])
def test_where_pids_are_others_the_log_is_not_read(tmp_path, link):
    if link is not None:
        (tmp_path / "self/ns").mkdir(parents=True)
        (tmp_path / "self/ns/pid").symlink_to(link)
    with pytest.raises(SourceError):
        require_kernel_pid_namespace(str(tmp_path))


def test_the_kernels_own_pids_are_those_of_its_log(tmp_path):
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026531836]")
    require_kernel_pid_namespace(str(tmp_path))


@pytest.mark.cgroup
def test_a_real_kill_is_told_by_the_real_kernel():
    try:
        reader = KmsgReader()
        group = memory_cgroup("memwatch-kmsg", 100 * MB)
        with group as directory:
            code = "say('ready')\nsys.stdin.readline()\nx = bytearray(b'x') * (500 * MB)\n"
            with running(code, before=f"echo $$ > {directory}/cgroup.procs") as program:
                assert program.process.stdin is not None
                program.process.stdin.write(b"\n")
                program.process.stdin.flush()
                assert program.process.wait() == -9
            kills = [kill for kill in reader.read_new_kills(0.0) if kill.pid == program.pid]
            reader.close()
    except (OSError, SourceError) as error:
        pytest.skip(f"no memory cgroup, or the kernel's log cannot be read: {error}")
    (kill,) = kills
    assert (kill.constraint, kill.memcg) == ("memcg", f"/{directory.name}")
    assert 50 * MB < kill.anon_bytes <= 100 * MB
    assert kill.comm.startswith("python")
