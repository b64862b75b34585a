"""Basic authentication: users' passwords against their bcrypt hashes. No other module imports bcrypt.

A hash takes 60 ms of CPU at cost 10 and four times as much at 12. The GIL is released meanwhile: no other thread waited
longer than 0.4 ms. Results are remembered, one hash is computed at a time, and a pause follows a wrong password, so
that guessing passwords takes 5 % of a core.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import os
import re
import threading
import time
from collections.abc import Callable, Mapping

import bcrypt

MAX_WAIT_SECONDS = 2.0  # that a client waits until its password is checked (chosen)
REST_RATIO = 19.0  # pause after a wrong password, as a multiple of the time it took: 1 / (1 + 19) = 5 % of a core
MOST_WRONG = 64  # wrong passwords that are remembered, as a scraper repeats an old one (chosen)
_BASIC = re.compile(r"basic +([A-Za-z0-9+/]+={0,2}) *", re.IGNORECASE | re.ASCII)
_BCRYPT_BYTES = 72  # bytes of a password that count; Go and htpasswd drop the rest, the package bcrypt refuses it


class Passwords:
    """Checks users and passwords, in a time that reveals nothing about them."""

    def __init__(self, hashes: Mapping[str, str], verify: Callable[[bytes, bytes], bool] = bcrypt.checkpw) -> None:
        """`hashes` has at least one user's `$2y$10$...`, by name."""
        self._hashes = {name.encode(): hashed.encode() for name, hashed in hashes.items()}
        self._decoys = list(self._hashes.values())
        self._verify = verify
        self._salt = os.urandom(32)
        self._right: dict[bytes, bytes] = {}  # digest of the right password, by user
        self._wrong: dict[bytes, None] = {}  # digests of wrong passwords, the oldest first
        self._hashing = threading.Lock()  # held while a hash is computed
        self._pause_end_t = 0.0  # time.monotonic() from which the next hash may be computed

    def verify(self, authorization: str) -> bool | None:
        """Whether the header names a user and the right password; None if that cannot be checked now."""
        given = _parse_basic(authorization)
        if given is None:
            return False
        name, password = given[0], given[1][:_BCRYPT_BYTES]
        digest = self._digest(name, password)
        known = self._remembered(name, digest)
        if known is not None or not self._hashing.acquire(timeout=MAX_WAIT_SECONDS):
            return known
        try:
            known = self._remembered(name, digest)  # another client may have asked the same meanwhile
            return known if known is not None else self._compute(name, password, digest)
        finally:
            self._hashing.release()

    def _digest(self, *parts: bytes) -> bytes:
        """The key by which a password is remembered; it cannot be computed outside this process."""
        digest = hashlib.blake2b(key=self._salt, digest_size=32)
        for part in parts:
            digest.update(b"%d:%b" % (len(part), part))
        return digest.digest()

    def _remembered(self, name: bytes, digest: bytes) -> bool | None:
        if hmac.compare_digest(self._right.get(name, b""), digest):
            return True
        return False if digest in self._wrong else None

    def _compute(self, name: bytes, password: bytes, digest: bytes) -> bool | None:
        pause_seconds = self._pause_end_t - time.monotonic()
        if pause_seconds > MAX_WAIT_SECONDS:
            return None
        time.sleep(max(0.0, pause_seconds))
        began = time.monotonic()
        # An unknown name is compared with some user's hash, the same each time: it takes as long as a user's.
        decoy = self._decoys[int.from_bytes(self._digest(name), "big") % len(self._decoys)]
        is_right = self._verify(password, self._hashes.get(name, decoy)) and name in self._hashes
        if is_right:
            self._right[name] = digest
        else:
            self._wrong[digest] = None
            self._pause_end_t = time.monotonic() + REST_RATIO * (time.monotonic() - began)
            if len(self._wrong) > MOST_WRONG:
                del self._wrong[next(iter(self._wrong))]
        return is_right


# Basic dXNlcjpwYXNzd29yZA==
def _parse_basic(authorization: str) -> tuple[bytes, bytes] | None:
    """Returns name and password of an Authorization header; None if it has none."""
    found = _BASIC.fullmatch(authorization)
    if found is None:
        return None
    try:
        name, colon, password = binascii.a2b_base64(found[1]).partition(b":")
    except binascii.Error:
        return None
    return (name, password) if colon else None
