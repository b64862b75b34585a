"""`memwatch --version`, `memwatch man` and `memwatch completion`: commands that load nothing else of memwatch."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

from memwatch import __version__
from memwatch.errors import ConfigError, ExitCode
from memwatch.system import package_data

# bcrypt>=4.0; extra == 'auth'
_REQUIREMENT = re.compile(r"([\w.-]+)[^;]*(?:;.*\bextra == ['\"]([\w-]+)['\"])?")


def version(_: Mapping[str, Any]) -> int:
    """`memwatch --version`: one line for programs, and below it what a bug report needs."""
    print(f"memwatch {__version__}")
    for title, text in _facts():
        print(f"{title:<9} {text}")
    return ExitCode.ENDED


def manual(_: Mapping[str, Any]) -> int:
    """`memwatch man`: show the manual page with man; where stdout is not a terminal, print its source."""
    page = package_data.manual_file()
    if sys.stdout.isatty():
        if shutil.which("man") is None:
            raise ConfigError("man is not installed here", "memwatch --help; for elsewhere: memwatch man > memwatch.1")
        os.execvp("man", ["man", "-l", str(page)])  # noqa: S606 - man takes this process's place
    print(page.read_text(), end="")
    return ExitCode.ENDED


def completion(flags: Mapping[str, Any]) -> int:
    """`memwatch completion SHELL`: print the script for bash, zsh or fish."""
    print(package_data.completion_file(flags["shell"]).read_text(), end="")
    return ExitCode.ENDED


def _facts() -> Iterator[tuple[str, str]]:
    yield "build", _commit()
    yield "python", f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    yield "system", f"{platform.system()} {platform.release()} {platform.machine()}, {' '.join(platform.libc_ver())}"
    extras = _requirements()
    yield "packages", ", ".join(_installed(name) or f"{name} is missing" for name in extras.pop("", []))
    found = {extra: [_installed(name) for name in names] for extra, names in extras.items()}
    present = ", ".join(f"{extra} ({', '.join(packages)})" for extra, packages in found.items() if all(packages))
    missing = ", ".join(extra for extra, packages in found.items() if not all(packages))
    yield "extras", (present or "none") + (f"; not installed: {missing}" if missing else "")
    yield "files", str(package_data.PACKAGE)


def _commit() -> str:
    """The commit that was packaged, or the one of the checkout."""
    build = package_data.build()
    if build:
        return f"commit {build['commit']} of {build['date']}"
    show = ["git", "-C", str(package_data.CHECKOUT), "show", "-s", "--abbrev=12"]
    try:
        if (package_data.CHECKOUT / ".git").exists():
            command = [*show, "--format=commit %h of %cs, checked out"]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pass
    return "from sources, of no known commit"


def _requirements() -> dict[str, list[str]]:
    """The names of the packages that each extra needs; under "", those that memwatch always needs."""
    found: dict[str, list[str]] = {"": []}
    try:
        lines = metadata.requires("memwatch") or []
    except metadata.PackageNotFoundError:  # run from its sources
        lines = []
    for matched in filter(None, map(_REQUIREMENT.match, lines)):
        found.setdefault(matched[2] or "", []).append(matched[1])
    return found


def _installed(name: str) -> str:
    """`rich 15.0.0`; empty when it is not installed."""
    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return ""
