"""One log of several is followed, with real files."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from memwatch.core.events import Event, GenerationSeen, SourceChanged
from memwatch.errors import ConfigError, SourceError
from memwatch.sources.log.log_choice import (
    CHECK_SECONDS,
    PATIENCE_SECONDS,
    ChosenLog,
    named_logs,
    require_files,
    require_one_log,
)
from memwatch.sources.log.log_source import LogSource
from support.presets import packaged_presets


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


def write(path: Path, *lines: str, age_seconds: float = 0.0) -> None:
    with path.open("a") as log:
        log.writelines(f"{line}\n" for line in lines)
    written = time.time() - age_seconds
    os.utime(path, (written, written))


def chosen(folder: Path, missing: str = "") -> ChosenLog:
    return ChosenLog(
        lambda: named_logs([f"{folder}/rank*.log"]), lambda path: LogSource(path, packaged_presets()), missing=missing
    )


def polled(log: ChosenLog, now: float) -> list[Event]:
    return list(log.poll(now))


def generations(events: list[Event]) -> list[float]:
    return [event.index for event in events if isinstance(event, GenerationSeen)]


def test_a_folder_is_refused_with_the_logs_in_it(folder: Path) -> None:
    write(folder / "old.log", age_seconds=100)
    write(folder / "new.out")
    (folder / "model.pt").touch()
    with pytest.raises(ConfigError, match="is a folder") as raised:
        require_one_log([str(folder)])
    assert f"{folder}/new.out, {folder}/old.log)" in raised.value.hint and "model.pt" not in raised.value.hint
    require_one_log([str(folder / "old.log"), f"{folder}/*.log"])


def test_standard_input_stands_alone_and_only_beside_a_trainer() -> None:
    require_one_log(["-"])
    for check, paths in ((require_one_log, ["-", "main.log"]), (require_files, ["-"])):
        with pytest.raises(ConfigError, match="standard input"):
            check(paths)


def test_logs_are_ordered_as_given_and_by_number(folder: Path) -> None:
    for name in ("rank10.log", "rank2.log", "other.log", "a[1].log"):
        write(folder / name)
    (folder / "rank3.log").mkdir()
    given = [f"{folder}/other.log", f"{folder}/rank*.log", f"{folder}/rank2.log", f"{folder}/a[1].log", "nowhere.log"]
    assert [path.name for path in named_logs(given)] == ["other.log", "rank2.log", "rank10.log", "a[1].log"]


def test_of_the_ranks_the_first_is_the_clock_and_an_earlier_run_is_not(folder: Path) -> None:
    write(folder / "rank0.log", "Generation 9 / 9", age_seconds=2 * PATIENCE_SECONDS)  # of yesterday
    for rank in (1, 2):
        write(folder / f"rank{rank}.log", "Generation 1 / 9", "Generation 2 / 9")
    log = chosen(folder)
    assert log.path == folder / "rank1.log"
    assert generations(polled(log, 0.0)) == [2]
    write(folder / "rank2.log", "Generation 3 / 9")
    assert generations(polled(log, 1.0)) == []
    log.close()


def test_a_log_that_appears_later_is_followed_and_that_is_told(folder: Path) -> None:
    log = chosen(folder, missing="there is none")
    with pytest.raises(SourceError, match="there is none"):
        polled(log, 0.0)
    write(folder / "rank3.log", "Generation 1 / 9")
    events = polled(log, CHECK_SECONDS)
    assert events[0] == SourceChanged(CHECK_SECONDS, "log", True, f"following {folder}/rank3.log")
    assert generations(events) == [1]
    write(folder / "rank0.log", "Generation 2 / 9")  # a rank that begins later is no reason to change
    assert polled(log, 2 * CHECK_SECONDS) == []
    write(folder / "rank3.log", age_seconds=2 * PATIENCE_SECONDS)  # but one that outlasts it is
    assert generations(polled(log, 3 * CHECK_SECONDS)) == [2]
    assert log.path == folder / "rank0.log"
    log.close()


def test_a_log_without_markers_is_left_for_the_next_one(folder: Path) -> None:
    write(folder / "rank0.log", "ready")
    write(folder / "rank1.log", "ready")
    write(folder / "rank2.log", "Generation 1 / 9", "Generation 2 / 9")  # as where the last stage alone prints
    log, paths = chosen(folder), []
    for number in range(int(PATIENCE_SECONDS / CHECK_SECONDS) + 6):
        polled(log, number * CHECK_SECONDS)
        if log.path not in paths:
            paths.append(log.path)
    assert [path.name for path in paths if path] == ["rank0.log", "rank1.log", "rank2.log"]
    assert log.path == folder / "rank2.log"
    log.close()
