"""Asks systemctl about a unit: its main process, its cgroup, and how that process ended."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from memwatch.errors import AttachError, ConfigError, NoTrainerError

SYSTEMCTL_TIMEOUT_SECONDS = 5.0  # an answer takes milliseconds, unless systemd is overloaded
_SERVICE = re.compile(r".*/([^/]+\.service)(?:/|$)")


@dataclass(frozen=True, slots=True)
class SystemdUnit:
    """A running unit."""

    main_pid: int | None  # None for a scope or a slice, which has none
    cgroup: str  # from the root of the hierarchy; empty when it has none


def read_unit(name: str, program: str = "systemctl", answer_seconds: float = SYSTEMCTL_TIMEOUT_SECONDS) -> SystemdUnit:
    """Ask systemd for a unit; NoTrainerError when it does not run, AttachError when systemd does not answer."""
    return parse_unit(
        name, _show(name, ("LoadState", "ActiveState", "MainPID", "ControlGroup"), program, answer_seconds)
    )


# LoadState=loaded
# ActiveState=active
# MainPID=4711
# ControlGroup=/system.slice/trainer.service
def parse_unit(name: str, raw: bytes) -> SystemdUnit:
    """Parse the output of `systemctl show`; errors as of `read_unit`."""
    properties = _parse_properties(raw)
    if properties.get("LoadState") == "not-found":
        raise NoTrainerError(f"systemd knows no unit {name}", "systemctl list-units has the names.")
    pid, cgroup = properties.get("MainPID", ""), properties.get("ControlGroup", "")
    if re.fullmatch(r"[0-9]{0,10}", pid) is None:
        raise AttachError(f"unit {name}: systemd calls its main process {pid[:20]!r}", "Try systemctl show by hand.")
    main_pid = int(pid or 0) or None
    state = properties.get("ActiveState") or "unknown"
    if main_pid is None and (not cgroup or state not in ("active", "reloading", "deactivating")):
        raise NoTrainerError(f"unit {name} does not run: it is {state}", "systemctl start starts it.")
    return SystemdUnit(main_pid, cgroup)


def read_exit_status(pid: int, cgroup: str, program: str = "systemctl") -> int | None:
    """Ask how the main process of the service with this cgroup ended: its status, -N for signal N.

    None for a cgroup of no service, for another process, and where systemd does not answer.
    """
    service = _SERVICE.match(cgroup)
    if service is None:
        return None
    try:
        raw = _show(service[1], ("ExecMainPID", "ExecMainCode", "ExecMainStatus"), program, SYSTEMCTL_TIMEOUT_SECONDS)
    except (AttachError, ConfigError):
        return None
    return parse_exit_status(pid, raw)


# ExecMainPID=4711
# ExecMainCode=1
# ExecMainStatus=130
def parse_exit_status(pid: int, raw: bytes) -> int | None:
    """Parse the output of `systemctl show`; None as of `read_exit_status`."""
    properties = _parse_properties(raw)
    code, status = properties.get("ExecMainCode"), properties.get("ExecMainStatus", "")
    if properties.get("ExecMainPID") != str(pid) or re.fullmatch(r"[0-9]{1,3}", status) is None:
        return None
    if code == str(os.CLD_EXITED):
        return int(status)
    return -int(status) if code in (str(os.CLD_KILLED), str(os.CLD_DUMPED)) else None


def _show(name: str, properties: Sequence[str], program: str, answer_seconds: float) -> bytes:
    command = [program, "show", f"--property={','.join(properties)}", "--", name]
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=answer_seconds, check=False
        )
    except FileNotFoundError as error:
        hint = "Name the trainer in another way, as --match REGEX."
        raise ConfigError(f"unit {name}: there is no {program} here", hint) from error
    except OSError as error:
        raise AttachError(f"unit {name}: {program} cannot be run: {error.strerror}", "Try it by hand.") from error
    except subprocess.TimeoutExpired as error:
        text = f"unit {name}: no answer from systemd within {answer_seconds:g} s"
        raise AttachError(text, "Try systemctl by hand.") from error
    if done.returncode:
        message = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0] or f"{program} failed"
        raise AttachError(f"unit {name}: {message}", "Is systemd at work here, and the name right?")
    return done.stdout


def _parse_properties(raw: bytes) -> dict[str, str]:
    lines = (line.partition("=") for line in raw.decode("utf-8", "replace").splitlines())
    return {key: value for key, _, value in lines}
