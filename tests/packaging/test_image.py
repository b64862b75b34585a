"""The image: what it is built of, that every step of the Dockerfile works, and a watch from it beside a trainer."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker

from memwatch import __version__
from support import images
from support.images import ROOT, Image
from support.mainjob import until

HADOLINT = Path(sys.executable).with_name("hadolint")
pytestmark = pytest.mark.timeout(300)  # the first to ask for the image waits for it to be built

LOCKS = ("requirements-image.txt", "requirements-build.txt")
SIDECAR = ROOT / "configs" / "kubernetes" / "sidecar" / "memwatch.yaml"
# As in the sidecar's manifest, but for a trainer that is no other test's, and a pace that tests can wait for.
ENVIRONMENT = (
    "MEMWATCH_MEMORY__LIMIT=120000000",
    "MEMWATCH_TARGET__MATCH=/programs/leak",
    "MEMWATCH_MEMORY__INTERVAL_SECONDS=0.2",
)
TRAINER = "cd /runs; exec python -u /programs/leak.py saves 60 4 0.5 > main.log 2>&1"

needs_hadolint = pytest.mark.skipif(not HADOLINT.exists(), reason="needs hadolint: pip install -r requirements-dev.txt")


@needs_hadolint
def test_the_dockerfile_has_no_fault_that_hadolint_knows() -> None:
    done = subprocess.run([HADOLINT, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@needs_hadolint
def test_a_fault_is_found(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text((ROOT / "Dockerfile").read_text().replace("ARG BASE=", "ARG BASE\nFROM x AS "))
    done = subprocess.run([HADOLINT, tmp_path / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode != 0


# --- what it is built of ----------------------------------------------------------------------------------------------


def pins(name: str) -> dict[str, str]:
    """The versions of packages; where there are several, that for this Python."""
    found = re.findall(r"^([\w.-]+)==([^\s;]+)(?: *; *([^\\\n]+))?", (ROOT / name).read_text(), re.MULTILINE)
    found.sort(key=lambda one: not one[2] or Marker(one[2]).evaluate())
    return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version, _ in found}


@pytest.mark.parametrize("name", LOCKS)
def test_what_is_installed_is_what_is_tested_and_has_a_hash(name: str) -> None:
    tested = pins("requirements.txt") | pins("requirements-dev.txt")
    locked = pins(name)
    assert locked and {package: tested.get(package) for package in locked} == locked, "make locks"
    for package in re.split(r"\n(?=\S)", (ROOT / name).read_text().strip()):
        assert package.startswith("#") or "--hash=sha256:" in package, package


@pytest.mark.parametrize("text", ["", *LOCKS], ids=["Dockerfile", *LOCKS])
def test_no_place_of_packages_is_named(text: str) -> None:
    assert not re.search(r"https?://|index-url|find-links", (ROOT / (text or "Dockerfile")).read_text())


# --- built and run ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    lacking = images.missing()
    if lacking:
        pytest.skip(f"needs {lacking}: make tools")
    work = tmp_path_factory.mktemp("image")
    yield images.build(work)
    shutil.rmtree(work)  # 1 GB


def within(image: Image, *arguments: str) -> str:
    done = subprocess.run(image.command(arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files(image: Image) -> Iterator[Path]:
    return (Path(folder, name) for folder, _, names in os.walk(image.files) for name in names)


def test_what_an_engine_is_told(image: Image) -> None:
    config = image.config
    assert config["User"] == "65532:65532", "a number: runAsNonRoot cannot read names"
    assert config["ExposedPorts"] == {"9877/tcp": {}}
    assert image.start == ["memwatch", "serve", "--config", "/etc/memwatch/memwatch.yaml"]
    assert config["Volumes"] == {"/var/lib/memwatch": {}}
    labels = config["Labels"]
    assert isinstance(labels, dict) and labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_it_answers_as_whoever_it_is_run(image: Image) -> None:
    assert within(image, "memwatch", "--version").startswith(f"memwatch {__version__}\n")
    for user in ("1000:0", "1000:1000", "1000710000:0"):
        done = subprocess.run(
            image.command(["memwatch", "doctor", "--json"], user), capture_output=True, text=True, check=False
        )
        said = {check["part"]: check for check in json.loads(done.stdout)}
        assert done.returncode == 0 and said["history"]["level"] == "ok", done.stdout + done.stderr


def test_nothing_can_be_installed_and_nothing_of_the_build_is_left(image: Image) -> None:
    code = (
        "import importlib.util as u; print([name for name in ('pip', 'setuptools', 'hatchling') if u.find_spec(name)])"
    )
    assert within(image, "python", "-c", code) == "[]\n"
    left = {path.name for path in files(image)}
    assert not left & {"hatchling", "pip", "pip3", "wheels", "pyproject.toml", "requirements-image.txt", "Dockerfile"}
    assert not (image.files / "src").exists() and not (image.files / "opt/backend").exists()


def test_all_of_it_is_compiled_and_nothing_is_writable_but_its_state(image: Image) -> None:
    package = next(image.files.glob("opt/memwatch/lib/python3*/site-packages/memwatch"))
    assert {path.stem.partition(".")[0] for path in package.rglob("*.pyc")} == {
        path.stem for path in package.rglob("*.py")
    }
    open_to_all = [path for path in image.files.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o002]
    own = [path.relative_to(image.files) for path in open_to_all if not path.is_relative_to(image.files / "tmp")]
    assert own == [Path("var/lib/memwatch")]


@contextmanager
def container(image: Image, *arguments: str, volumes: list[tuple[Path, str, str]]) -> Iterator[subprocess.Popen[str]]:
    command = image.command(arguments, volumes=volumes)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def health(image: Image, pid: int) -> int:
    """The exit status of its own check."""
    asked = image.config["Healthcheck"]
    assert isinstance(asked, dict) and asked["Test"][0] == "CMD"
    return subprocess.run(image.within(pid, asked["Test"][1:]), capture_output=True, check=False).returncode


def until_exited(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for event in map(json.loads, lines):
        yield event
        if event["event"] == "exited":
            return


@pytest.fixture
def pod(tmp_path: Path) -> tuple[Path, Path]:
    """The volumes of a pod: that of its runs, which anybody may write to, and that of the configuration."""
    runs, etc = tmp_path / "runs", tmp_path / "etc"
    runs.mkdir()
    runs.chmod(0o777)
    etc.mkdir()
    shutil.copy(SIDECAR, etc)
    return runs, etc


def test_a_service_from_it_waits_is_healthy_and_saves_a_trainer_beside_it(image: Image, pod: tuple[Path, Path]) -> None:
    runs, etc = pod
    programs = ROOT / "tests" / "programs"
    with ExitStack() as held:
        volumes = [(etc, "/etc/memwatch", "ro"), (runs, "/runs", "ro")]
        watch = held.enter_context(container(image, "env", *ENVIRONMENT, *image.start, "--json", volumes=volumes))
        assert watch.stdout is not None
        assert any('"event":"waiting"' in line for line in watch.stdout)
        until(lambda: health(image, watch.pid) == 0)
        volumes = [(programs, "/programs", "ro"), (runs, "/runs", "rw")]
        trainer = held.enter_context(container(image, "sh", "-c", TRAINER, volumes=volumes))
        told = list(until_exited(watch.stdout))
        assert trainer.wait() == 130 and (runs / "state.ckpt").exists(), told
        decisive = [one for one in told if one["event"] in ("attached", "interrupt", "exited")]
        assert [one["event"] for one in decisive] == ["attached", "interrupt", "exited"], told
        assert decisive[1]["limit_origin"] == "--limit" and decisive[2]["cause"] == "interrupted_saved"
        watch.send_signal(signal.SIGTERM)
        assert watch.wait(timeout=10) == 0


def test_without_an_answer_it_is_not_healthy(image: Image, pod: tuple[Path, Path]) -> None:
    elsewhere = ("env", *ENVIRONMENT, *image.start, "--listen", "127.0.0.1:9878")
    with container(image, *elsewhere, volumes=[(pod[1], "/etc/memwatch", "ro")]) as watch:
        assert watch.stdout is not None and any("waiting" in line for line in watch.stdout)
        assert health(image, watch.pid) == 1
