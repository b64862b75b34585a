"""Loads a `web-config.yml`, in the format of Prometheus's exporters, as the access policy of the HTTP server.

What Python cannot do is refused, where Go would accept it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memwatch.errors import ConfigError
from memwatch.outputs.http.client_access import AccessPolicy, RateLimit, Stamp, stamp
from memwatch.system import json_and_yaml
from memwatch.system.json_and_yaml import YamlDocument

if TYPE_CHECKING:
    from memwatch.outputs.http.password_hashes import Passwords
    from memwatch.outputs.http.tls import TlsContext

HEADERS: Mapping[str, tuple[str, ...]] = {  # the headers that may be added, and their values; (): any value
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
ALWAYS_SENT = "X-Content-Type-Options"
UNVERIFIED = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
MAX_HASH_COST = 15  # checking such a hash takes 2 s; each step doubles the time
_HASH = re.compile(r"\$2[abxy]\$([0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+")
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class _TlsSection:
    """`tls_server_config`. The values that may be secret are of any type, so that no message of msgspec shows them."""

    cert: Any = ""
    key: Any = ""
    client_ca: Any = ""
    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    client_auth_type: str = ""
    client_allowed_sans: tuple[str, ...] | None = None
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    prefer_server_cipher_suites: bool = True  # OpenSSL always prefers its own; Go ignores this key too
    curve_preferences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _HttpSection:
    """`http_server_config`."""

    http2: bool = True  # only HTTP/1.1 is served: each client of HTTP/2 can use it too
    headers: dict[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _RateSection:
    """`rate_limit`."""

    interval: str | int = 0
    burst: int = 0


@dataclass(frozen=True, slots=True)
class _WebConfig:
    """The whole file."""

    tls_server_config: _TlsSection = field(default_factory=_TlsSection)
    http_server_config: _HttpSection = field(default_factory=_HttpSection)
    basic_auth_users: Any = field(default_factory=dict)
    rate_limit: _RateSection = field(default_factory=_RateSection)


def load_web_config(path: Path) -> AccessPolicy:
    """Load what the file asks of clients; the ConfigError names the file, the line, the key and the fix.

    Paths in the file are relative to its folder. An empty file asks for nothing.
    """
    files: dict[str, Stamp] = {}
    try:
        content = _read(path, files)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", "name a file that can be read with --web-config") from error
    document = json_and_yaml.read_yaml(content, str(path))
    if not isinstance(document.data, dict | None):
        raise ConfigError(f"{path}:1: it holds no keys", "begin from configs/web-config.yml")
    config = json_and_yaml.convert(_without_nulls(document.data or {}), _WebConfig, document)
    return _Loader(config, document, path.parent, files).load()


def _read(path: Path, files: dict[str, Stamp]) -> bytes:
    with path.open("rb") as file:
        files[str(path)] = stamp(os.fstat(file.fileno()))
        return file.read(json_and_yaml.MAX_YAML_BYTES + 1)


def _without_nulls(data: Any) -> Any:
    """Remove keys without a value, except users: one without a hash must be refused."""
    if not isinstance(data, dict):
        return data
    return {
        key: value if key == "basic_auth_users" else _without_nulls(value)
        for key, value in data.items()
        if value is not None
    }


class _Loader:
    """Checks the values of one file, and reads the files that it names."""

    def __init__(self, config: _WebConfig, document: YamlDocument, folder: Path, files: dict[str, Stamp]) -> None:
        self._config, self._document, self._folder, self._files = config, document, folder, files
        self._section = config.tls_server_config

    def load(self) -> AccessPolicy:
        headers, limit, users = self._headers(), self._limit(), self._users()
        return AccessPolicy(self._tls(), users, limit, headers, self._files)

    def _error(self, path: str, problem: str, hint: str, value: object = ...) -> ConfigError:
        return json_and_yaml.config_error(self._document, path, problem, value, hint)

    def _tls_error(self, key: str, problem: str, hint: str, value: object = ...) -> ConfigError:
        return self._error(f"tls_server_config.{key}", problem, hint, value)

    # --- TLS ---

    def _tls(self) -> TlsContext | None:
        if self._section == _TlsSection():
            return None
        from memwatch.outputs.http import tls

        rules = tls.TlsRules(
            certificate=self._pem("cert"),
            key=self._pem("key"),
            client_ca=self._client_ca(tls.CLIENT_CERTIFICATES),
            client_certificate=self._section.client_auth_type or "NoClientCert",
            client_names=self._client_names(),
            min_version=self._choice("min_version", self._section.min_version, tls.VERSIONS),
            max_version=self._max_version(tls.VERSIONS),
            ciphers=self._ciphers(tls.CIPHERS, tls.TLS13_CIPHERS),
            curve=self._curve(tls.CURVES),
        )
        try:
            return tls.TlsContext(rules)
        except tls.TlsError as error:
            key = f"{error.key}_file" if getattr(self._section, f"{error.key}_file", "") else error.key
            value = ... if key in ("cert", "key", "client_ca") else getattr(self._section, key)  # PEM is not shown
            hint = "PEM is needed, a key without a password and the certificate that was made for it"
            raise self._tls_error(key, str(error), hint, value) from error

    def _choice(self, key: str, value: str, known: Collection[str]) -> str:
        if value not in known:
            raise self._tls_error(key, "not known", f"write one of {', '.join(sorted(known))}", value)
        return value

    def _max_version(self, known: Collection[str]) -> str:
        low, high = self._section.min_version, self._choice("max_version", self._section.max_version, known)
        if low > high:  # TLS12, TLS13
            raise self._tls_error("min_version", f"above max_version, {high}", "write the lower one here", low)
        return high

    def _ciphers(self, known: Collection[str], of_tls13: Collection[str]) -> tuple[str, ...]:
        """Select those up to TLS 1.2: those of TLS 1.3 cannot be chosen, nor can they in Go."""
        named = self._section.cipher_suites
        for i, name in enumerate(named):
            self._choice(f"cipher_suites[{i}]", name, {*known, *of_tls13})
        found = tuple(name for name in named if name in known)
        if named and not found and self._section.min_version == "TLS12":
            fix = "set min_version to TLS13, or name some of TLS 1.2"
            raise self._tls_error("cipher_suites", "all are of TLS 1.3", fix)
        return found

    def _curve(self, known: Collection[str]) -> str:
        named = self._section.curve_preferences
        for i, name in enumerate(named):
            self._choice(f"curve_preferences[{i}]", name, known)
        if len(named) > 1:
            fix = "name the one that clients must support, or leave the key out to allow all"
            raise self._tls_error("curve_preferences", "Python can set only one", fix)
        return named[0] if named else ""

    def _pem(self, key: str) -> bytes:
        """Read the PEM that is the value of `key`, or that is in the file of `key`_file."""
        text, name = getattr(self._section, key), getattr(self._section, f"{key}_file")
        if not isinstance(text, str):
            raise self._tls_error(key, "not a text", f"write PEM in a block (|), or give {key}_file")
        if text and name:
            raise self._tls_error(key, f"given beside {key}_file", "keep one of the two")
        if text:
            return text.encode()
        if not name:
            raise self._tls_error(f"{key}_file", "missing", "TLS needs cert_file and key_file")
        try:
            return _read(self._folder / name, self._files)
        except OSError as error:
            fix = f"name a file that memwatch's user can read; a relative path counts from {self._folder.absolute()}"
            raise self._tls_error(f"{key}_file", str(error.strerror), fix, name) from error

    def _client_ca(self, known: Collection[str]) -> bytes | None:
        policy = self._section.client_auth_type
        if policy in UNVERIFIED:
            fix = "write RequireAndVerifyClientCert with client_ca_file, or NoClientCert"
            problem = "would accept unverified certificates, which Python cannot"
            raise self._tls_error("client_auth_type", problem, fix, policy)
        checks = self._choice("client_auth_type", policy or "NoClientCert", known) != "NoClientCert"
        given = self._section.client_ca != "" or self._section.client_ca_file != ""
        if checks and not given:
            fix = "name the CA that signs them: client_ca_file"
            raise self._tls_error("client_auth_type", "there is no CA to verify certificates of clients", fix, policy)
        if given and not checks:
            fix = "add client_auth_type: RequireAndVerifyClientCert"
            raise self._tls_error("client_ca_file", "no client is asked for a certificate", fix)
        return self._pem("client_ca") if given else None

    def _client_names(self) -> frozenset[str]:
        names = self._section.client_allowed_sans
        if names is not None and self._section.client_auth_type != "RequireAndVerifyClientCert":
            fix = "add client_auth_type: RequireAndVerifyClientCert"
            raise self._tls_error("client_allowed_sans", "a client may come without a certificate", fix)
        if names is not None and not names:
            raise self._tls_error("client_allowed_sans", "nobody is allowed", "name some, or leave the key out")
        return frozenset(names or ())

    # --- HTTP ---

    def _headers(self) -> str:
        lines = ""
        for name, value in self._config.http_server_config.headers.items():
            path, text = f"http_server_config.headers.{name}", str(value)
            if name not in HEADERS:
                raise self._error(path, "not a header that can be set", f"write one of {', '.join(HEADERS)}")
            if HEADERS[name] and text not in HEADERS[name]:
                raise self._error(path, "not known", f"write one of {', '.join(HEADERS[name])}", text)
            if not re.fullmatch(r"[\t -~]*", text):
                raise self._error(path, "not one line of ASCII", "take the other characters out", text)
            if text and name != ALWAYS_SENT:
                lines += f"{name}: {text}\r\n"
        return lines

    def _limit(self) -> RateLimit | None:
        section = self._config.rate_limit
        seconds = _seconds(section.interval)
        if seconds is None:
            fix = "write a duration, as 1s or 500ms; 0: no limit"
            raise self._error("rate_limit.interval", "not a duration", fix, section.interval)
        if seconds and section.burst < 1:
            fix = "write how many requests may come at once, at least 1"
            raise self._error("rate_limit.burst", "no request would be answered", fix, section.burst)
        return RateLimit(seconds, section.burst) if seconds else None

    # --- users: no message shows a password or a hash ---

    def _users(self) -> Passwords | None:
        users = self._config.basic_auth_users
        if not isinstance(users, dict):
            raise self._error("basic_auth_users", "not names with hashes", "write name: hash, one a line")
        for name, hashed in users.items():
            self._check_user(f"basic_auth_users.{name}", name, hashed)
        if not users:
            return None
        try:
            from memwatch.outputs.http.password_hashes import Passwords
        except ImportError as error:
            fix = "pip install 'memwatch[auth]', which brings bcrypt"
            raise self._error("basic_auth_users", f"passwords cannot be checked ({error})", fix) from error
        return Passwords(users)

    def _check_user(self, path: str, name: str, hashed: object) -> None:
        found = _HASH.fullmatch(hashed) if isinstance(hashed, str) else None
        if ":" in name:
            raise self._error(path, "a name must not contain : (it separates name and password)", "choose another")
        if found is None:
            raise self._error(path, "not a bcrypt hash", "make one: htpasswd -nB NAME; it begins with $2y$")
        if not 4 <= int(found[1]) <= MAX_HASH_COST:
            fix = f"make one of 10 to 12 (htpasswd -nB -C 10 NAME), {MAX_HASH_COST} at most: each step doubles the time"
            raise self._error(path, f"a hash of cost {int(found[1])}", fix)


# 1m30s
def _seconds(interval: str | int) -> float | None:
    """Parse a duration as Go writes it; None for anything else."""
    if interval in (0, "0"):
        return 0.0
    text = str(interval)
    if not _DURATION.fullmatch(text):
        return None
    parts = re.findall(r"([\d.]+)(\D+)", text)
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
