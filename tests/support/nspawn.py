"""A Debian of its own in a container: systemd is PID 1 and runs at the machine's speed, without a memory controller."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from support.needed import missing

SUITE = "bookworm"  # systemd 252, Python 3.11
PYTHON = "3.11"
PACKAGES = "systemd,systemd-sysv,dbus,python3,python3-venv,procps"
MMDEBSTRAP = (
    *("mmdebstrap", "--quiet", "--variant=minbase", "--mode=root", f"--include={PACKAGES}"),
    *("--aptopt=Acquire::Check-Valid-Until false", "--dpkgopt=force-unsafe-io"),
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "info", "locale")),
)
BOOT_SECONDS = 60.0


def tree() -> Path:
    """Its files, made once (a minute) and kept in the user's cache."""
    for program in ("systemd-nspawn", "mmdebstrap", "nsenter"):
        if shutil.which(program) is None:
            missing(f"needs {program}: make tools")
    if os.geteuid() != 0:
        missing("needs root to boot a container")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memwatch-nspawn"
    cache.mkdir(parents=True, exist_ok=True)
    found = cache / hashlib.sha256(repr((SUITE, MMDEBSTRAP)).encode()).hexdigest()[:12]
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            _make(found)
    return found


def _make(folder: Path) -> None:
    query = ("--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian", "Label: Debian")
    mirrors = subprocess.run(["apt-get", "indextargets", *query], capture_output=True, text=True, check=False).stdout
    if not mirrors:
        missing("apt knows no mirror of Debian: apt-get update")
    fresh = folder.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    made = subprocess.run(
        [*MMDEBSTRAP, SUITE, fresh, min(mirrors.split())], capture_output=True, text=True, check=False
    )
    if made.returncode:
        missing(f"mmdebstrap made no {SUITE}: {made.stderr.strip()[-300:]}")
    fresh.rename(folder)


class Container:
    """One that runs; what is changed in it is lost with it."""

    def __init__(self, share: Path) -> None:
        """`share` is its /share, read-only."""
        self._console = open(share / "console", "w+")  # noqa: SIM115 - as long as it runs
        options = ("--boot", "--volatile=overlay", "--private-network", "--register=no", "--keep-unit")
        self._process = subprocess.Popen(
            ["systemd-nspawn", "-q", "-D", tree(), *options, "--console=pipe", f"--bind-ro={share}:/share"],
            stdin=subprocess.DEVNULL,
            stdout=self._console,
            stderr=self._console,
            env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
            start_new_session=True,
        )
        self._init = 0
        self._boot()

    def run(self, script: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """A shell script as root, in /share."""
        command = ["nsenter", "--target", str(self._init), "--all", "--", "/bin/sh", "-c", f"cd /share\n{script}"]
        environ = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
        return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=seconds, check=False)

    def sh(self, script: str, seconds: float = 60.0) -> str:
        """What such a script, which must succeed, writes to stdout."""
        done = self.run(script, seconds)
        assert done.returncode == 0, f"{script}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def close(self) -> None:
        """End it at once."""
        if self._init:
            os.kill(self._init, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()
        self._console.close()

    def _boot(self) -> None:
        deadline = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
            self._init = int(children[-1]) if children else 0
            if self._init and self.run("systemctl is-system-running").stdout.strip() in ("running", "degraded"):
                return
            time.sleep(0.05)
        self.close()
        missing(f"no container boots here: {Path(self._console.name).read_text()[-300:]}")
