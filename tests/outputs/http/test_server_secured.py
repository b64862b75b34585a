"""The HTTP server behind TLS, client certificates and passwords: real certificates, real clients, many and bad ones."""

from __future__ import annotations

import base64
import http.client
import select
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from memwatch.config import web_config
from memwatch.errors import SourceError
from memwatch.outputs.http.client_access import RELOAD_CHECK_SECONDS, AccessPolicyReloader
from memwatch.outputs.http.server import MOST_CLIENTS, WebServer
from memwatch.system.clock import SystemClock
from support.certificates import PASSWORD, hashed, make_all, self_signed
from support.snapshots import make_snapshot
from support.stopwatch import Stopwatch

PAIR = "cert_file: server.crt, key_file: server.key"
TLS = f"tls_server_config: {{{PAIR}}}\n"
CLIENT = "client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt"
USERS = f"basic_auth_users: {{alice: '{hashed()}'}}\n"
ALICE = {"Authorization": "Basic " + base64.b64encode(f"alice:{PASSWORD}".encode()).decode()}
TURN_SECONDS = 0.01  # of the loop that the tests have


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_all(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


@contextmanager
def serving(folder: Path, text: str, client_seconds: float = 10.0, look: float = 0.0) -> Iterator[WebServer]:
    """A server with this web-config.yml, looked at again as often as `look` says."""
    path = folder / "web-config.yml"
    path.write_text(text)
    speed = RELOAD_CHECK_SECONDS / look if look else 1.0
    reloader = AccessPolicyReloader(lambda: web_config.load_web_config(path), lambda: time.monotonic() * speed)
    server = WebServer("127.0.0.1", 0, SystemClock(), reloader, client_seconds)
    server.start()
    server.publish(make_snapshot(), ())
    try:
        yield server
    finally:
        with suppress(SourceError):
            server.stop()


def port_of(server: WebServer) -> int:
    return int(server.url.rsplit(":", 1)[1].strip("/"))


def context(folder: Path, ca: str = "server", client: str = "", **options: object) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(folder / f"{ca}.crt"))
    if client:
        made.load_cert_chain(folder / f"{client}.crt", folder / f"{client}.key")
    for name, value in options.items():
        setattr(made, name, value)
    return made


def ask(
    server: WebServer, tls: ssl.SSLContext | None, path: str = "/metrics", headers: Mapping[str, str] | None = None
) -> http.client.HTTPResponse:
    """The response, its body read."""
    port = port_of(server)
    connection: http.client.HTTPConnection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    if tls is not None:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=tls)
    with closing(connection):
        connection.request("GET", path, headers=dict(headers or {}))
        response = connection.getresponse()
        response.body = response.read()  # type: ignore[attr-defined]
    return response


# --- TLS ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_same_is_served_over_tls(folder: Path, version: ssl.TLSVersion) -> None:
    with serving(folder, TLS) as server:
        assert server.url.startswith("https://")
        response = ask(server, context(folder, maximum_version=version))
        assert response.status == 200
        assert b"memwatch_target_up 1.0\n" in response.body


def test_without_tls_in_the_file_there_is_none(folder: Path) -> None:
    with serving(folder, "") as server:
        assert server.url.startswith("http://")
        assert ask(server, None).status == 200


def test_who_speaks_no_tls_is_told_so_and_gets_nothing_else(folder: Path) -> None:
    with serving(folder, TLS) as server:
        response = ask(server, None)
        assert response.status == 400
        assert response.body == b"this port speaks TLS: use https://\n"
        assert b"memwatch_web_handshake_failures_total 1.0\n" in ask(server, context(folder)).body


@pytest.mark.parametrize("ca", ["other", "ca"])
def test_a_client_that_trusts_others_goes_away(folder: Path, ca: str) -> None:
    with serving(folder, TLS) as server:
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(server, context(folder, ca))
        assert ask(server, context(folder)).status == 200


