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

# The keys of these tables are Go's names, as in the web configuration of Prometheus's exporters.
VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
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
_NOT_TLS = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nthis port speaks TLS: use https://\n"


class TlsError(ValueError):
    """A setting that OpenSSL does not accept; `key` is its name in the configuration."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


@dataclass(frozen=True, slots=True)
class TlsRules:
    """The settings of TLS; certificates and key are PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None = None  # certificates of those who sign the clients' certificates
    client_certificate: str = "NoClientCert"  # a key of CLIENT_CERTIFICATES
    client_names: frozenset[str] = frozenset()  # a client's certificate needs one of these; empty: any name
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    ciphers: tuple[str, ...] = ()  # up to TLS 1.2; empty: those of OpenSSL
    curve: str = ""  # empty: those of OpenSSL


class TlsContext:
    """The rules and certificates in use."""

    def __init__(self, rules: TlsRules) -> None:
        """Raises TlsError."""
        self._context = _context(rules)
        self._client_names = rules.client_names
        self.asks_certificate = self._context.verify_mode is ssl.CERT_REQUIRED

    def secure(self, client: socket.socket) -> ssl.SSLSocket:
        """Returns the TLS connection, which is closed in addition to `client`; OSError if TLS fails or is too slow.

        It is a second handle: `client` can still cut the connection, and sends nothing in clear.
        It is closed without close_notify, as an answer has its length: otherwise OpenSSL would keep each session, 1 kB
        of memory up to 20,480 times.
        """
        connection = self._context.wrap_socket(client.dup(), server_side=True, do_handshake_on_connect=False)
        try:
            connection.do_handshake()
            names = _names(connection.getpeercert() or {})
            if self._client_names and self._client_names.isdisjoint(names):
                raise PermissionError("the client's certificate has none of the allowed names")
        except OSError as error:
            connection.close()
            if isinstance(error, ssl.SSLError) and error.reason == "HTTP_REQUEST":
                with suppress(BlockingIOError):  # an unread request would end the connection before the answer
                    client.recv(65536, socket.MSG_DONTWAIT)
                client.sendall(_NOT_TLS)
            raise
        return connection


def _context(rules: TlsRules) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = VERSIONS[rules.min_version], VERSIONS[rules.max_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0  # no session is resumed: a client's certificate is checked each time
    with (
        _explained("cert", "not a certificate and its key"),
        _file(rules.certificate) as certificate,
        _file(rules.key) as key,
    ):
        context.load_cert_chain(certificate, key, password=_no_password)
    if rules.client_ca is not None:
        with _explained("client_ca", "not a readable certificate"):
            context.load_verify_locations(cadata=rules.client_ca.decode("ascii", "ignore"))
    context.verify_mode = CLIENT_CERTIFICATES[rules.client_certificate]
    if rules.ciphers:
        with _explained("cipher_suites", "not known to this OpenSSL"):
            context.set_ciphers(":".join(CIPHERS[name] for name in rules.ciphers))
    if rules.curve:
        with _explained("curve_preferences", "not known to this OpenSSL"):
            context.set_ecdh_curve(CURVES[rules.curve])
    return context


@contextmanager
def _explained(key: str, problem: str) -> Iterator[None]:
    """Turns OpenSSL's error into a TlsError."""
    try:
        yield
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise TlsError(key, f"{problem} ({str(reason).replace('_', ' ').lower()})") from error


@contextmanager
def _file(content: bytes) -> Iterator[str]:
    """The path of a file that only this process sees: OpenSSL reads certificates only from paths."""
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
    return {_address(name) if kind == "IP Address" else name for kind, name in certificate.get("subjectAltName", ())}


# 2001:DB8:0:0:0:0:0:1
def _address(text: str) -> str:
    """Returns the usual spelling of an IP address, and any other text as it is."""
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return text
