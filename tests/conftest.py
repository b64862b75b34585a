"""What every test may rely on."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

from support import summary

# The same examples each time, on a machine however slow: a property that fails, fails for everybody. New examples are
# looked for by `make thorough`.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")


def pytest_configure() -> None:
    """Tests started by `pytest &` in a script ignore SIGINT, and so would every trainer that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test that may run again says why."""
    if (marker := item.get_closest_marker("flaky")) is not None:
        item.user_properties.append((summary.MAY_RUN_AGAIN, marker.kwargs["reason"]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    summary.record(terminalreporter, exitstatus)
