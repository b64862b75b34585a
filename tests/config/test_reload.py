"""A configuration file that changes, breaks and is mended."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwatch.config.load import load_config
from memwatch.config.reload import FILE_CHECK_SECONDS, ReloadableConfig
from memwatch.errors import ConfigError, SourceError


class File:
    """A configuration file and who follows it."""

    def __init__(self, path: Path) -> None:
        self.path, self.now, self.reads = path, 100.0, 0
        self.write("policy: {confidence: 0.9}")
        self.settings = ReloadableConfig(self.read, path)

    def write(self, text: str) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.path)

    def read(self):
        self.reads += 1
        return load_config(self.path)

    def look(self) -> bool:
        """A look, a while later: whether it was read again."""
        self.now += FILE_CHECK_SECONDS
        due = self.settings.should_reload(self.now)
        if due:
            self.settings.reload()
        return due

    def problem(self) -> str:
        try:
            self.settings.poll(self.now)
        except SourceError as error:
            return str(error)
        return ""


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "x.yaml")


def test_one_that_stays_is_read_once(file: File) -> None:
    assert not any(file.look() for _ in range(10))
    assert file.reads == 1 and file.settings.pending is None and not file.problem()


def test_one_that_changes_is_there_to_be_adopted(file: File) -> None:
    file.write("policy: {confidence: 0.95}")
    assert file.look()
    assert file.settings.config.policy.confidence == 0.9
    assert file.settings.pending.policy.confidence == 0.95
    file.settings.apply_pending()
    assert file.settings.config.policy.confidence == 0.95 and file.settings.pending is None
    assert not file.look()


def test_it_is_looked_at_now_and_then(file: File) -> None:
    file.look()
    file.write("policy: {confidence: 0.95}")
    assert not file.settings.should_reload(file.now + 0.5 * FILE_CHECK_SECONDS)
    assert file.settings.should_reload(file.now + FILE_CHECK_SECONDS)


def test_a_broken_one_is_refused_with_the_reason_until_it_is_mended(file: File) -> None:
    file.write("policy:\n  confidence: 7")
    assert file.look()
    assert file.settings.pending is None and file.settings.config.policy.confidence == 0.9
    assert f"{file.path}:2: policy.confidence is 7" in file.problem()
    assert "the previous configuration stays in force" in file.problem()
    assert not file.look() and file.problem()  # told as long as it is so, read once
    file.write("policy: {confidence: 0.8}")
    file.look()
    assert not file.problem() and file.settings.pending.policy.confidence == 0.8


def test_all_that_is_wrong_is_told(file: File) -> None:
    file.write("policy: {confidence: 7}\nlog: {marker: x}")
    file.look()
    assert "policy.confidence is 7" in file.problem() and "did you mean markers?" in file.problem()


def test_a_broken_one_that_goes_back_to_what_it_was_changes_nothing(file: File) -> None:
    file.write("policy: [")
    file.look()
    file.write("policy: {confidence: 0.9}  # as before")
    file.look()
    assert not file.problem() and file.settings.pending is None


def test_one_that_is_gone_is_refused_too(file: File) -> None:
    file.path.unlink()
    assert file.look() and "No such file" in file.problem()
    assert not file.look()
    file.write("policy: {confidence: 0.9}")
    assert file.look() and not file.problem()


def test_whoever_asks_has_it_read_at_once_changed_or_not(file: File) -> None:
    file.look()
    file.settings.request_reload()
    assert file.settings.should_reload(file.now)
    assert file.settings.reload() and file.settings.pending is None and file.reads == 2
    assert not file.settings.should_reload(file.now)


def test_a_link_that_leads_elsewhere_is_a_change(tmp_path: Path) -> None:
    """As Kubernetes changes a ConfigMap: all links stay, one folder behind them is another."""
    for name, confidence in (("one", 0.9), ("two", 0.95)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.yaml").write_text(f"policy: {{confidence: {confidence}}}")
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "x.yaml").symlink_to("..data/x.yaml")
    settings = ReloadableConfig(lambda: load_config(tmp_path / "x.yaml"), tmp_path / "x.yaml")
    (tmp_path / "..new").symlink_to("two")
    (tmp_path / "..new").replace(tmp_path / "..data")
    assert settings.should_reload(FILE_CHECK_SECONDS) and settings.reload()
    assert settings.pending.policy.confidence == 0.95


def test_what_cannot_be_had_after_all_leaves_the_old_one(file: File) -> None:
    file.write("listen: '127.0.0.1:1'")
    file.look()
    file.settings.reject_pending(ConfigError("cannot listen on 127.0.0.1:1", "choose another"))
    assert file.settings.pending is None and "cannot listen on 127.0.0.1:1 (choose another)" in file.problem()


def test_the_first_one_must_be_right(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        ReloadableConfig(lambda: load_config(tmp_path / "none.yaml"), tmp_path / "none.yaml")


def test_without_a_file_there_is_nothing_to_look_at() -> None:
    settings = ReloadableConfig(load_config, None)
    assert not settings.should_reload(100.0)
    settings.request_reload()
    assert settings.should_reload(100.0) and settings.reload() and settings.pending is None
