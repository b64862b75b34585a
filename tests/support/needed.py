"""What a test needs of the machine: without it the test is skipped, or fails where it is there to be run.

A reason reads `needs what: command` where a command brings it: the summary at the end groups by these.
"""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def needs_program(name: str) -> pytest.MarkDecorator:
    """For tests that run a program of Debian's."""
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"needs {name}: make tools")


def missing(reason: str) -> NoReturn:
    """Skip with this reason; under CI (the variable is set) fail: a skip would hide that nothing was tested."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
