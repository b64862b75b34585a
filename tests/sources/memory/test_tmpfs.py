"""Which tmpfs a trainer can fill, and how full each is: recorded mountinfo lines, and real mounts where root may."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.measurements import TmpfsMemory
from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.memory.tmpfs import TmpfsReader, _Peak, mounts_of_paths, parse_tmpfs_mounts
from support.fakeproc import FakeProc
from support.trainers import Program

MB = 1 << 20
ON_DISK = "29 1 254:0 / / rw,relatime - ext4 /dev/root rw"


def mounts(*lines: str) -> list[tuple[str, str]]:
    found, _ = parse_tmpfs_mounts("\n".join(lines).encode())
    return [(mount.point, f"{os.major(mount.device)}:{os.minor(mount.device)}") for mount in found]


# --- mountinfo


def test_writable_tmpfs_mounts_are_found_dev_shm_first() -> None:
    found = mounts(
        "22 29 0:21 / /proc rw,nosuid - proc proc rw",  # listed before its parent, as after switch_root
        "26 29 0:23 / /run rw,nosuid,nodev shared:5 - tmpfs tmpfs rw,size=2468412k,mode=755",
        ON_DISK,
        "24 29 0:5 / /dev rw,nosuid shared:2 - devtmpfs udev rw,size=12M",
        "25 24 0:27 / /dev/shm rw,nosuid,nodev shared:3 master:1 - tmpfs tmpfs rw",
        "31 29 0:30 / /secret ro,relatime - tmpfs tmpfs rw,size=4k",
        "32 29 0:31 / /frozen rw,relatime - tmpfs tmpfs ro,size=4k",
    )
    assert found == [("/dev/shm", "0:27"), ("/run", "0:23")]


def test_what_lies_under_another_mount_is_out_of_reach() -> None:
    """As in a container whose runtime bind-mounts over its own 64 MB, and as `unshare -m` with a smaller one on top."""
    below, above = "25 29 0:23 / /dev/shm rw - tmpfs tmpfs rw,size=64M", "30 25 0:27 / /dev/shm rw - {} none rw"
    assert mounts(ON_DISK, below, above.format("tmpfs")) == [("/dev/shm", "0:27")]
    assert mounts(above.format("tmpfs"), below, ON_DISK) == [("/dev/shm", "0:27")], "in whatever order they are listed"
    assert mounts(ON_DISK, below, above.format("ext4")) == []


def test_one_tmpfs_in_two_places_counts_once() -> None:
    assert mounts(
        ON_DISK,
        "40 29 0:33 / /kubelet/volumes/shm rw - tmpfs tmpfs rw,size=1g",
        "41 29 0:33 / /dev/shm rw - tmpfs tmpfs rw,size=1g",
    ) == [("/dev/shm", "0:33")]


@pytest.mark.parametrize(
    ("written", "point"),
    [
        (r"/mnt/a\040b", "/mnt/a b"),
        (r"/mnt/a\011b\012c\134d", "/mnt/a\tb\nc\\d"),
        ("/mnt/(x)_-_tmpfs", "/mnt/(x)_-_tmpfs"),
        (r"/mnt/x\040-\040tmpfs", "/mnt/x - tmpfs"),
        ("/mnt/\u00e9\u202e", "/mnt/\u00e9\u202e"),
    ],
)
def test_hostile_names(written: str, point: str) -> None:
    assert mounts(f"50 29 0:50 / {written} rw,relatime shared:9 - tmpfs none rw,size=1024k") == [(point, "0:50")]


@given(st.binary(max_size=300) | st.text(alphabet="0123456789: /-rwtmpfs\n\\4", max_size=300).map(str.encode))
def test_any_bytes_are_parsed(raw: bytes) -> None:
    found, points = parse_tmpfs_mounts(raw)
    assert {mount.point for mount in found} <= set(points)


def test_a_path_lies_on_the_innermost_mount() -> None:
    points = ("/", "/tmp", "/tmp/a", "/dev/shm")
    paths = ("/tmp/x/y (deleted)", "/tmp/a", "/dev/shmem", "pipe:[7]", "", "/dev/shm/psm_1")
    assert mounts_of_paths(points, paths) >= {"/tmp", "/tmp/a", "/", "/dev/shm"}
    assert mounts_of_paths(points, paths[2:5]).isdisjoint({"/tmp", "/tmp/a", "/dev/shm"})


# --- the reader


def test_a_peak_counts_for_ten_minutes_and_small_changes_of_it_do_not() -> None:
    peak = _Peak()
    told = {t: peak.add_sample(float(t), used, 1000) for t, used in ((0, 300), (1, 900), (2, 905), (3, 911), (4, 20))}
    assert told == {0: 300, 1: 900, 2: 900, 3: 911, 4: 911}
    assert peak.add_sample(603.0, 30, 1000) == 911
    assert peak.add_sample(603.1, 30, 1000) == 30
    assert peak.add_sample(700.0, 990, 1000) == 990


def test_a_zombie_is_gone_and_a_failure_lasts_until_the_next_look(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path / "proc")
    fake.process(7)
    reader = TmpfsReader(7, lambda: (7,), {}, str(fake))
    with pytest.raises(TargetGoneError):  # no mountinfo: it has ended
        TmpfsReader(8, lambda: (8,), {}, str(fake)).read_memory(0.0)
    fake.write("7/mountinfo", "25 24 250:250 / /dev/shm rw - tmpfs tmpfs rw\n")
    for now in (0.0, 1.0, 59.0):
        with pytest.raises(SourceError, match="/dev/shm of process 7 cannot be reached") as raised:
            reader.read_memory(now)
        assert not isinstance(raised.value, TargetGoneError) and raised.value.hint
    fake.write("7/mountinfo", "")
    assert reader.read_memory(61.0) == ()


# Waits for a line, does the next step, says so.
STEPS = """
import mmap
def fill(name, megabytes):
    with open(name, "wb") as file: file.write(bytes(megabytes * MB))
