"""What another user may run of a Python that is root's alone: its folders, bound to where all may look."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.needed import missing

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534

needs_two_users = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root to become another user"
)


def as_user(uid: int, *words: str, capabilities: Iterable[str] = ()) -> Sequence[str]:
    """What becomes this user, with these capabilities and no other, and runs these words."""
    only = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    powers = (f"--bounding-set={only}", f"--inh-caps={only}", f"--ambient-caps={only}", "--no-new-privs")
    # setpriv itself still finds a program as root would; what env starts is found as that user
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *powers, "env", *words)


@dataclass(frozen=True)
class Commons:
    """A folder that is a user's own, and a Python that has all of memwatch and its tests' programs."""

    path: Path
    python: str
    watchdog: Path
    packages: Path
    programs: Path

    def environ(self) -> dict[str, str]:
        """With the state folder here, and nothing of root's but how tests run memwatch."""
        return {
            "MEMWATCH_DAEMON__END_PAGE_SECONDS": "0",  # no process is left behind
            **{name: value for name, value in os.environ.items() if name.startswith("MEMWATCH_")},
            "PATH": "/usr/bin:/bin",
            "LD_LIBRARY_PATH": str(Path(self.python).parents[1] / "lib"),  # or the system's libpython would load
            "PYTHONPATH": f"{self.watchdog}:{self.packages}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(self.path),
            "XDG_STATE_HOME": str(self.path / "state"),
        }


@contextmanager
def commons(uid: int = NOBODY) -> Iterator[Commons]:
    """Such a place; a skip where folders of root's would have to be bound and may not be."""
    with ExitStack() as held:
        path = Path(tempfile.mkdtemp(prefix="memwatch-common-"))
        held.callback(shutil.rmtree, path)
        os.chown(path, uid, uid)
        base = held.enter_context(_open(Path(sys.base_prefix)))
        yield Commons(
            path,
            str(base / Path(sys.executable).resolve().relative_to(Path(sys.base_prefix).resolve())),
            held.enter_context(_open(ROOT / "watchdog")),
            held.enter_context(_open(Path(sysconfig.get_path("purelib")))),
            held.enter_context(_open(ROOT / "tests" / "programs")),
        )


@contextmanager
def _open(folder: Path) -> Iterator[Path]:
    """The folder, or another way to it where its own is closed to others."""
    folder = folder.resolve()
    if all(stat.S_IMODE(part.stat().st_mode) & 0o001 for part in (folder, *folder.parents)):
        yield folder
        return
    place = Path(tempfile.mkdtemp(prefix="memwatch-bound-"))
    place.chmod(0o755)
    done = subprocess.run(["mount", "--bind", folder, place], capture_output=True, text=True, check=False)
    try:
        if done.returncode != 0:
            missing(f"{folder} is closed to other users, and cannot be bound: {done.stderr.strip()}")
        yield place
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "--lazy", place], check=True)
        place.rmdir()
