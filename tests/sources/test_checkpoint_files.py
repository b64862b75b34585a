from __future__ import annotations

import gzip
import io
import os
import pickle
import sqlite3
import time
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from memwatch.sources import checkpoint_files as files
from support.processes import READY, WAIT, python, running


def zip_bytes() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data", os.urandom(3000))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "path",
    [
        "model.pt",
        "lightning_logs/version_0/checkpoints/epoch=3-step=99.bin",
        "out/checkpoint-100/rng",
        "out-shakespeare/ckpt.pt",
        "weights.npz",
        "word2vec-3.model",
        "saved/a",
        "best.zip",
        "save_3",
    ],
)
def test_names_that_tell_a_first_save(path):
    assert files.name_suggests_checkpoint(f"/runs/models/a/{path}", "/runs/models/a")


@pytest.mark.parametrize("path", ["main.log", "out/figure", "events.out.tfevents.1", "safe.bin", "data/train.bin"])
def test_names_that_tell_nothing(path):
    assert not files.name_suggests_checkpoint(f"/runs/models/a/{path}", "/runs/models/a")


@pytest.mark.parametrize(
    "name", ["checkpoint" + "a" * 240 + "!", "ckpt" + "_a" * 120 + "!", "a.ckpt" * 40 + "!", ".pt" * 80]
)
def test_no_name_takes_long_to_look_at(name: str) -> None:
    begun = time.thread_time()
    files.name_suggests_checkpoint(name)
    files.is_temporary(name)
    files.skeleton(name)
    assert time.thread_time() - begun < 0.01


@pytest.mark.parametrize("path", ["/a/x.tmp", "/a/x.tmp.471", "/a/tmp-checkpoint-3/m.pt", "/a/.m.pt~", "/a/3.partial"])
def test_temporary_names(path):
    assert files.is_temporary(path)


@pytest.mark.parametrize("path", ["/tmp/tmp_8x1/model.pt", "/tmp/model.pt", "/a/attempt.pt"])
def test_other_names_are_final(path):
    assert not files.is_temporary(path)


@pytest.mark.parametrize(
    "path",
    ["/proc/1/x", "/sys/x", "/dev/nvidia0", "/memfd:x", "/a/__pycache__/b", "/a/.cache/b", "/a/b (deleted)", "x"],
)
def test_where_no_checkpoint_is(path):
    assert not files.may_be_checkpoint(path)


def test_shared_memory_may_hold_one():
    assert files.may_be_checkpoint("/dev/shm/ckpt.pt")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (zip_bytes(), "serialized"),
        (pickle.dumps([1]), "serialized"),
        (gzip.compress(b"x", mtime=0), "serialized"),
        (b"\x93NUMPY\x01\x00v\x00{'descr'", "serialized"),
        (b"\x89HDF\r\n\x1a\n", "serialized"),
        (b'\x40\x00\x00\x00\x00\x00\x00\x00{"w":{"dtype":"F32"}}', "serialized"),
        (b"{L\x00\x00\x00\x00\x00\x00\x00\x07learner", "serialized"),
        (b"tree\nversion=v4\n", "lines"),
        (b'{"learner":{}}', "text"),
        ("epoch,loss\n1,0.5 µ\n".encode(), "lines"),
        (b"\x89PNG\r\n", "other"),
        (b"SQLite format 3\x00", "other"),
        (b"\x01\x02\x03", ""),
        (b"", ""),
    ],
)
def test_the_kind_of_a_content(tmp_path, content, kind):
    (tmp_path / "a").write_bytes(content)
    assert files.content_kind(str(tmp_path / "a")) == kind


def test_a_zip_without_its_end_was_cut_off(tmp_path):
    whole, cut = tmp_path / "a.pt", tmp_path / "b.pt"
    whole.write_bytes(zip_bytes())
    cut.write_bytes(zip_bytes()[:677])
    assert files.is_whole(str(whole))
    assert not files.is_whole(str(cut))
    assert not files.is_whole(str(tmp_path / "none.pt"))


