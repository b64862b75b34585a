"""A container with memwatch installed as systemd/README.md says, and a trainer's unit beside it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from support import elsewhere, nspawn
from support.exposure import SYSTEMD
from support.machine import Machine, install_commands


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Each file of tests has one of its own."""
    nspawn.tree()  # before anything is built for it
    share = tmp_path_factory.mktemp("share")
    (share / "dist").mkdir()
    elsewhere.download(elsewhere.build(share / "dist"), nspawn.PYTHON)
    shutil.copytree(SYSTEMD, share / "systemd")
    container = nspawn.Container(share)
    try:
        container.sh(f"set -e; export PIP_NO_INDEX=1 PIP_FIND_LINKS=/share/dist\n{install_commands()}", seconds=120)
        yield Machine(container)
    finally:
        container.close()
