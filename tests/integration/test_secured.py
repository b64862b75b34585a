"""A watch behind TLS, client certificates and passwords, as integrations.md sets it up, scraped by a Prometheus."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from memwatch.errors import ExitCode
from support.certificates import PASSWORD, hashed
from support.mainjob import ROOT, Folder, Memwatch, free_port, memwatch, until
from support.needed import needs_program
from support.processes import WAIT, python, running

pytestmark = pytest.mark.integration

SECTION = (ROOT / "docs" / "integrations.md").read_text().split("## Securing the endpoint")[1].split("\n## ")[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands of the document make: certificates, a hash, and a web-config.yml with both."""
    folder, commands = tmp_path_factory.mktemp("made"), "\n".join(blocks("sh"))
    commands = re.sub(r"^pip install .*$", "", commands, flags=re.MULTILINE)
    commands = commands.replace("python -c", f"{sys.executable} -W ignore -c")
    done = subprocess.run(
        ["sh", "-ec", commands], cwd=folder, input=f"{PASSWORD}\n", capture_output=True, text=True, check=True
    )
    [computed] = re.findall(r"\$2b\$10\$\S{53}", done.stdout)
    told = yaml.safe_load(blocks("yaml")[0].replace("$2b$10$...", computed))
    for line in re.findall(r"`(client_(?:auth_type|ca_file): [^`]*)`", SECTION):
        told["tls_server_config"].update(yaml.safe_load(line))
    (folder / "web-config.yml").write_text(yaml.safe_dump(told))
    (folder / "password").write_text(f"{PASSWORD}\n")
    return folder


@contextmanager
def watch(folder: Folder, *options: str, name: str = "memwatch") -> Iterator[Memwatch]:
    with running(python(WAIT)) as target:
        arguments = ("--pid", str(target.pid), "--json", "--history", "none", *options)
        with memwatch(folder, *arguments, name=name) as daemon:
            until(lambda: daemon.named("armed") or daemon.process.poll() is not None)
            yield daemon


def notes(daemon: Memwatch) -> str:
    return "\n".join(one["text"] for one in daemon.named("note"))


