"""A machine with memwatch as a service and trainers as units, as an operator of it would use it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from support.exposure import SYSTEMD
from support.markdown import blocks, section

WATCH = "memwatch@trainer"
QUICK = "memory: {interval_seconds: 0.2, limit: 200MB}\npolicy: {checkpoint_seconds: 1}\ndaemon: {wait_seconds: 0.2}\n"
LEAK = Path(__file__).parents[1] / "programs" / "leak.py"
NEW_USER = "printf 'u trainer - - /srv\\n' | systemd-sysusers -"
ASK = "/opt/memwatch/bin/python -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:{port}/{page}\").read().decode())'"


def install_commands() -> str:
    """Those of systemd/README.md that install memwatch, its unit and its user."""
    return blocks(section((SYSTEMD / "README.md").read_text(), "Install"), "sh")[0]


class Shell(Protocol):
    """Runs scripts as root on the machine."""

    def sh(self, script: str, seconds: float = 60.0) -> str:
        """What a script that must succeed writes to stdout."""


class Machine:
    """One machine; its commands are those of systemd/README.md."""

    def __init__(self, shell: Shell, memory_max: str = "1G", patience_seconds: float = 60.0) -> None:
        """`memory_max` is the limit of its trainers."""
        self._shell, self.memory_max, self._patience_seconds = shell, memory_max, patience_seconds
        self._cursor = ""

    def sh(self, script: str, seconds: float = 60.0) -> str:
        """As Shell."""
        return self._shell.sh(script, seconds)

    def until(self, condition: Callable[[], object], watch: str = WATCH) -> None:
        """Wait for it; a failure, with the journal of the watch, when it does not come true."""
        deadline = time.monotonic() + self._patience_seconds
        while not condition():
            assert time.monotonic() < deadline, "\n".join(one["MESSAGE"] for one in self.journal(watch))
            time.sleep(0.1)

    # --- units

    def show(self, unit: str, key: str) -> str:
        """One property."""
        return self.sh(f"systemctl show -P {key} {unit}").strip()

    def cgroup(self, unit: str, name: str) -> str:
        """A file of its cgroup."""
        return self.sh(f"cat /sys/fs/cgroup$(systemctl show -P ControlGroup {unit})/{name}").strip()

    def drop_in(self, text: str, name: str = "test") -> None:
        """Lines for each instance's [Service], in force with its next start."""
        folder = "/etc/systemd/system/memwatch@.service.d"
        self.sh(f"mkdir -p {folder}; printf '[Service]\\n{text}\\n' > {folder}/{name}.conf; systemctl daemon-reload")

    def pid(self, unit: str = WATCH) -> int:
        """Of its main process, 0 while there is none."""
        return int(self.show(unit, "MainPID"))

    def journal(self, unit: str = WATCH, *, priority: str = "debug") -> list[dict[str, Any]]:
        """Its lines since `turn_over`."""
        since = f"--after-cursor='{self._cursor}'" if self._cursor else ""
        return [
            json.loads(line) for line in self.sh(f"journalctl -o json -p {priority} -u {unit} {since}").splitlines()
        ]

    def told(self, event: str, unit: str = WATCH) -> list[str]:
        """What memwatch's own lines of this event say."""
        lines = (one["MESSAGE"].partition(" ") for one in self.journal(unit))
        return [text.strip() for name, _, text in lines if name == event]

    def turn_over(self) -> None:
        """What the journal says from here on counts."""
        self._cursor = self.sh("journalctl -n 0 --show-cursor").split("cursor: ")[1].strip()

    # --- the watch

    def configure(self, text: str, name: str = "trainer") -> None:
        """The configuration of an instance, in place at once."""
        path = f"/etc/memwatch/{name}.yaml"
        self.sh(f"cat > {path}.new <<'END'\n{text}\nEND\nchmod 644 {path}.new; mv {path}.new {path}")

    def status(self, port: int = 9877) -> dict[str, Any]:
        """Of the watch that is served there."""
        return json.loads(self.sh(ASK.format(port=port, page="status.json")))

    def main_memory(self) -> dict[str, Any]:
        """What that says of it; empty before the first look."""
        return next(iter(self.status()["resources"]), {})

    # --- trainers

    def trainer(self, words: str, name: str = "trainer") -> None:
        """Start tests/programs/leak.py with these words as a unit that is written as systemd/trainer.service."""
        changes = {
            "main.py --resume": f"main.py {words}",
            "/srv/trainer": f"/srv/{name}",
            "/var/log/trainer.log": f"/var/log/{name}.log",
            "memwatch@trainer": f"memwatch@{name}",
            "MemoryMax=175G": f"MemoryMax={self.memory_max}",
        }
        unit = (SYSTEMD / "trainer.service").read_text()
        for before, after in changes.items():
            assert before in unit
            unit = unit.replace(before, after)
        self.sh(
            f"""set -e
            {NEW_USER}
            install -d -o trainer /srv/{name}
            cat > /srv/{name}/main.py <<'END'\n{LEAK.read_text()}END
            rm -f /var/log/{name}.log /srv/{name}/state.ckpt
            cat > /etc/systemd/system/{name}.service <<'END'
{unit}
END
            systemctl daemon-reload
            systemctl reset-failed {name} || true
            systemctl start {name}"""
        )

    def end(self, name: str = "trainer") -> None:
        """End such a trainer."""
        self.sh(f"systemctl kill -s KILL {name} || true; systemctl stop {name}")


def configuration(name: str = "trainer", port: int = 9877, more: str = "", quick: str = QUICK) -> str:
    """Of an instance that looks often, with a limit of its own."""
    return (
        f"target: {{unit: {name}.service}}\nlog: {{path: /var/log/{name}.log}}\nlisten: 127.0.0.1:{port}\n{quick}{more}"
    )