def test_versions_ciphers_and_curves_are_those_of_the_file(folder: Path) -> None:
    old, new = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    with serving(folder, TLS.replace("}", ", min_version: TLS13}")) as server:
        assert ask(server, context(folder)).status == 200
        with pytest.raises(ssl.SSLError):
            ask(server, context(folder, maximum_version=old))
    only = (
        "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384], max_version: TLS12, curve_preferences: [CurveP384]"
    )
    with serving(folder, TLS.replace("}", f", {only}}}")) as server:
        with pytest.raises(ssl.SSLError):
            ask(server, context(folder, minimum_version=new))
        tls = context(folder)
        with closing(
            tls.wrap_socket(socket.create_connection(("127.0.0.1", port_of(server))), server_hostname="localhost")
        ) as talk:
            assert talk.cipher()[:2] == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2")
        tls.set_ecdh_curve("prime256v1")
        with pytest.raises(ssl.SSLError):
            ask(server, tls)
        other = context(folder)
        other.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        with pytest.raises(ssl.SSLError):
            ask(server, other)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_is_taken_up_again(folder: Path, version: ssl.TLSVersion) -> None:
    """Else a client's certificate would be good for longer than the file says, and memory would hold its session."""
    with serving(folder, TLS) as server:
        tls, session = context(folder, maximum_version=version), None
        for _ in range(3):
            plain = socket.create_connection(("127.0.0.1", port_of(server)), timeout=10)
            with closing(tls.wrap_socket(plain, server_hostname="localhost", session=session)) as talk:
                assert not talk.session_reused
                talk.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert talk.recv(100).startswith(b"HTTP/1.1 200 ")
                session = talk.session
                while talk.recv(65536):  # to its end
                    pass


# --- client certificates --------------------------------------------------------------------------------------------

REFUSED = (ssl.SSLError, ConnectionError, http.client.HTTPException)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_only_clients_with_a_certificate_of_the_ca(folder: Path, version: ssl.TLSVersion) -> None:
    with serving(folder, TLS.replace("}", f", {CLIENT}}}")) as server:
        assert ask(server, context(folder, client="client", maximum_version=version)).status == 200
        for other in ("", "stranger", "other", "server"):
            with pytest.raises(REFUSED):
                ask(server, context(folder, client=other, maximum_version=version))


def test_a_certificate_that_is_given_is_verified(folder: Path) -> None:
    optional = CLIENT.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven")
    with serving(folder, TLS.replace("}", f", {optional}}}")) as server:
        for one in ("", "client"):
            assert ask(server, context(folder, client=one)).status == 200
        with pytest.raises(REFUSED):
            ask(server, context(folder, client="stranger"))


@pytest.mark.parametrize(
    ("names", "admitted"),
    [
        ("prometheus.example.org", True),
        ("nobody, '::1'", True),
        ("ops@example.org", True),
        ("example.org", False),
        ("client", False),
        ("'0:0:0:0:0:0:0:1'", False),
    ],
)
def test_only_certificates_for_a_name_that_is_allowed(folder: Path, names: str, admitted: bool) -> None:
    with serving(folder, TLS.replace("}", f", {CLIENT}, client_allowed_sans: [{names}]}}")) as server:
        if admitted:
            assert ask(server, context(folder, client="client")).status == 200
        else:
            with pytest.raises(REFUSED):
                ask(server, context(folder, client="client"))


# --- passwords and headers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/metrics", "/status.json", "/-/healthy", "/-/ready", "/growth.folded", "/nothing"]
)
def test_every_page_asks_for_the_password(folder: Path, path: str) -> None:
    with serving(folder, USERS) as server:
        for headers in ({}, {"Authorization": "Basic " + base64.b64encode(b"alice:wrong").decode()}):
            response = ask(server, None, path, headers)
            assert (response.status, response.body) == (401, b"unauthorized\n")
            assert response.headers["WWW-Authenticate"] == 'Basic realm="memwatch"'
        assert ask(server, None, path, ALICE).status == (404 if path == "/nothing" else 200)


def test_refusals_are_counted_and_tell_nothing_of_the_password(folder: Path) -> None:
    with serving(folder, USERS) as server:
        ask(server, None)
        body = ask(server, None, headers=ALICE).body
        assert b"memwatch_web_refusals_total 1.0\n" in body
        assert PASSWORD.encode() not in body and b"alice" not in body


def test_a_head_and_a_post_without_password_are_refused_alike(folder: Path) -> None:
    with serving(folder, USERS) as server:
        for method in ("HEAD", "POST", "BREW"):
            with closing(socket.create_connection(("127.0.0.1", port_of(server)), timeout=5)) as talk:
                talk.sendall(f"{method} / HTTP/1.1\r\n\r\n".encode())
                answer = b"".join(iter(lambda: talk.recv(4096), b""))
            assert answer.startswith(b"HTTP/1.1 401 ")
            assert answer.endswith(b"\r\n\r\n") is (method == "HEAD")


def test_two_passwords_in_one_request_are_none(folder: Path) -> None:
    with serving(folder, USERS) as server, closing(socket.create_connection(("127.0.0.1", port_of(server)))) as talk:
        line = f"Authorization: {ALICE['Authorization']}\r\n"
        talk.sendall(f"GET / HTTP/1.1\r\n{line}{line}\r\n".encode())
        assert talk.recv(100).startswith(b"HTTP/1.1 401 ")


