"""The whole of a watch as the user nobody, without a capability; and nothing that the trainer computes with is kept."""

from __future__ import annotations

import os
import stat
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from support.commoner import NOBODY, Commons, as_user, commons, needs_two_users
from support.mainjob import PATIENCE_SECONDS, free_port

pytestmark = pytest.mark.integration

# Made at run time, so that no constant of the program's code is one of them.
SECRETS = """
import os, signal, sys, time
def made(name): return "".join(("s3cr3t", "_", name))
class Trainer:
    def __init__(self):
        self.token = made("attribute")
        self.kept = {made("key"): [], made("key") + "-" + "dashed": []}
        self.table = {made("name"): made("value"), "limit": made("item").encode()}
trainer = Trainer()
def stop(number, frame):
    open("state.ckpt", "wb").write(b"x" * 1000)
    print("Checkpoint saved: state.ckpt", flush=True)
    sys.exit(130)
signal.signal(signal.SIGINT, stop)
def learn(password):
    local = made("local")
    for generation in range(1, 61):
        print(f"Generation {generation} / 60", flush=True)
        for _ in range(12):
            trainer.kept[made("key")].append([bytearray(b"x" * 3_000_000)])
            time.sleep(0.025 if generation < 9 or os.path.exists("go") else 0.25)  # slow until it was looked into
learn(made("argument"))
"""


@needs_two_users
def test_nobody_watches_interrupts_and_reports_and_no_secret_is_kept() -> None:
    with commons() as here:
        _watches_and_keeps_no_secret(here)


def _watches_and_keeps_no_secret(here: Commons) -> None:
    place, environ, port = here.path, here.environ(), free_port()
    tool = as_user(NOBODY, here.python, "-m", "memwatch")
    options = ["--limit", "900MB", "--listen", f"127.0.0.1:{port}", "--interval", "0.2"]
    (place / "memwatch.yaml").write_text("policy: {confirmation_seconds: 0.2, checkpoint_seconds: 0.5}\n")

    def run(*words: str) -> bytes:
        return subprocess.run(
            [*tool, *words], cwd=place, env=environ, capture_output=True, check=True, timeout=60
        ).stdout

    own = {**os.environ, "API_TOKEN": "s3cr3t_environment"}
    with (place / "main.log").open("wb") as log, (place / "told").open("wb") as told:
        trainer = subprocess.Popen(
            as_user(NOBODY, here.python, "-u", "-c", SECRETS), stdout=log, stderr=log, cwd=place, env=own
        )
        watch = subprocess.Popen(
            [*tool, "--pid", str(trainer.pid), "--log", "main.log", "--config", "memwatch.yaml", "--json", *options],
            stdout=told, stderr=told, cwd=place, env=environ,
        )  # fmt: skip
        try:
            shown = _shown(watch, port)
            snapshot = run("snapshot", "--pid", str(trainer.pid), "--json")
            (place / "go").touch()
            assert trainer.wait(PATIENCE_SECONDS) == 130
            assert watch.wait(PATIENCE_SECONDS) == 10, (place / "told").read_text()[-2000:]
        finally:
            for process in (watch, trainer):
                process.kill()
                process.wait()
    run("report", "-o", "report.html")
    said = (place / "told").read_bytes()
    assert b'"event":"interrupt"' in said and b'"event":"saved"' in said and b'"event":"examined"' in said
    assert b"Trainer.kept" in (place / "report.html").read_bytes(), "it was looked into"
    _is_private(place / "state" / "memwatch")
    everything = {**shown, "snapshot": snapshot, "journal": said}
    everything |= {
        str(path): path.read_bytes() for path in place.rglob("*") if path.is_file() and path.suffix != ".log"
    }
    assert any(name.endswith("history.db") for name in everything) and any("snapshots/" in name for name in everything)
    assert {name for name, data in everything.items() if b"s3cr3t_" in data} == set()


def _shown(watch: subprocess.Popen[bytes], port: int) -> dict[str, bytes]:
    """What each page says once the heap was examined."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until and watch.poll() is None:
        try:
            if b"Trainer.kept" in _page(port, "/status.json"):
                return {path: _page(port, path) for path in ("/status.json", "/", "/metrics")}
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the trainer's heap was not examined: {watch.poll()}")


def _page(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return bytes(answer.read())


def _is_private(state: Path) -> None:
    for path in (state, *state.rglob("*")):
        found = path.lstat()
        wanted = 0o700 if path.is_dir() else 0o600
        assert (stat.S_IMODE(found.st_mode), found.st_uid) == (wanted, NOBODY), path
