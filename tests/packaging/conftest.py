"""What is built once for all tests of it."""

from __future__ import annotations

import pytest

from support.wheels import Package, package


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """Sdist and wheel of these sources."""
    return package(tmp_path_factory.mktemp("made"))
