"""The wheel with what an index has today: the lowest and the highest versions that it says it works with."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import smoke
from support.pythons import needed_python
from support.wheels import Package, environment_of

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(400)]
OLDEST, NEWEST = "3.10", "3.13"


@pytest.mark.parametrize("extra", ["", *smoke.EXTRA])
@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_it_works_with_the_versions_that_it_names(
    made: Package, tmp_path: Path, version: str, resolution: str, extra: str
) -> None:
    """Of the lowest those that there is a wheel of for this CPython."""
    installed = environment_of(tmp_path / "venv", made, needed_python(version).command[0], extra, resolution)
    if extra:
        smoke.EXTRA[extra](installed, tmp_path)
    else:
        smoke.use(installed, tmp_path)
