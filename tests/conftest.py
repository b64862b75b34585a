"""What every test may rely on."""

from __future__ import annotations

import signal

from hypothesis import settings

# In CI (the variable CI is set) hypothesis has a profile of its own: the same examples each time.
settings.register_profile("explore", max_examples=500, deadline=None)


def pytest_configure() -> None:
    """Tests started by `pytest &` in a script ignore SIGINT, and so would every trainer that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
