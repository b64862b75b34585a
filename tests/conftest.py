"""What every test may rely on."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from memwatch.core.engine.engine import Engine
from memwatch.core.events import Action, Notice
from support import summary
from support.events import faults

# The same examples each time, on a machine however slow: a property that fails, fails for everybody. New examples are
# looked for by `make thorough`.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")


# Files of few tests that take long: begun first, so that the other workers do not wait for one of them at the end.
BEGUN_FIRST = (
    "test_figures.py",
    "test_main_job.py",
    "test_machine_faults.py",
    "test_trackers_live.py",
    "test_tree_accuracy.py",
    "test_restarts.py",
    "test_real.py",
    "test_suite.py",
    "test_memory_use.py",
    "test_recorded.py",
    "test_killed.py",
    "test_ranks.py",
    "test_image.py",
    "test_extras.py",
)


def pytest_configure() -> None:
    """Tests started by `pytest &` in a script ignore SIGINT, and so would every trainer that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _events_are_as_their_schema_says() -> Iterator[None]:
    """Whatever an engine tells in any test."""
    emit = Engine._emit

    def checked(engine: Engine, action: Action) -> None:
        if isinstance(action, Notice) and (wrong := faults(action)):
            raise AssertionError(f"{action.event}: {'; '.join(wrong)}")
        emit(engine, action)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "_emit", checked)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order of files: those of few long tests, then those of many tests."""
    tests = Counter(item.path for item in items)
    order = {name: place for place, name in enumerate(BEGUN_FIRST)}
    items.sort(key=lambda item: (order.get(item.path.name, len(order)), -tests[item.path]))


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test that may run again says why."""
    if (marker := item.get_closest_marker("flaky")) is not None:
        item.user_properties.append((summary.MAY_RUN_AGAIN, marker.kwargs["reason"]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    summary.record(terminalreporter, exitstatus)
