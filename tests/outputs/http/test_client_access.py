"""Who may use the server: passwords and what their hashes cost, the rate limit, files that change meanwhile."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import bcrypt
import pytest

from memwatch.errors import ConfigError
from memwatch.outputs.http.client_access import (
    PASSWORD,
    RELOAD_CHECK_SECONDS,
    AccessPolicy,
    AccessPolicyReloader,
    RateLimit,
    stamp,
)
from memwatch.outputs.http.password_hashes import MAX_WAIT_SECONDS, MOST_WRONG, REST_RATIO, Passwords
from support.certificates import hashed
from support.stopwatch import Stopwatch


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


class Counted:
    """bcrypt, with how often it was asked; `seconds` longer than it takes."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.asked: list[tuple[bytes, bytes]] = []
        self.at_once = self.most_at_once = 0
        self._seconds = seconds

    def __call__(self, password: bytes, hashed: bytes) -> bool:
        self.asked.append((password, hashed))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(self._seconds)
        right = bcrypt.checkpw(password, hashed)
        self.at_once -= 1
        return right


def passwords(verify: Callable[[bytes, bytes], bool], **users: str) -> Passwords:
    return Passwords({name: hashed(password) for name, password in users.items()}, verify)


# --- passwords ------------------------------------------------------------------------------------------------------


def test_a_right_password_is_computed_once() -> None:
    verify = Counted()
    users = passwords(verify, alice="a", bob="b")
    assert [users.verify(basic("alice", "a")) for _ in range(100)] == [True] * 100
    assert users.verify(basic("bob", "b"))
    assert len(verify.asked) == 2


@pytest.mark.parametrize(
    "header",
    [
        *("", "Basic", "Basic ", "Basic ???", "Basic \xff", "Bearer abc", "Basic YWxpY2U=", "Digest YWxpY2U6YQ=="),
        *(basic("alice", ""), basic("", "a"), basic("bob", "a"), basic("Alice", "a"), basic("alice", "A")),
        *(
            basic("alice", "a\0"),
            basic("alice", "a "),
            basic("alice\0", "a"),
            f"{basic('alice', 'a')}, {basic('x', 'y')}",
        ),
        "Basic " + base64.b64encode(b"\xff\xfe:a").decode(),
    ],
)
def test_all_else_is_refused(header: str) -> None:
    assert not passwords(bcrypt.checkpw, alice="a").verify(header)


@pytest.mark.parametrize("password", ["", "a:b", "é", "\0", "x" * 71, "y" * 500])
def test_any_password_may_be_right(password: str) -> None:
    known = bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(4)).decode()
    users = Passwords({"zoë": known})
    assert users.verify(basic("zoë", password))
    assert users.verify(basic("zoë", password).replace("Basic", "basic"))
    assert not users.verify(basic("zoë", f"!{password}"))


def test_a_wrong_password_is_remembered_and_no_more_of_them_than_some() -> None:
    verify = Counted()
    users = passwords(verify, alice="a")
    assert [users.verify(basic("alice", "old")) for _ in range(100)] == [False] * 100
    assert len(verify.asked) == 1
    for i in range(MOST_WRONG + 10):
        users.verify(basic("alice", f"{i}"))
    assert len(users._wrong) == MOST_WRONG
    assert users.verify(basic("alice", "a")) and users.verify(basic("alice", "a"))


def test_what_was_right_of_one_user_is_wrong_of_another() -> None:
    users = passwords(bcrypt.checkpw, alice="a", bob="b")
    assert users.verify(basic("alice", "a"))
    assert not users.verify(basic("bob", "a"))
    assert not users.verify(basic("carol", "a"))
    assert not users.verify(basic("carol", "b"))


def test_an_unknown_user_is_compared_with_a_hash_too() -> None:
    verify = Counted()
    users = passwords(verify, alice="a", bob="b")
    assert not users.verify(basic("carol", "x"))
    assert not users.verify(basic("carol", "y"))
    assert len(verify.asked) == 2
    assert verify.asked[0][1] == verify.asked[1][1], "the same, or the time would tell that there is no such user"