def test_the_headers_of_the_file_are_in_every_answer(folder: Path) -> None:
    text = "http_server_config: {headers: {X-Frame-Options: deny, Strict-Transport-Security: max-age=1}}\n"
    with serving(folder, text + USERS) as server:
        for headers, path in (({}, "/"), (ALICE, "/"), (ALICE, "/nothing")):
            response = ask(server, None, path, headers)
            assert response.headers["X-Frame-Options"] == "deny"
            assert response.headers["Strict-Transport-Security"] == "max-age=1"
            assert response.headers.get_all("X-Content-Type-Options") == ["nosniff"]


def test_more_requests_than_the_rate_are_refused(folder: Path) -> None:
    with serving(folder, "rate_limit: {interval: 1h, burst: 2}") as server:
        assert [ask(server, None).status for _ in range(4)] == [200, 200, 429, 429]


# --- bad clients ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "begins",
    [b"", b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x01\xff\xff" + b"\xff" * 100],
    ids=["says nothing", "half a hello", "garbage"],
)
def test_who_hangs_in_the_handshake_is_cut_and_holds_no_more_than_its_place(folder: Path, begins: bytes) -> None:
    with serving(folder, TLS, client_seconds=1.0) as server, ExitStack() as held:
        before = _descriptors()
        place = ("127.0.0.1", port_of(server))
        began = Stopwatch()
        slow = [held.enter_context(socket.create_connection(place, timeout=10)) for _ in range(MOST_CLIENTS)]
        for client in slow:
            client.sendall(begins)
        dripping = threading.Thread(target=_drip, args=(slow[0],))
        dripping.start()
        for client in slow:
            _read_to_the_end(client)
        assert began.undisturbed_seconds < 5
        dripping.join()
        assert ask(server, context(folder)).status == 200
        for client in slow:
            client.close()
        _until(lambda: _descriptors() <= before)


def test_who_is_slow_after_the_handshake_is_cut_too(folder: Path) -> None:
    with serving(folder, TLS, client_seconds=1.0) as server:
        plain = socket.create_connection(("127.0.0.1", port_of(server)), timeout=10)
        with closing(context(folder).wrap_socket(plain, server_hostname="localhost")) as talk:
            began = Stopwatch()
            dripping = threading.Thread(target=_drip, args=(talk,))
            talk.sendall(b"GET / HTTP/1.1\r\nHost:")
            dripping.start()
            with suppress(OSError):
                assert talk.recv(100) == b""
            assert began.undisturbed_seconds < 5
            dripping.join()


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _drip(client: socket.socket) -> None:
    for _ in range(100):
        try:
            client.sendall(b"\0")
        except OSError:
            return
        time.sleep(0.1)


def _read_to_the_end(client: socket.socket) -> None:
    with suppress(ConnectionError):
        while client.recv(4096):
            pass


def _until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_one_too_many_is_just_cut_off(folder: Path) -> None:
    with serving(folder, TLS) as server, ExitStack() as held:
        place = ("127.0.0.1", port_of(server))
        for _ in range(MOST_CLIENTS):
            held.enter_context(socket.create_connection(place, timeout=5))
        with pytest.raises(OSError):
            ask(server, context(folder))


def test_close_does_not_wait_for_a_handshake(folder: Path) -> None:
    with serving(folder, TLS) as server, closing(socket.create_connection(("127.0.0.1", port_of(server)))) as client:
        _until(lambda: bool(server._clients))
        began = Stopwatch()
        server.stop()
        assert began.undisturbed_seconds < 2
        client.settimeout(5)
        _read_to_the_end(client)


class Loop(threading.Thread):
    """Publishes as the daemon's loop does; how late it came at worst."""

    def __init__(self, server: WebServer) -> None:
        super().__init__()
        self._server, self._over = server, threading.Event()
        self.late: list[float] = []
        self.publishing: list[float] = []

    def run(self) -> None:
        bell = select.poll()
        bell.register(self._server, select.POLLIN)
        due = time.perf_counter()
        while not self._over.is_set():
            due += TURN_SECONDS
            bell.poll(max(0.0, due - time.perf_counter()) * 1000)
            began = time.perf_counter()
            self.late.append(began - due)
            self._server.on_loop_iteration()
            self._server.publish(make_snapshot(), ())
            self.publishing.append(time.perf_counter() - began)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def __enter__(self) -> Loop:
        self.start()
        return self


