"""What is built once for all tests of it."""

from __future__ import annotations

import pytest

from support.wheels import Installed, Package, environment, package


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """Sdist and wheel of these sources."""
    return package(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="session")
def installed(made: Package, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel, with what it needs and nothing else."""
    return environment(tmp_path_factory.mktemp("installed"), made)
