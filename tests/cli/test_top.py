"""`memwatch top`: the view of a watch that runs elsewhere, over a real server, in a real terminal."""

from __future__ import annotations

import base64
import http.server
import json
import math
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import pytest

from hostile.defiled import harmful
from memwatch.cli.top import StatusClient
from memwatch.core.snapshot import Forecast, Snapshot
from memwatch.errors import AttachError, ConfigError, ExitCode
from memwatch.outputs.http.server import WebServer
from memwatch.outputs.status_json import snapshot_to_dict
from memwatch.system.clock import SystemClock
from support.screens import screen
from support.snapshots import make_dead, make_diagnosis, make_snapshot, make_view
from support.stopwatch import Stopwatch

ROOT = Path(__file__).parents[2]
ENVIRON = {"PYTHONPATH": f"{ROOT / 'watchdog'}"}
TOP = (sys.executable, "-m", "memwatch", "top")


@contextmanager
def serving(snapshot: Snapshot) -> Iterator[WebServer]:
    server = WebServer("127.0.0.1", 0, SystemClock())
    server.start()
    server.publish(snapshot, ())
    try:
        yield server
    finally:
        with suppress(OSError):  # a test has stopped it
            server.stop()


@pytest.mark.parametrize(
    "snapshot",
    [
        make_snapshot(gpus=2, diagnosis=make_diagnosis()),
        make_dead(),
        make_snapshot(resources=(), sample=None, target=None, generation=None, phase=None, gauges=(), notices=()),
        make_snapshot(
            resources=(make_view(3, trend=None, forecast=None), make_view(0, forecast=Forecast(1.0, 0.0, None)))
        ),
    ],
    ids=["leaking", "ended", "nothing known", "no forecast"],
)
def test_what_is_served_comes_back_whole(snapshot: Snapshot) -> None:
    with serving(snapshot) as server:
        found = StatusClient(server.url).fetch_snapshot()
    known = snapshot.diagnosis and replace(snapshot.diagnosis, credits=())
    command = snapshot.command if snapshot.target else ""  # it stands with the target
    assert found == replace(snapshot, diagnosis=known, command=command)


def test_what_json_cannot_write_is_unknown() -> None:
    snapshot = make_snapshot(resources=(make_view(3, forecast=Forecast(math.inf, None, math.inf, 7.0)),))
    with serving(snapshot) as server:
        assert StatusClient(server.url).fetch_snapshot().resources[0].forecast == Forecast(None, None, None, 7.0)


class _Answers(http.server.BaseHTTPRequestHandler):
    body = b""

    def do_GET(self) -> None:
        self.send_response(200 if self.body else 503)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None: ...


def answering(body: bytes) -> AbstractContextManager[str]:
    return serving_by(type("Handler", (_Answers,), {"body": body}))


@contextmanager
def serving_by(handler: type[_Answers]) -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


SHOWN = snapshot_to_dict(make_snapshot())


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (b"", "503"),
        (b"<html>", "not with a status of memwatch"),
        (b"[1, 2]", "not with a status of memwatch"),
        (b'{"status": "ok"}', "not with a status of memwatch"),
        (json.dumps({**SHOWN, "schema": 99}).encode(), "another version"),
        (json.dumps({**SHOWN, "resources": [{"resource": "host"}]}).encode(), "not with a status"),
        (json.dumps({**SHOWN, "resources": 5}).encode(), "not with a status"),
        (json.dumps({**SHOWN, "t": "\x1b[31mnoon"}).encode(), "not with a status"),
        (b"\xff\xfe" * 50, "not with a status"),
    ],
)
def test_what_is_no_status_is_refused(body: bytes, match: str) -> None:
    with answering(body) as url, pytest.raises(AttachError, match=match) as refused:
        StatusClient(url).fetch_snapshot()
    assert "\x1b" not in str(refused.value)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/", "127.0.0.1"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="not the address"):
        StatusClient(url).fetch_snapshot()


class _Redirects(_Answers):
    seen: list[str | None]
    elsewhere = ""

    def do_GET(self) -> None:
        self.seen.append(self.headers["Authorization"])
        self.send_response(302 if self.elsewhere else 404)
        self.send_header("Location", f"{self.elsewhere}/status.json")
        self.end_headers()


def test_a_password_is_for_the_address_that_was_named_alone() -> None:
    seen: list[str | None] = []
    here, there = type("Here", (_Redirects,), {"seen": seen}), type("There", (_Redirects,), {"seen": seen})
    with serving_by(here) as first, serving_by(there) as second:
        here.elsewhere = second
        with pytest.raises(AttachError, match="404"):
            StatusClient(first.replace("//", "//alice:a%3Ab@")).fetch_snapshot()
    assert seen == ["Basic " + base64.b64encode(b"alice:a:b").decode(), None]


