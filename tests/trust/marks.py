"""What every test that plays real runs is marked with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REAL = [
    pytest.mark.integration,
    pytest.mark.cgroup,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists(),
        reason="needs root and a memory cgroup of version 1",
    ),
]
