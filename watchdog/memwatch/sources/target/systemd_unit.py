"""A unit of systemd's, as systemctl tells of it: its main process and its cgroup."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from memwatch.errors import AttachError, ConfigError, NoTrainerError

SYSTEMCTL_TIMEOUT_SECONDS = 5.0  # an answer takes milliseconds, unless systemd is overloaded
_PROPERTIES = ("LoadState", "ActiveState", "MainPID", "ControlGroup")


@dataclass(frozen=True, slots=True)
class SystemdUnit:
    """A running unit."""

    main_pid: int | None  # None for a scope or a slice, which has none
    cgroup: str  # from the root of the hierarchy; empty when it has none


def read_unit(name: str, program: str = "systemctl", answer_seconds: float = SYSTEMCTL_TIMEOUT_SECONDS) -> SystemdUnit:
    """Ask systemd for a unit; NoTrainerError when it does not run, AttachError when systemd does not answer."""
    command = [program, "show", f"--property={','.join(_PROPERTIES)}", "--", name]
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
    return parse_unit(name, done.stdout)


# LoadState=loaded
# ActiveState=active
# MainPID=4711
# ControlGroup=/system.slice/trainer.service
def parse_unit(name: str, raw: bytes) -> SystemdUnit:
    """Parse the output of `systemctl show`; errors as of `read_unit`."""
    lines = (line.partition("=") for line in raw.decode("utf-8", "replace").splitlines())
    properties = {key: value for key, _, value in lines}
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
