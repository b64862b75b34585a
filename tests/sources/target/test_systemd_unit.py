from __future__ import annotations

from pathlib import Path

import pytest

from memwatch.errors import AttachError, ConfigError, MemwatchError, NoTrainerError
from memwatch.sources.target.systemd_unit import SystemdUnit, parse_unit, read_exit_status, read_unit

SERVICE = b"MainPID=4711\nLoadState=loaded\nActiveState=active\nControlGroup=/system.slice/trainer.service\n"


def test_a_service_has_a_main_process() -> None:
    assert parse_unit("trainer", SERVICE) == SystemdUnit(4711, "/system.slice/trainer.service")


def test_a_scope_and_a_slice_have_a_cgroup_alone() -> None:
    scope = b"LoadState=loaded\nActiveState=active\nControlGroup=/system.slice/run-1.scope\n"
    assert parse_unit("run-1.scope", scope) == SystemdUnit(None, "/system.slice/run-1.scope")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"MainPID=0\nLoadState=loaded\nActiveState=inactive\nControlGroup=\n", "does not run: it is inactive"),
        (b"MainPID=0\nLoadState=loaded\nActiveState=failed\nControlGroup=/a\n", "does not run: it is failed"),
        (b"MainPID=0\nLoadState=not-found\nActiveState=inactive\n", "knows no unit trainer"),
        (b"", "does not run: it is unknown"),
    ],
)
def test_one_that_does_not_run_is_waited_for(answer: bytes, message: str) -> None:
    with pytest.raises(NoTrainerError, match=message) as raised:
        parse_unit("trainer", answer)
    assert raised.value.hint


def test_what_is_no_pid_is_refused() -> None:
    with pytest.raises(AttachError, match="main process '12a'"):
        parse_unit("trainer", SERVICE.replace(b"4711", b"12a"))


def program(folder: Path, script: str) -> str:
    path = folder / "systemctl"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_real_program_is_asked(tmp_path: Path) -> None:
    said = SERVICE.decode()
    assert read_unit("-x", program(tmp_path, f'echo "$@" > {tmp_path}/asked; cat <<E\n{said}E')).main_pid == 4711
    assert (tmp_path / "asked").read_text().endswith("-- -x\n")


@pytest.mark.parametrize(
    ("script", "kind", "message"),
    [
        ("echo 'System has not been booted with systemd' >&2; exit 1", AttachError, "not been booted"),
        ("exit 4", AttachError, "systemctl failed"),
    ],
)
def test_one_that_cannot_answer(tmp_path: Path, script: str, kind: type[MemwatchError], message: str) -> None:
    with pytest.raises(kind, match=message) as raised:
        read_unit("trainer", program(tmp_path, script))
    assert not isinstance(raised.value, NoTrainerError) and raised.value.hint


def test_no_systemd_here() -> None:
    with pytest.raises(ConfigError, match="there is no /nowhere/systemctl here"):
        read_unit("trainer", "/nowhere/systemctl")


def test_one_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(AttachError, match="no answer from systemd"):
        read_unit("trainer", program(tmp_path, "exec sleep 60"), 0.2)


# --- how a service's main process ended -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("ExecMainPID=4711\nExecMainCode=1\nExecMainStatus=130\n", 130),
        ("ExecMainPID=4711\nExecMainCode=2\nExecMainStatus=9\n", -9),
        ("ExecMainPID=4711\nExecMainCode=3\nExecMainStatus=6\n", -6),  # with a core dump
        ("ExecMainPID=4711\nExecMainCode=0\nExecMainStatus=0\n", None),  # it runs
        ("ExecMainPID=4712\nExecMainCode=1\nExecMainStatus=0\n", None),  # started again meanwhile
        ("", None),
    ],
)
def test_how_a_main_process_ended(tmp_path: Path, answer: str, expected: int | None) -> None:
    systemctl = program(tmp_path, f'echo "$@" > {tmp_path}/asked; cat <<E\n{answer}E')
    assert read_exit_status(4711, "/training.slice/trainer@1.service/payload", systemctl) == expected
    assert (tmp_path / "asked").read_text().endswith("-- trainer@1.service\n")


@pytest.mark.parametrize("cgroup", ["/", "", "/user.slice/session-3.scope"])
def test_systemd_is_not_asked_for_what_is_no_service(cgroup: str) -> None:
    assert read_exit_status(4711, cgroup, "/bin/false") is None


def test_a_systemd_that_cannot_answer_is_no_error(tmp_path: Path) -> None:
    for systemctl in ("/nowhere/systemctl", program(tmp_path, "exit 1")):
        assert read_exit_status(4711, "/a.service", systemctl) is None