@contextmanager
def sending(pieces: Iterable[bytes], pause: float = 0.0) -> Iterator[str]:
    """A server that says these to whoever comes, one after the other, whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError), server.accept()[0] as client:
                client.recv(65536)
                for piece in pieces:
                    client.sendall(piece)
                    time.sleep(pause)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


OK = b"HTTP/1.1 200 OK\r\n\r\n"
ENDLESS = {
    "continuations": repeat(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "headers": chain([b"HTTP/1.1 200 OK\r\n"], repeat(b"a: b\r\n")),
    "a header": chain([b"HTTP/1.1 200 OK\r\na: "], repeat(b"b" * 4096)),
    "a body": chain([OK], repeat(b"[" * 65536)),
    "a body of many lists": chain([OK, b'{"a":['], repeat(b"[]," * 20_000)),
    "chunks": chain([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"], repeat(b"2\r\n[[\r\n")),
    "a length that lies": [b"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n{}"],
    "no status line": repeat(b"\xff" * 4096),
    "numbers": [OK, b'{"schema":1,"t":NaN,"up":Infinity,"a":' + b"9" * 5000 + b"}"],
    "nothing": [b""],
}


@pytest.mark.parametrize("pieces", ENDLESS.values(), ids=ENDLESS)
def test_an_answer_without_end_is_refused_in_time_and_bounded_memory(pieces: Iterable[bytes]) -> None:
    begun, before = Stopwatch(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with sending(pieces) as url, pytest.raises(AttachError):
        StatusClient(url, response_seconds=1.0).fetch_snapshot()
    assert begun.undisturbed_seconds < 15.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


@pytest.mark.parametrize("start", [b"", OK])
def test_an_answer_that_drips_is_not_waited_for_for_ever(start: bytes) -> None:
    begun = Stopwatch()
    late = pytest.raises(AttachError, match=r"takes longer than 0\.5 s")
    with sending(chain([start], repeat(b"H")), pause=0.05) as url, late:
        StatusClient(url, response_seconds=0.5).fetch_snapshot()
    assert begun.undisturbed_seconds < 5.0


def test_the_reason_of_a_refusal_steers_no_terminal() -> None:
    with sending([b"HTTP/1.1 500 \x1b[2J\x9b31mno\r\n\r\n"]) as url, pytest.raises(AttachError, match="500") as refused:
        StatusClient(url).fetch_snapshot()
    assert not harmful(str(refused.value), "")


@pytest.mark.parametrize("elsewhere", ["ftp://127.0.0.1/a", "file:///etc/passwd", "data:,{}", "x" * 70_000])
def test_a_redirection_leads_to_no_other_kind_of_place(elsewhere: str) -> None:
    head = f"HTTP/1.1 302 Found\r\nLocation: {elsewhere}\r\n\r\n".encode()
    with sending([head]) as url, pytest.raises(AttachError):
        StatusClient(url).fetch_snapshot()


@pytest.mark.parametrize("url", ["http://alice:secret@127.0.0.1:1", "http://alice@127.0.0.1:1"])
def test_neither_name_nor_password_is_shown(url: str) -> None:
    endpoint = StatusClient(url, "secret")
    with pytest.raises(AttachError) as refused:
        endpoint.fetch_snapshot()
    assert "secret" not in f"{endpoint.url}{refused.value}" and "alice" not in f"{endpoint.url}{refused.value}"


def run(*options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **ENVIRON, **environ}
    return subprocess.run([*TOP, *options], env=env, capture_output=True, text=True, timeout=60, check=False)


def test_one_screen_is_printed_and_as_json_all_of_it() -> None:
    with serving(make_snapshot()) as server:
        printed = run(server.url.removeprefix("http://"), "-1", LANG="C.UTF-8")
        as_json = run(server.url, "--json")
        refused = run(server.url)
    assert printed.returncode == 0 and "OOM at generation 13 of 25" in printed.stdout and "│" in printed.stdout
    assert json.loads(as_json.stdout)["sentence"] == make_snapshot().sentence
    assert refused.returncode == ExitCode.USAGE and "-1" in refused.stderr


def test_where_nobody_listens_that_is_said_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    found = run(f"127.0.0.1:{port}", "-1")
    assert found.returncode == ExitCode.CANNOT_ATTACH and "--listen" in found.stderr


def test_in_a_terminal_it_follows_the_watch_and_says_when_that_no_longer_answers() -> None:
    with serving(make_snapshot()) as server, screen([*TOP, server.url], ENVIRON) as shown:
        shown.until(lambda text: "OOM at generation 13" in text and "q quit" in text)
        server.publish(make_snapshot(phase="later"), ())
        shown.until(lambda text: "later" in text)
        shown.press("h")
        shown.until(lambda text: "pause: the view stands still" in text)
        shown.press("h")
        shown.resize(120, 40)
        shown.until(lambda text: "evolve" in text)
        server.stop()
        shown.until(lambda text: "no answer from" in text and "OOM at generation 13" in text)
        shown.press("q")
        assert shown.wait() == 0 and shown.has_left


def test_an_answer_that_hangs_stops_no_key() -> None:
    with serving(make_snapshot()) as server, screen([*TOP, server.url], ENVIRON) as shown:
        shown.until(lambda text: "q quit" in text)
        port = int(server.url.rsplit(":", 1)[1].strip("/"))
        server.stop()
        with socket.create_server(("127.0.0.1", port)):  # takes connections and never answers
            time.sleep(1.5)
            began = Stopwatch()
            shown.press("q")
            assert shown.wait() == 0 and began.undisturbed_seconds < 3.0
