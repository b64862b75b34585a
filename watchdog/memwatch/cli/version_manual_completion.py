"""What memwatch tells of itself: its version and build, its manual page, completion for a shell."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

from memwatch import __version__
from memwatch.errors import ConfigError, ExitCode
from memwatch.system import package_data

_REQUIREMENT = re.compile(r"([\w.-]+)[^;]*(?:;.*\bextra == ['\"]([\w-]+)['\"])?")


def version() -> int:
    """`memwatch --version`: one line for programs, and below it what a report of a bug needs."""
    print(f"memwatch {__version__}")
    for title, text in _facts():
        print(f"{title:<9} {text}")
    return ExitCode.ENDED


def manual() -> int:
    """`memwatch man`: the manual page as man shows it; where stdout is no terminal, its source."""
    page = package_data.manual_file()
    if sys.stdout.isatty():
        if shutil.which("man") is None:
            raise ConfigError("man is not installed here", "memwatch --help; for elsewhere: memwatch man > memwatch.1")
        os.execvp("man", ["man", "-l", str(page)])  # noqa: S606 - it takes this process's place
    print(page.read_text(), end="")
    return ExitCode.ENDED


def completion(shell: str) -> int:
    """`memwatch completion SHELL`: the script for bash, zsh or fish."""
    print(package_data.completion_file(shell).read_text(), end="")
    return ExitCode.ENDED


def _facts() -> Iterator[tuple[str, str]]:
    """What was built from what, and what it runs on."""
    yield "build", _origin()
    yield "python", f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    yield "system", f"{platform.system()} {platform.release()} {platform.machine()}, {' '.join(platform.libc_ver())}"
    needed = _requirements()
    yield "packages", ", ".join(_installed(name) or f"{name} is missing" for name in needed.pop("", []))
    there = {extra: ", ".join(map(_installed, names)) for extra, names in needed.items() if all(map(_installed, names))}
    lacks = ", ".join(extra for extra in needed if extra not in there)
    has = ", ".join(f"{extra} ({packages})" for extra, packages in there.items()) or "none"
    yield "extras", has + (f"; not installed: {lacks}" if lacks else "")
    yield "files", str(package_data.PACKAGE)


def _origin() -> str:
    """The commit that was packaged, or that a checkout is at."""
    build = package_data.build()
    if build:
        return f"commit {build['commit']} of {build['date']}"
    git = [
        "git",
        "-C",
        str(package_data.CHECKOUT),
        "show",
        "-s",
        "--abbrev=12",
        "--format=commit %h of %cs, checked out",
    ]
    try:
        if (package_data.CHECKOUT / ".git").exists():
            return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pass
    return "from sources, of no known commit"


def _requirements() -> dict[str, list[str]]:
    """The names of the packages that memwatch needs, below "", and those of each extra."""
    found: dict[str, list[str]] = {"": []}
    try:
        lines = metadata.requires("memwatch") or []
    except metadata.PackageNotFoundError:  # run from its sources
        lines = []
    for line in lines:
        matched = _REQUIREMENT.match(line)
        if matched:
            found.setdefault(matched[2] or "", []).append(matched[1])
    return found


def _installed(name: str) -> str:
    """`rich 15.0.0`; empty when it is not."""
    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return ""