def steps():
    yield
    fill("/dev/shm/a", 10); yield
    fill("/dev/shm/b", 30); yield
    os.remove("/dev/shm/b"); yield
    fill("/mnt/mapped", 5)
    with open("/mnt/mapped", "r+b") as file: mapped = mmap.mmap(file.fileno(), 0)
    os.closerange(3, 64); yield  # a mapping in Python has a descriptor of its own
    for i in range(60): open(f"/dev/shm/{i}", "w").close()
    yield
for _ in steps():
    say("done")
    sys.stdin.readline()
"""
MOUNTS = (
    "mount -t tmpfs -o size=64m,nr_inodes=64 tmpfs /dev/shm && mount -t tmpfs -o size=8m tmpfs /mnt && "
    "mkdir /mnt/idle && mount -t tmpfs -o size=4m tmpfs /mnt/idle || exit 1\n"
)


@pytest.fixture
def contained() -> Iterator[Program]:
    """A program in a mount namespace with small tmpfs of its own."""
    command = ["unshare", "-m", "true"]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("takes root, for mounts in a namespace")
    inside = f'unshare -m --propagation private sh -c \'{MOUNTS} exec "$0" -c "$1"\' "$0" "$1"'
    again = f'if [ -z "$THERE" ]; then THERE=1 exec {inside}; fi'
    program = Program(STEPS, again)
    try:
        program.await_lines()
        yield program
    finally:
        program.kill()


def test_a_small_tmpfs_in_a_namespace_of_its_own_is_read_from_outside(contained: Program) -> None:
    reader = TmpfsReader(contained.pid, lambda: (contained.pid,), {})
    assert reader.read_memory(0.0) == (), "nobody writes to it"
    contained.step()
    assert reader.read_memory(1.0) == (TmpfsMemory("/dev/shm", 10 * MB, 10 * MB, 64 * MB),)
    contained.step()
    assert reader.read_memory(2.0) == (TmpfsMemory("/dev/shm", 40 * MB, 40 * MB, 64 * MB),)
    contained.step()
    assert reader.read_memory(3.0) == (TmpfsMemory("/dev/shm", 10 * MB, 40 * MB, 64 * MB),), "its peak must fit"
    contained.step()
    assert [one.resource for one in reader.read_memory(6.0)] == ["/dev/shm"]
    _, mnt = reader.read_memory(66.0)  # looks for what is open and mapped
    assert mnt == TmpfsMemory("/mnt", 5 * MB, 5 * MB, 8 * MB)
    contained.step()
    shm, _ = reader.read_memory(620.0)
    assert shm.used_bytes == 62 * MB, "of 64 inodes 62 are taken: the folder's, a's and 60 more"
    assert shm.peak_bytes == 62 * MB
    assert not Path("/dev/shm/a").exists()
    contained.kill()
    with pytest.raises(TargetGoneError):
        reader.read_memory(900.0)


def test_a_mount_that_is_gone_is_left_out(contained: Program) -> None:
    reader = TmpfsReader(contained.pid, lambda: (contained.pid,), {"TMPDIR": "/mnt/idle"})
    reader.read_memory(0.0)
    assert {mount.point for mount in reader._paths} == {"/dev/shm", "/mnt/idle"}
    inside = ("nsenter", "-m", "-t", str(contained.pid))
    subprocess.run(
        [*inside, "dd", "if=/dev/zero", "of=/mnt/idle/x", "bs=1M", "count=1"], check=True, capture_output=True
    )
    assert reader.read_memory(1.0) == (TmpfsMemory("/mnt/idle", 1 * MB, 1 * MB, 4 * MB),)
    subprocess.run([*inside, "umount", "/mnt/idle"], check=True)  # nothing of memwatch's holds it
    assert reader.read_memory(2.0) == ()
