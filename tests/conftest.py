"""What every test may rely on."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Tests started by `pytest &` in a script ignore SIGINT, and so would every trainer that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
