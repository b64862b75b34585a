"""The machine that this runs on, as support.machine drives it: for stories that are told within a guest."""

from __future__ import annotations

import subprocess

from support.machine import Machine

SLOW = (
    "memory: {interval_seconds: 1}\npolicy: {checkpoint_seconds: 4}\n"  # a guest is emulated, at a tenth of the speed
)


class Here:
    """As support.machine.Shell."""

    def sh(self, script: str, seconds: float = 120.0) -> str:
        """What a script that must succeed writes to stdout."""
        done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, timeout=seconds, check=False)
        assert done.returncode == 0, f"{script}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout


def machine(memory_max: str = "140M") -> Machine:
    """As Machine."""
    return Machine(Here(), memory_max, patience_seconds=240.0)
