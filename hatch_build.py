"""Build hook: which commit is packaged, and of which day, as memwatch/data/build.json."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACES = {"sdist": "build.json", "wheel": "memwatch/data/build.json"}


class BuildInfo(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the file to what is built; nothing is written into the sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An unpacked sdist has the file; an editable install, and sources of which git knows nothing, go without."""
        path = Path(self.root, PLACES["sdist"])
        if version == "editable":
            return
        if not path.exists():
            build = _build(Path(self.root))
            if build is None:
                return
            self._folder = tempfile.TemporaryDirectory()  # until the build has ended
            path = Path(self._folder.name, path.name)
            path.write_text(json.dumps(build) + "\n")
        build_data["force_include"][str(path)] = PLACES[self.target_name]


def _build(root: Path) -> dict[str, str] | None:
    """The commit, marked `-dirty` where tracked files differ from it, and its day; None when git does not know."""
    try:
        if Path(_git(root, "rev-parse", "--show-toplevel")).resolve() != root.resolve():
            return None  # these sources lie within somebody else's repository
        commit = _git(root, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
        seconds = os.environ.get("SOURCE_DATE_EPOCH") or _git(root, "show", "-s", "--format=%ct")
    except (OSError, subprocess.CalledProcessError):
        return None
    return {"commit": commit, "date": datetime.fromtimestamp(int(seconds), timezone.utc).date().isoformat()}


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()
