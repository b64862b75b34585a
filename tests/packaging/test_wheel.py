"""What is built and installed, with the sources gone: commands, the files that travel along, no package `watchdog`."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = "import hatchling.build as b, sys; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"
SOURCES = ("watchdog", "configs", "examples", "pyproject.toml", "README.md", "LICENSE")
LOG = "".join(f"Epoch {epoch}/5\nloss: 0.{9 - epoch}\n" for epoch in range(1, 6))
TRACE = "t,rss,limit,gen,phase,total_gens\n" + "".join(
    f"{t},{10**9 + t * 10**7},{4 * 10**9},{t // 10},work,40\n" for t in range(300)
)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is packaged: building leaves nothing in the sources."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


def build(kind: str, checkout: Path, folder: Path) -> Path:
    pytest.importorskip("hatchling", reason="hatchling builds the package: pip install -r requirements.txt")
    made = subprocess.run(
        [sys.executable, "-c", BUILD, kind, str(folder)], cwd=checkout, capture_output=True, text=True, check=True
    )
    return folder / made.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", checkout, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The `bin` of a virtual environment that has this wheel and, by a .pth, the dependencies of the tests' own."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    purelib = Path(sysconfig.get_path("purelib", "posix_prefix", vars={"base": str(folder), "platbase": str(folder)}))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, "--disable-pip-version-check"], check=True, capture_output=True)
    dependencies = tmp_path_factory.mktemp("dependencies")
    for entry in Path(site.getsitepackages()[0]).iterdir():
        if "memwatch" not in entry.name and entry.suffix != ".pth":
            (dependencies / entry.name).symlink_to(entry)
    (purelib / "dependencies.pth").write_text(f"{dependencies}\n")
    yield folder / "bin"


def memwatch(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As a user would call it, far from the sources."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [installed / "memwatch", *arguments], capture_output=True, text=True, cwd=installed, env=environ, check=False
    )


def test_the_wheel_holds_memwatch_and_nothing_else_at_its_top(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"memwatch"}
    assert "memwatch/py.typed" in names


def test_watchdog_is_a_folder_and_never_a_package() -> None:
    assert not (ROOT / "watchdog" / "__init__.py").exists(), "`watchdog` on PyPI belongs to others"
    assert {path.name for path in (ROOT / "watchdog").iterdir() if path.name[0] not in "._"} == {"memwatch"}


def test_all_that_travels_along_is_the_same_as_in_the_sources(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    sources = {
        "memwatch/data/memwatch.yaml": ROOT / "configs" / "memwatch.yaml",
        "memwatch/data/evolve.py": ROOT / "examples" / "evolve.py",
        **{
            f"memwatch/data/{kind}/{path.name}": path
            for kind in ("markers", "profiles")
            for path in (ROOT / "configs" / kind).glob("*.yaml")
        },
    }
    assert {name for name in archive.namelist() if name.startswith("memwatch/data/")} == set(sources)
    for name, path in sources.items():
        assert archive.read(name) == path.read_bytes()


def test_it_is_installed_without_the_sources(installed: Path) -> None:
    code = "import memwatch, importlib.util as u; print(memwatch.__file__, u.find_spec('watchdog'))"
    command = [installed / "python", "-c", code]
    where = subprocess.run(command, capture_output=True, text=True, cwd=installed, check=True)
    file, watchdog = where.stdout.split()
    assert Path(file).is_relative_to(installed.parent)
    assert watchdog == "None"


def test_version_and_help(installed: Path) -> None:
    from memwatch import __version__

    assert memwatch(installed, "--version").stdout == f"memwatch {__version__}\n"
    asked = memwatch(installed, "demo", "--help")
    assert asked.returncode == 0
    assert "--dry-run" in asked.stdout


def test_markers_finds_its_presets(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "main.log").write_text(LOG)
    asked = memwatch(installed, "markers", str(tmp_path / "main.log"), "--json")
    found = json.loads(asked.stdout)
    assert (found["unit"], found["total"], [one["index"] for one in found["markers"]]) == ("epoch", 5, [1, 2, 3, 4, 5])
    assert found["preset"] == "keras"


def test_replay(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    lines = memwatch(installed, "replay", str(tmp_path / "t.csv"), "--json").stdout.splitlines()
    assert any(json.loads(line)["event"] == "interrupt" for line in lines)


def test_doctor_and_run(installed: Path, tmp_path: Path) -> None:
    state = ("--history", str(tmp_path / "h.db"), "--listen", "none")
    asked = memwatch(installed, "doctor", *state)
    assert asked.returncode == 0, asked.stderr
    started = memwatch(installed, "run", *state, "--", sys.executable, "-c", "import time; time.sleep(0.5); exit(7)")
    assert started.returncode == 7, started.stderr


def test_profiles_and_the_schema_travel_along(installed: Path) -> None:
    shown = memwatch(installed, "config", "show", "--profile", "observe", "--json")
    assert json.loads(shown.stdout)["config"]["policy"]["act"] is False
    schema = json.loads(memwatch(installed, "config", "schema").stdout)
    assert schema["properties"]["profile"]["description"]


def test_the_source_distribution_builds_the_same_wheel(checkout: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", checkout, tmp_path)) as archive:
        if sys.version_info >= (3, 12):
            archive.extractall(tmp_path, filter="data")
        else:
            archive.extractall(tmp_path)
    [unpacked] = [path for path in tmp_path.iterdir() if path.is_dir()]
    again = build("wheel", unpacked, tmp_path)
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())
