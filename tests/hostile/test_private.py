"""What memwatch keeps is for its own user: folders 0700, files 0600, no link followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from memwatch.app.launched_trainer import LaunchedTrainer
from memwatch.cli.examination_commands import save_process_snapshot
from memwatch.core.examination import Examination
from memwatch.core.leaks.process_snapshot import ProcessSnapshot
from memwatch.core.measurements import Sample, Target
from memwatch.errors import AttachError, ConfigError, HistoryError
from memwatch.history.event_store import HistoryStore
from memwatch.system import private_files

NOBODY = 65534
INSPECTION = ProcessSnapshot("now", 1.0, Target("boot", 1, 1), "python", Sample(()), Examination(None))
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to have two users")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_folders_that_are_made_are_closed_to_others_all_the_way(tmp_path: Path) -> None:
    private_files.ensure_private_dir(tmp_path / "local" / "memwatch" / "runs")
    assert [mode(tmp_path / name) for name in ("local", "local/memwatch", "local/memwatch/runs")] == [0o700] * 3


def test_a_folder_that_is_open_is_closed_unless_it_is_shared_on_purpose(tmp_path: Path) -> None:
    for before, after in ((0o755, 0o700), (0o770, 0o700), (0o1777, 0o1777)):
        tmp_path.chmod(before)
        private_files.ensure_private_dir(tmp_path)
        assert mode(tmp_path) == after


@as_root
def test_another_users_folder_and_another_users_link_are_refused(tmp_path: Path) -> None:
    theirs, link = tmp_path / "theirs", tmp_path / "link"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    link.symlink_to(tmp_path)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    for path in (theirs, link):
        with pytest.raises(PermissionError, match="another user's"):
            private_files.ensure_private_dir(path)


def written(path: Path) -> None:
    HistoryStore.open(path).close()


def started(path: Path) -> None:
    LaunchedTrainer(["true"], path).terminate()


def kept(path: Path) -> None:
    save_process_snapshot(INSPECTION, path, {})


WRITERS = [(written, HistoryError), (started, AttachError), (kept, ConfigError)]


@pytest.mark.parametrize(("write", "refusal"), WRITERS)
def test_a_file_is_its_users_alone_and_a_link_in_its_place_is_not_followed(
    tmp_path: Path, write: Callable[[Path], None], refusal: type[Exception]
) -> None:
    path, victim = tmp_path / "state" / "file", tmp_path / "victim"
    path.parent.mkdir(0o700)
    before = os.umask(0)  # nothing rests on the user's
    try:
        write(path)
        assert {mode(file) for file in path.parent.iterdir()} == {0o600}
        path.unlink()
        victim.write_text("mine")
        for aim in (victim, tmp_path / "not there yet"):
            path.symlink_to(aim)
            with pytest.raises(refusal):
                write(path)
            path.unlink()
    finally:
        os.umask(before)
    assert victim.read_text() == "mine" and not (tmp_path / "not there yet").exists()


@pytest.mark.parametrize("beside", ["-wal", "-shm"])
def test_no_link_beside_the_history_is_followed(tmp_path: Path, beside: str) -> None:
    (tmp_path / f"history.db{beside}").symlink_to(tmp_path / "victim")
    with pytest.raises(HistoryError, match="symbolic link"):
        HistoryStore.open(tmp_path / "history.db")
    assert not (tmp_path / "victim").exists()


def test_a_page_is_not_written_through_a_link_that_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / f".report.html.{os.getpid()}").symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigError), private_files.atomic_writer(tmp_path / "report.html", "-o", [".html"]) as write:
        write("page")
    assert not (tmp_path / "victim").exists()