def test_who_tries_out_passwords_gets_a_small_share_and_stops_nobody_who_is_known() -> None:
    took = 0.01
    verify = Counted(took)
    users = passwords(verify, alice="a")
    assert users.verify(basic("alice", "a"))
    end = time.monotonic() + 2.0

    def flood(number: int) -> None:
        i = 0
        while time.monotonic() < end:
            assert not users.verify(basic("alice", f"{number} {i}"))
            i += 1

    threads = [threading.Thread(target=flood, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    waits = []
    while time.monotonic() < end:
        began = Stopwatch()
        assert users.verify(basic("alice", "a"))
        waits.append(began.undisturbed_seconds)
        time.sleep(0.01)
    for thread in threads:
        thread.join()
    assert verify.most_at_once == 1
    assert 3 <= len(verify.asked) <= 2 + (2.0 + MAX_WAIT_SECONDS) / (took * (1 + REST_RATIO))
    assert sorted(waits)[len(waits) // 2] < took


def test_after_a_very_dear_wrong_password_others_are_told_to_come_again() -> None:
    users = passwords(Counted(1.2 * MAX_WAIT_SECONDS / REST_RATIO), alice="a", bob="b")
    assert users.verify(basic("alice", "wrong")) is False
    began = Stopwatch()
    assert users.verify(basic("bob", "b")) is None
    assert began.undisturbed_seconds < 1.0
    refusal = AccessPolicy(passwords=users).refusal(basic("bob", "b"))
    assert refusal is not None
    assert (refusal.code, refusal.headers) == (429, "Retry-After: 5\r\n")


def test_a_hash_is_computed_without_the_interpreters_lock() -> None:
    dear = bcrypt.hashpw(b"a", bcrypt.gensalt(12))
    other = threading.Thread(target=bcrypt.checkpw, args=(b"b", dear))
    other.start()
    turns = 0
    while other.is_alive():
        turns += 1
    assert turns > 10_000, "this thread ran all the while"


def test_nothing_of_a_password_is_kept_or_shown() -> None:
    users = passwords(bcrypt.checkpw, alice="in the clear")
    users.verify(basic("alice", "in the clear"))
    users.verify(basic("alice", "in the dark"))
    assert b"in the" not in repr(vars(users)).encode()


# --- the rate -------------------------------------------------------------------------------------------------------


def test_a_burst_and_then_one_each_interval() -> None:
    t = [0.0]
    limit = RateLimit(2.0, burst=3, now=lambda: t[0])
    assert [limit.allows() for _ in range(5)] == [True] * 3 + [False] * 2
    t[0] = 1.9
    assert not limit.allows()
    t[0] = 2.0
    assert [limit.allows(), limit.allows()] == [True, False]
    t[0] = 1000.0
    assert [limit.allows() for _ in range(4)] == [True] * 3 + [False]
    refusal = AccessPolicy(limit=limit).refusal("")
    assert refusal is not None and refusal.code == 429


# --- files that change ----------------------------------------------------------------------------------------------


class Folder:
    """A file whose text is the headers in force; `bad` cannot be read, `open` asks for no password."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.loads = 0
        self.t = 0.0

    def write(self, text: str) -> None:
        """As an editor does: another file takes its place."""
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.replace(self.path)

    def load(self) -> AccessPolicy:
        self.loads += 1
        files: Mapping = {str(self.path): stamp(self.path.stat())}
        text = self.path.read_text()
        if text == "bad":
            raise ConfigError("it is bad")
        return AccessPolicy(None, None if text == "open" else Passwords({"a": hashed()}), None, text, files)

    def reloader(self) -> AccessPolicyReloader:
        return AccessPolicyReloader(self.load, lambda: self.t)

    def later(self) -> None:
        self.t += RELOAD_CHECK_SECONDS


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "file")
    made.write("one")
    return made


def test_a_file_that_stays_is_read_once(folder: Folder) -> None:
    reloader = folder.reloader()
    for _ in range(10):
        folder.later()
        assert reloader.current_policy().headers == "one"
    assert folder.loads == 1


def test_a_changed_file_is_in_force_at_the_next_look(folder: Folder) -> None:
    reloader = folder.reloader()
    folder.write("two")
    assert reloader.current_policy().headers == "one"
    folder.later()
    assert reloader.current_policy().headers == "two"
    folder.path.write_text("three")
    folder.later()
    assert reloader.current_policy().headers == "three"
    assert reloader.problem == ""


@pytest.mark.parametrize("text", ["bad", "open", None], ids=["broken", "asks for less", "gone"])
def test_a_file_that_cannot_be_used_changes_nothing_until_it_is_mended(folder: Folder, text: str | None) -> None:
    reloader = folder.reloader()
    if text is None:
        folder.path.unlink()
    else:
        folder.write(text)
    for _ in range(3):
        folder.later()
        assert reloader.current_policy().headers == "one"
        assert reloader.requirements == {PASSWORD}
        assert reloader.problem.endswith("; the previous settings stay in force")
    folder.write("two")
    folder.later()
    assert reloader.current_policy().headers == "two"
    assert reloader.problem == ""


def test_more_may_be_asked_at_any_time(folder: Folder) -> None:
    folder.write("open")
    reloader = folder.reloader()
    assert reloader.requirements == frozenset()
    folder.write("closed")
    folder.later()
    assert reloader.current_policy().requirements == {PASSWORD}


def test_a_file_that_is_bad_at_the_start_is_refused(folder: Folder) -> None:
    folder.write("bad")
    with pytest.raises(ConfigError, match="it is bad"):
        folder.reloader()


def test_a_file_system_that_hangs_holds_one_client_up(folder: Folder) -> None:
    hangs, reached = threading.Event(), threading.Event()

    def load() -> AccessPolicy:
        if folder.loads:
            reached.set()
            assert hangs.wait(10)
        return folder.load()

    reloader = AccessPolicyReloader(load, lambda: folder.t)
    folder.write("two")
    folder.later()
    first = threading.Thread(target=reloader.current_policy)
    first.start()
    assert reached.wait(10)
    assert reloader.current_policy().headers == "one"
    hangs.set()
    first.join()
    assert reloader.current_policy().headers == "two"
