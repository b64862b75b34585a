"""memwatch under a fake NVIDIA driver: the scripted library, and the traces of a driver in /proc."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.fakenvml import World, library_folder
from support.mainjob import Folder

# Words before a command that run it where a driver seems to be; root alone may.
WITH_DRIVER = (
    *("unshare", "-m", "sh", "-c"),
    'mount -t tmpfs none /proc/driver && mkdir /proc/driver/nvidia && exec "$0" "$@"',
)


class Driven(Folder):
    """A folder whose memwatch has a fake driver below it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.world = World(path / "world")

    def environ(self) -> dict[str, str]:
        return {**super().environ(), **self.world.environ()}


def missing() -> str | None:
    """Why there can be no fake driver."""
    if library_folder() is None:
        return "no C compiler for the fake libnvidia-ml.so.1"
    if subprocess.run([*WITH_DRIVER, "true"], check=False, capture_output=True).returncode:
        return "no mount namespace to show a driver in"
    return None
