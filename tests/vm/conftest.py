"""A guest with memwatch and its units installed, made once for all tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from zlib import crc32

import pytest

from support import elsewhere
from support.exposure import SYSTEMD
from support.guest import PYTHON, VM, Guest, vmrun
from support.machine import install_commands

TESTS = Path(__file__).parents[1]
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
NAME = f"memwatch-{crc32(bytes(TESTS)):08x}{WORKER}"  # each checkout, and each process of tests, has a guest of its own

# What pip would do takes minutes here; the rest of the README's commands are run as they are.
SETUP = """
set -e
python3 -m venv --without-pip /opt/memwatch
cp -r site/. /opt/memwatch/lib/python3.13/site-packages
install -m 755 site/bin/* /opt/memwatch/bin
sed -i '1s|.*|#!/opt/memwatch/bin/python|' /opt/memwatch/bin/memwatch
/opt/memwatch/bin/python -m compileall -q /opt/memwatch/lib/python3.13/site-packages/memwatch
mkdir -p /srv/run /srv/memwatch
cp tests/programs/leak.py /srv/run
cp -r tests systemd /srv/memwatch
"""


@pytest.fixture(scope="session")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Guest]:
    """Such a guest of so many cores."""
    return cache(partial(_made, tmp_path_factory))


@pytest.fixture(scope="session")
def guest(guests: Callable[[int], Guest]) -> Guest:
    """Runs a script in such a guest; nothing of it is kept."""
    return guests(1)


def _made(folders: pytest.TempPathFactory, cores: int) -> Guest:
    if not VM.exists():
        pytest.skip("no ../shared/vm here")
    share, name = folders.mktemp("share"), f"{NAME}-{cores}"
    elsewhere.unpack(elsewhere.build(folders.mktemp("wheel")), PYTHON, share / "site")
    shutil.copytree(SYSTEMD, share / "systemd")
    for folder in ("support", "programs"):
        shutil.copytree(TESTS / folder, share / "tests" / folder, ignore=shutil.ignore_patterns("__pycache__"))
    lines = install_commands().splitlines()
    commands = "\n".join(line for line in lines if "venv" not in line and "pip install" not in line)
    script = f"{SETUP}{commands}\nsystemctl stop memwatch@trainer"
    done = vmrun(script, "--cpus", str(cores), "--save", name, "--share", str(share))
    assert done.returncode == 0, done.stdout + done.stderr
    return lambda script: vmrun(script, "--from", name)
