"""Certificates made by openssl, as a user would make them, and a bcrypt hash."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import bcrypt

PASSWORD = "correct horse"
SERVER = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@cache
def hashed(password: str = PASSWORD, cost: int = 4) -> str:
    """As `htpasswd -nB` writes it; of a low cost, as tests are many."""
    salt = b"$2b$%02d$saltsaltsaltsaltsalt.u" % cost  # the same each time: names of tests hold it
    return bcrypt.hashpw(password.encode(), salt).decode().replace("$2b$", "$2y$")


def self_signed(folder: Path, name: str, *, names: str = SERVER) -> Path:
    """`name`.crt and `name`.key in the folder; the path of the former. It is a CA, too."""
    _openssl(
        *("req", "-x509", *NEW_KEY, "-days", "2", "-subj", f"/CN={name}", "-addext", names),
        *("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")),
    )
    return folder / f"{name}.crt"


def signed(folder: Path, name: str, ca: str, names: str) -> Path:
    """As `self_signed`, for a client, by a CA of the same folder."""
    extensions = folder / f"{name}.ext"
    extensions.write_text(f"{names}\nextendedKeyUsage=clientAuth\n")
    key, request = folder / f"{name}.key", folder / f"{name}.csr"
    _openssl("req", *NEW_KEY, "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request))
    _openssl(
        *("x509", "-req", "-in", str(request), "-CA", str(folder / f"{ca}.crt"), "-CAkey", str(folder / f"{ca}.key")),
        *("-CAcreateserial", "-days", "2", "-extfile", str(extensions), "-out", str(folder / f"{name}.crt")),
    )
    return folder / f"{name}.crt"


def make_all(folder: Path) -> Path:
    """What the tests use: a server, the CA of its clients, a client, a stranger, an encrypted key; the folder."""
    self_signed(folder, "server")
    self_signed(folder, "ca")
    self_signed(folder, "other")
    signed(folder, "client", "ca", "subjectAltName=DNS:prometheus.example.org,IP:::1,email:ops@example.org")
    signed(folder, "stranger", "other", "subjectAltName=DNS:prometheus.example.org")
    _openssl(
        *("ec", "-in", str(folder / "server.key"), "-aes256", "-passout", "pass:x"),
        *("-out", str(folder / "locked.key")),
    )
    return folder


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, stdin=subprocess.DEVNULL)