def test_what_a_process_has_open_for_writing(tmp_path):
    code = "a, b, c = open('a', 'wb'), open('b', 'ab'), open('/dev/null', 'wb'); a.write(b'12345'); a.flush(); "
    (tmp_path / "c").touch()
    with running(python(code + READY + "d = open('c'); " + WAIT), cwd=tmp_path) as child:
        assert child.stdout.readline()
        ignored: set[str] = set()
        found = files.open_files(f"/proc/{child.pid}", ignored)
    assert list(found.values()) == [files.OpenFile(str(tmp_path / "a"), 5, 5)]
    assert ignored, "its stdin and stdout"


# --- folders ----------------------------------------------------------------------------------------------------------


def found(walk: files.FolderWalk, root: Path, depth: int | None = None) -> list[str]:
    return sorted(os.path.relpath(path, root) for path in walk.files([str(root)], depth))


def test_files_at_any_depth_without_hidden_ones_caches_and_virtual_environments(tmp_path):
    wanted = ["a", "b/c", "b/d/e/f/g.pt", "there/h"]
    others = [".h", ".i/j", "__pycache__/k", "b/node_modules/l", "env/pyvenv.cfg", "env/lib/m"]
    for name in (*wanted[:3], *others, "elsewhere/h"):
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).touch()
    (tmp_path / "run/elsewhere").rename(tmp_path / "elsewhere")
    (tmp_path / "run/there").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "run/b/loop").symlink_to(tmp_path / "run")
    walk = files.FolderWalk()
    assert found(walk, tmp_path / "run") == sorted(wanted)
    assert found(walk, tmp_path / "run", 0) == ["a"]
    assert found(walk, tmp_path / "none") == []


def test_a_walk_is_bounded(tmp_path):
    each = files.MANY_ENTRIES // 2
    for number in range(files.FILES_MAX // each + 5):
        (tmp_path / f"{number}").mkdir()
        for name in range(each):
            (tmp_path / f"{number}/{name}").touch()
    assert len(found(files.FolderWalk(), tmp_path)) == files.FILES_MAX


def test_of_a_data_set_only_new_files_and_telling_names_are_read(tmp_path):
    for number in range(files.MANY_ENTRIES + 1):
        (tmp_path / f"{number}.jpg").touch()
    (tmp_path / "model.pt").touch()
    os.utime(tmp_path, (1.0, 1.0))
    walk = files.FolderWalk()
    assert found(walk, tmp_path) == ["model.pt"]
    (tmp_path / "state").touch()
    assert found(walk, tmp_path) == ["model.pt", "state"]


def test_a_folder_that_has_not_changed_is_not_listed_again(tmp_path):
    walk = files.FolderWalk()

    def found_after(name: str, changed_t: float) -> list[str]:
        (tmp_path / name).touch()
        os.utime(tmp_path, (changed_t, changed_t))
        return found(walk, tmp_path)

    now = time.time()
    assert found_after("a.pt", now - 60.0) == ["a.pt"]
    assert found_after("b.pt", now - 60.0) == ["a.pt"], "as far as its time says nothing has changed"
    assert found_after("c.pt", now - 50.0) == ["a.pt", "b.pt", "c.pt"]
    assert found_after("d.pt", now) == ["a.pt", "b.pt", "c.pt", "d.pt"]
    assert len(found_after("e.pt", now)) == 5, "just changed, it may change again within the same tick"


def test_none_of_the_files_of_a_database_in_use_is_a_checkpoint(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "study.db")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE trials (value)")
        database.commit()
        assert {path.name for path in tmp_path.iterdir()} == {"study.db", "study.db-wal", "study.db-shm"}
        assert {files.content_kind(str(path)) for path in tmp_path.iterdir()} == {"other"}