@needs_program("promtool")
def test_promtool_accepts_what_the_document_makes(made: Path) -> None:
    done = subprocess.run(
        ["promtool", "check", "web-config", made / "web-config.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@needs_program("prometheus")
def test_prometheus_scrapes_it_with_certificate_and_password(made: Path, tmp_path: Path) -> None:
    port, own = free_port(), free_port()
    told = yaml.safe_load(blocks("yaml")[1].replace("localhost:9877", f"localhost:{port}"))
    told["global"] = {"scrape_interval": "500ms", "scrape_timeout": "400ms"}
    (made / "prometheus.yml").write_text(yaml.safe_dump(told))
    options = ("--listen", f"127.0.0.1:{port}", "--web-config", str(made / "web-config.yml"))
    command = [
        *("prometheus", f"--config.file={made / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"),
        f"--web.listen-address=127.0.0.1:{own}",
    ]

    def found(query: str) -> list[str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{own}/api/v1/query?query={query}", timeout=5) as answer:
                return [one["value"][1] for one in json.load(answer)["data"]["result"]]
        except OSError:
            return []

    with watch(Folder(tmp_path), *options) as daemon, (tmp_path / "prometheus.log").open("wb") as log:
        scraper = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            until(lambda: found("up") == ["1"] or scraper.poll() is not None, 30)
            until(lambda: found("memwatch_target_up") == ["1"], 30)
            until(lambda: float(found("memwatch_ticks_total")[0]) > 2, 30)
            assert found("memwatch_web_refusals_total") == ["0"]
        except (AssertionError, IndexError) as error:
            raise AssertionError((tmp_path / "prometheus.log").read_text() + daemon.said()) from error
        finally:
            scraper.kill()
            scraper.wait()


def test_top_sees_it_with_what_it_asks_for(made: Path, tmp_path: Path) -> None:
    port = free_port()
    files = ("--ca-file", "memwatch.crt", "--cert", "prometheus.crt", "--key", "prometheus.key")

    def top(url: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "memwatch", "top", url, "-1", *options]
        environ = {**Folder(tmp_path).environ(), "LANG": "C.UTF-8"}
        return subprocess.run(command, cwd=made, env=environ, capture_output=True, text=True, timeout=60, check=False)

    with watch(
        Folder(tmp_path), "--listen", f"127.0.0.1:{port}", "--web-config", str(made / "web-config.yml")
    ) as daemon:
        assert f"metrics and status: https://127.0.0.1:{port}/" in notes(daemon)
        there = f"127.0.0.1:{port}"
        shown = top(f"https://prometheus@{there}", "--password-file", "password", *files)
        assert shown.returncode == ExitCode.ENDED, shown.stderr
        assert "limit:" in shown.stdout
        shown = top(f"https://prometheus:{PASSWORD.replace(' ', '%20')}@{there}", *files)
        assert shown.returncode == ExitCode.ENDED, shown.stderr
        for url, options, problem, hint in (
            (f"http://{there}", (), "400", "https://"),
            (f"https://{there}", (), "CERTIFICATE_VERIFY_FAILED", "--ca-file"),
            (f"https://{there}", files[:2], "no answer", "--cert"),
            (f"https://{there}", files, "401", "--password-file"),
            (f"https://prometheus:{PASSWORD}@{there}".replace(" ", "_"), files, "401", "--password-file"),
            (f"https://a@{there}", ("--password-file", "nothing"), "nothing: No such file", "--password-file"),
            (f"https://{there}", ("--ca-file", "password"), "password: ", "--ca-file"),
        ):
            refused = top(url, *options)
            assert refused.returncode in (ExitCode.CANNOT_ATTACH, ExitCode.USAGE), refused.stderr
            assert problem in refused.stderr and hint in refused.stderr
            assert "correct" not in refused.stderr, "the password is never shown"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "anybody who reaches http://0.0.0.0:"),
        ("", "anybody who reaches http://0.0.0.0:"),
        ("tls", "anybody who reaches https://0.0.0.0:"),
        ("users", "passwords reach http://0.0.0.0:"),
        ("tls users", ""),
    ],
)
def test_what_others_see_is_told_at_the_start(made: Path, tmp_path: Path, text: str | None, told: str) -> None:
    path = tmp_path / "web-config.yml"
    parts = {
        "tls": f"tls_server_config: {{cert_file: {made / 'memwatch.crt'}, key_file: {made / 'memwatch.key'}}}\n",
        "users": f"basic_auth_users: {{alice: '{hashed()}'}}\n",
    }
    path.write_text("".join(parts[name] for name in (text or "").split()))
    options = () if text is None else ("--web-config", str(path))
    with watch(Folder(tmp_path), "--listen", "0.0.0.0:0", *options) as daemon:
        shown = notes(daemon)
        assert "metrics and status: " in shown
        assert (told in shown) if told else ("reach" not in shown)


@pytest.mark.parametrize("begins", ["run", "watch"])
def test_a_file_that_cannot_be_used_is_refused_before_anything_is_started(tmp_path: Path, begins: str) -> None:
    (tmp_path / "web.yml").write_text("basic_auth_users:\n  alice: a password in the clear\n")
    with running(python(WAIT)) as target:
        option = ("--web-config", "web.yml")
        watching, run = ("--pid", str(target.pid), *option), ("run", *option, "--", "touch", "started")
        refused = Memwatch(Folder(tmp_path), *(run if begins == "run" else watching))
        assert refused.wait() == ExitCode.USAGE, refused.said()
    assert "web.yml:2: basic_auth_users.alice: not a bcrypt hash" in refused.said()
    assert "in the clear" not in refused.said()
    assert not (tmp_path / "started").exists()


def test_doctor_tells_what_is_asked_and_what_fails(made: Path, tmp_path: Path) -> None:
    def listen(*options: str) -> dict[str, str]:
        command = [sys.executable, "-m", "memwatch", "doctor", "--json", "--listen", "127.0.0.1:0", *options]
        environ = Folder(tmp_path).environ()
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
        return next(one for one in json.loads(done.stdout) if one["part"] == "listen")

    good = listen("--web-config", str(made / "web-config.yml"))
    assert good["level"] == "ok"
    assert good["text"].startswith("https://127.0.0.1:")
    assert good["text"].endswith(", asks for TLS and a client certificate and a password")
    bad = listen("--web-config", str(tmp_path / "none.yml"))
    assert bad["level"] == "FAIL"
    assert "No such file" in bad["text"]
