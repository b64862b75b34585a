"""memwatch's test guest: a virtual machine with systemd, cgroup version 2 and the kernel's OOM killer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.needed import missing

VM = Path(__file__).parents[3] / "shared" / "vm" / "vmrun"
PYTHON = "3.13"
NO_GUEST = 77
SECONDS = "840"  # less than the time a test has

Guest = Callable[..., "subprocess.CompletedProcess[str]"]


def vmrun(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The script's output and exit status, from a guest of its own."""
    if not VM.exists():
        pytest.skip("no ../shared/vm here")
    done = subprocess.run(
        [VM, "--timeout", SECONDS, *options, "-"],
        input=script,
        text=True,
        capture_output=True,
        check=False,
        env=os.environ,
    )
    if done.returncode == NO_GUEST:
        missing(done.stderr.strip())
    return done
