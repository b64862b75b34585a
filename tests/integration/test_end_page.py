"""After the end: memwatch exits at once, a process of its own shows how it ended, and gives its port away."""

from __future__ import annotations

import os
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from memwatch.errors import ExitCode
from memwatch.outputs.http.end_page import take_over_port
from support.mainjob import Folder, memwatch, trainer, until

pytestmark = pytest.mark.integration

WAITS = (sys.executable, "-c", "import os, sys, time\nwhile not os.path.exists('go'): time.sleep(0.02)\nsys.exit(3)")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def port() -> Iterator[int]:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        number: int = found.getsockname()[1]
    yield number
    take_over_port(number)


def watch_to_its_end(folder: Folder, port: int, seconds: float, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """The PID of the page's process, as the last line of the output names it; None: there is no such line."""
    monkeypatch.setenv("MEMWATCH_DAEMON__END_PAGE_SECONDS", str(seconds))
    options = ("--listen", f"127.0.0.1:{port}", "--interval", "0.1")
    with trainer(folder, program=WAITS) as run, memwatch(folder, "--pid", str(run.pid), *options) as watch:
        until(lambda: "attached" in watch.said())
        (folder.path / "go").touch()
        assert watch.wait(20) == ExitCode.FAILED, watch.said()
        (folder.path / "go").unlink()
        lines = watch.said().split("How it ended stays at ")
    return int(lines[1].rpartition("(pid ")[2].partition(")")[0]) if len(lines) > 1 else None


def page(port: int, path: str = "") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
        return answer.read().decode()


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z")
    return False


def test_the_end_stays_until_another_watch_takes_the_port(
    folder: Folder, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = watch_to_its_end(folder, port, 600, monkeypatch)
    assert first is not None and is_alive(first)
    assert "ended: failed (exit status 3)" in page(port)
    assert 'memwatch_target_exit_info{cause="failed",exit_code="3",signal=""} 1.0' in page(port, "metrics")
    assert os.getsid(first) == first, "a signal from the terminal does not reach it"
    open_files = [str(path.readlink()) for path in Path(f"/proc/{first}/fd").iterdir()]
    assert not any("history" in name for name in open_files)
    second = watch_to_its_end(folder, port, 600, monkeypatch)
    assert second is not None and second != first
    until(lambda: not is_alive(first))
    assert "ended: failed (exit status 3)" in page(port)


def test_it_ends_after_its_time_or_by_a_signal(folder: Folder, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    brief = watch_to_its_end(folder, port, 0.5, monkeypatch)
    assert brief is not None
    until(lambda: not is_alive(brief))
    long = watch_to_its_end(folder, port, 600, monkeypatch)
    assert long is not None
    os.kill(long, signal.SIGTERM)
    until(lambda: not is_alive(long))


def test_there_is_none_where_it_is_not_wanted(folder: Folder, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch_to_its_end(folder, port, 0, monkeypatch) is None
    assert not take_over_port(port)
