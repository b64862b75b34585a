"""TLS of the HTTP server: its context, the handshake, and the names in a client's certificate."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

VERSIONS = {
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}  # these and the following keys are Go's names
CLIENT_CERTIFICATES = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
TLS13_CIPHERS = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}  # cannot be chosen
CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
}
_NOT_TLS = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nTLS is spoken here: use https://\n"


class TlsError(ValueError):
    """A rule that cannot be followed; `key` names it."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


@dataclass(frozen=True, slots=True)
class TlsRules:
    """How TLS is spoken; certificates and key are PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None = None  # who signs the certificates of clients
    client_certificate: str = "NoClientCert"
    client_names: frozenset[str] = frozenset()  # one of them is in a client's certificate; empty: any name
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    ciphers: tuple[str, ...] = ()  # up to TLS 1.2; empty: those of OpenSSL
    curve: str = ""  # empty: those of OpenSSL


class TlsContext:
    """One set of rules and certificates in use."""

    def __init__(self, rules: TlsRules) -> None:
        """Raises TlsError for rules that OpenSSL does not accept."""
        self._context = _context(rules)
        self._client_names = rules.client_names
        self.asks_certificate = self._context.verify_mode is ssl.CERT_REQUIRED

    def secure(self, client: socket.socket) -> ssl.SSLSocket:
        """Returns the connection over TLS, to be closed beside the client; OSError if TLS fails or is too slow.

        It is a second handle: the first still cuts the connection, and nothing is ever sent through it in clear.
        It ends without close_notify, as an answer has its length: otherwise OpenSSL would keep each session, 1 kB of
        memory up to 20,480 times.
        """
        connection = self._context.wrap_socket(client.dup(), server_side=True, do_handshake_on_connect=False)
        try:
            connection.do_handshake()
            self._check_name(connection)
        except OSError as error:
            connection.close()
            if isinstance(error, ssl.SSLError) and error.reason == "HTTP_REQUEST":
                _answer_in_clear(client)
            raise
        return connection

    def _check_name(self, connection: ssl.SSLSocket) -> None:
        if self._client_names and self._client_names.isdisjoint(_names(connection.getpeercert() or {})):
            raise PermissionError("the client's certificate has none of the names that are allowed")


def _answer_in_clear(client: socket.socket) -> None:
    with suppress(BlockingIOError):  # a request that is left unread would end the connection before the answer
        client.recv(65536, socket.MSG_DONTWAIT)
    client.sendall(_NOT_TLS)


def _context(rules: TlsRules) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = VERSIONS[rules.min_version], VERSIONS[rules.max_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0  # no session is resumed: a client's certificate is checked each time
    with (
        _told("cert", "not a certificate and its key"),
        _file(rules.certificate) as certificate,
        _file(rules.key) as key,
    ):
        context.load_cert_chain(certificate, key, password=_no_password)
    if rules.client_ca is not None:
        with _told("client_ca", "no certificate that can be read"):
            context.load_verify_locations(cadata=rules.client_ca.decode("ascii", "ignore"))
    context.verify_mode = CLIENT_CERTIFICATES[rules.client_certificate]
    if rules.ciphers:
        with _told("cipher_suites", "not known to this OpenSSL"):
            context.set_ciphers(":".join(CIPHERS[name] for name in rules.ciphers))
    if rules.curve:
        with _told("curve_preferences", "not known to this OpenSSL"):
            context.set_ecdh_curve(CURVES[rules.curve])
    return context


@contextmanager
def _told(key: str, problem: str) -> Iterator[None]:
    try:
        yield
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise TlsError(key, f"{problem} ({str(reason).replace('_', ' ').lower()})") from error


@contextmanager
def _file(content: bytes) -> Iterator[str]:
    """A file that only this process sees: OpenSSL reads certificates by name alone."""
    descriptor = os.memfd_create("memwatch-tls")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _no_password() -> str:
    raise ValueError("the key is encrypted")  # OpenSSL would ask for it at the terminal


def _names(certificate: Mapping[str, Any]) -> set[str]:
    """The alternative names of a certificate."""
    return {_address(name) if kind == "IP Address" else name for kind, name in certificate.get("subjectAltName", ())}


# 2001:DB8:0:0:0:0:0:1
def _address(text: str) -> str:
    """Normalizes an IP address; any other text stays as it is."""
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return text
