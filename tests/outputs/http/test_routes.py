"""Requests as hostile clients send them."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.outputs.http.routes import MAX_HEAD_BYTES, Request, RequestError, parse_request, read_request


def test_what_prometheus_sends():
    head = (
        b"GET /metrics?name=a HTTP/1.1\r\nHost: 127.0.0.1:9877\r\nUser-Agent: Prometheus/3.0\r\n"
        b"Accept: application/openmetrics-text;version=1.0.0;q=0.6,\r\naccept:\ttext/plain \r\nEmpty:"
    )
    expected = "application/openmetrics-text;version=1.0.0;q=0.6,, text/plain "
    assert parse_request(head) == Request("GET", "/metrics", expected)


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (b"", 400),
        (b"GET", 400),
        (b"GET /", 400),  # HTTP/0.9
        (b"GET  / HTTP/1.1", 400),
        (b"GET / HTTP/1.1 ", 400),
        (b" GET / HTTP/1.1", 400),
        (b"GET metrics HTTP/1.1", 400),
        (b"GET http://other/metrics HTTP/1.1", 400),
        (b"GET /\x00 HTTP/1.1", 400),
        (b"GET /\xc3\xa9 HTTP/1.1", 400),
        (b"GET / HTTP/1.1\nAccept: x", 400),
        (b"G\xc9T / HTTP/1.1", 400),
        (b"A" * 33 + b" / HTTP/1.1", 400),
        (b"GET / HTTP/2.0", 505),
        (b"PRI * HTTP/2.0", 400),
        (b"GET / HTTP/9.9", 505),
        (b"GET / HTTP/1.1\r\nno colon", 400),
        (b"GET / HTTP/1.1\r\nName : space before the colon", 400),
        (b"GET / HTTP/1.1\r\n: no name", 400),
        (b"GET / HTTP/1.1\r\nAccept: a\r\n folded", 400),
        (b"GET / HTTP/1.1\r\nAccept: a\nb: c", 400),
        (b"GET / HTTP/1.1\r\nAccept: \x00", 400),
    ],
)
def test_what_is_none_is_refused(head, code):
    with pytest.raises(RequestError) as caught:
        parse_request(head)
    assert caught.value.code == code


@given(st.one_of(st.binary(max_size=300), st.binary(max_size=100).map(lambda tail: b"GET / HTTP/1.1\r\n" + tail)))
def test_any_bytes_are_a_request_or_a_named_error(head):
    try:
        request = parse_request(head)
    except RequestError as error:
        assert error.code in (400, 505)
    else:
        assert request.path.startswith("/")
        assert (request.method + request.path).isascii()


def read(*parts: bytes) -> Request | None:
    """What is made of these bytes, as they come over a socket that is then closed."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        with theirs:
            for part in parts:
                try:
                    theirs.sendall(part)
                except BrokenPipeError:
                    return

    with ours:
        sender = threading.Thread(target=send)
        sender.start()
        try:
            return read_request(ours)
        finally:
            ours.close()
            sender.join()


def test_a_request_may_come_in_pieces_and_ends_with_its_empty_line():
    pieces = [bytes([byte]) for byte in b"HEAD /x HTTP/1.0\r\n\r\nGET / HTTP/1.1\r\n\r\n"]
    assert read(*pieces) == Request("HEAD", "/x", "")


def test_a_client_that_says_nothing():
    assert read() is None


def test_a_request_that_is_cut_off():
    with pytest.raises(RequestError, match="cut off") as caught:
        read(b"GET / HTTP/1.1\r\nHost: x\r\n")
    assert caught.value.code == 400


def test_the_size_is_bounded():
    line = b"GET / HTTP/1.1\r\n"
    header = b"X: " + b"a" * (MAX_HEAD_BYTES - len(line) - 7) + b"\r\n\r\n"
    assert read(line + header) is not None
    with pytest.raises(RequestError) as caught:
        read(line + b"Y: 1\r\n" + header)
    assert caught.value.code == 431