@pytest.mark.parametrize("hanging", [MOST_CLIENTS // 2, MOST_CLIENTS])
def test_bad_clients_do_not_delay_the_loop(folder: Path, hanging: int) -> None:
    """Some hang in the handshake, others try out passwords, others scrape as fast as they can."""
    with serving(folder, TLS + USERS) as server, ExitStack() as held:
        over = threading.Event()
        place, tls = ("127.0.0.1", port_of(server)), context(folder)
        answers: list[int] = []
        slow = [held.enter_context(socket.create_connection(place)) for _ in range(hanging)]

        def storm(number: int) -> None:
            while not over.is_set():
                wrong = base64.b64encode(f"alice:{number}{time.monotonic()}".encode()).decode()
                with suppress(*REFUSED, OSError):
                    answers.append(
                        ask(server, tls, headers=ALICE if number % 4 else {"Authorization": f"Basic {wrong}"}).status
                    )

        threads = [threading.Thread(target=storm, args=(number,)) for number in range(8)]
        with Loop(server) as loop:
            for thread in threads:
                thread.start()
            time.sleep(3.0)
        over.set()
        for client in slow:
            client.close()
        for thread in threads:
            thread.join()
    late, published = sorted(loop.late), sorted(loop.publishing)
    print(f"{len(answers)} answers, {answers.count(200)} of them 200; turns {len(late)}")
    print(f"late ms: median {late[len(late) // 2] * 1e3:.2f}, most {late[-1] * 1e3:.1f}")
    print(f"publish ms: median {published[len(published) // 2] * 1e3:.3f}, most {published[-1] * 1e3:.1f}")
    assert (answers.count(200) > 20 and 401 in answers) or hanging == MOST_CLIENTS
    assert published[len(published) // 2] < 0.005
    assert published[-1] < 0.5, "the interpreter's lock goes round: nobody waits for a handshake or a hash"


# --- files that change ----------------------------------------------------------------------------------------------


def test_a_certificate_is_renewed_under_traffic(folder: Path) -> None:
    """No request is lost; the old certificate is shown before, the new one after."""
    with serving(folder, TLS, look=0.05) as server:
        over, failures, served = threading.Event(), list[Exception](), [0]
        everybody = context(folder)
        self_signed(folder, "renewed")
        everybody.load_verify_locations(folder / "renewed.crt")

        def scrape() -> None:
            while not over.is_set():
                try:
                    assert ask(server, everybody, "/-/healthy").status == 200
                    served[0] += 1
                except Exception as error:
                    failures.append(error)

        threads = [threading.Thread(target=scrape) for _ in range(3)]
        for thread in threads:
            thread.start()
        _until(lambda: served[0] > 20)
        assert _shown(server, everybody) == "server"
        for kind in ("crt", "key"):  # one after the other: they do not fit meanwhile
            (folder / f"renewed.{kind}").replace(folder / f"server.{kind}")
            time.sleep(0.2)
        _until(lambda: _shown(server, everybody) == "renewed")
        seen = served[0]
        _until(lambda: served[0] > seen + 20)
        over.set()
        for thread in threads:
            thread.join()
        assert not failures
        server.publish(make_snapshot(), ())


def _shown(server: WebServer, tls: ssl.SSLContext) -> str:
    """The name on the server's certificate."""
    plain = socket.create_connection(("127.0.0.1", port_of(server)), timeout=10)
    with closing(tls.wrap_socket(plain, server_hostname="localhost")) as talk:
        return str(dict(pair for pairs in talk.getpeercert()["subject"] for pair in pairs)["commonName"])


def test_a_broken_certificate_is_told_to_the_loop_once_and_once_when_it_is_mended(folder: Path) -> None:
    with serving(folder, TLS, look=0.01) as server:
        tls, good = context(folder), (folder / "server.crt").read_bytes()
        bell = select.poll()
        bell.register(server, select.POLLIN)
        (folder / "server.crt").write_bytes(good[:-100])
        time.sleep(0.02)
        assert ask(server, tls, "/-/healthy").status == 200
        assert bell.poll(5000), "the loop is woken"
        assert server.wants_snapshot()
        with pytest.raises(SourceError, match=r"cert_file is 'server\.crt': not a certificate and .* stay in force"):
            server.publish(make_snapshot(sentence="new"), ())
        assert b"new" in ask(server, tls, "/").body, "it is shown all the same"
        (folder / "server.crt").write_bytes(good)
        time.sleep(0.02)
        assert ask(server, tls, "/-/healthy").status == 200
        assert server.wants_snapshot()
        server.publish(make_snapshot(), ())


def test_a_user_is_added_and_one_is_dropped_without_a_restart(folder: Path) -> None:
    with serving(folder, USERS, look=0.01) as server:
        assert ask(server, None, headers=ALICE).status == 200
        (folder / "web-config.yml").write_text(USERS.replace("alice", "bob"))
        time.sleep(0.02)
        assert ask(server, None, headers=ALICE).status == 401
        (folder / "web-config.yml").write_text("")
        time.sleep(0.02)
        assert ask(server, None).status == 401, "an empty file opens nothing"
