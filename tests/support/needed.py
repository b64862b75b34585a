"""What a test needs of the machine: without it the test is skipped, or fails where it is there to be run."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip with this reason; under CI (the variable is set) fail: a skip would hide that nothing was tested."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
