"""What is built: these files and no others, the same bytes each time, with the right words about itself."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from support.wheels import COMMITTED, ROOT, Package, build, git

NOT_SHIPPED = (".ci/", ".dockerignore")
ADDED = {"PKG-INFO", "build.json"}


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def read(wheel: Path, name: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name)


def below(folder: Path, pattern: str) -> dict[str, Path]:
    """Files by their path from a folder."""
    return {str(path.relative_to(folder)): path for path in folder.rglob(pattern)}


def travelling() -> dict[str, Path]:
    """What is data in the wheel, and where people edit it."""
    return {
        "memwatch/data/memwatch.yaml": ROOT / "configs" / "memwatch.yaml",
        "memwatch/data/evolve.py": ROOT / "examples" / "evolve.py",
        **{
            f"memwatch/data/{Path(folder).name}/{name}": path
            for folder in ("configs/markers", "configs/profiles", "docs/manual")
            for name, path in below(ROOT / folder, "*").items()
        },
    }


def test_the_wheel_holds_memwatch_and_what_says_so(made: Package) -> None:
    code = {f"memwatch/{name}" for name in below(ROOT / "watchdog" / "memwatch", "*.py")}
    said = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    about = {f"memwatch-{made.metadata['Version']}.dist-info/{name}" for name in said}
    data = {"memwatch/py.typed", "memwatch/data/build.json", *travelling()}
    assert names(made.wheel) == code | data | about


def test_watchdog_is_a_folder_and_never_a_package() -> None:
    assert not (ROOT / "watchdog" / "__init__.py").exists(), "`watchdog` on PyPI belongs to others"
    assert {path.name for path in (ROOT / "watchdog").iterdir() if path.name[0] not in "._"} == {"memwatch"}


def test_all_that_travels_along_is_the_same_as_in_the_sources(made: Package) -> None:
    for name, path in travelling().items():
        assert read(made.wheel, name) == path.read_bytes()


def test_the_wheel_knows_its_commit_and_day(made: Package) -> None:
    told = json.loads(read(made.wheel, "memwatch/data/build.json"))
    assert told == {"commit": made.commit, "date": COMMITTED[:10]}


def test_the_source_distribution_has_what_git_has(made: Package) -> None:
    with tarfile.open(made.sdist) as archive:
        shipped = {name.partition("/")[2] for name in archive.getnames()}
    tracked = git(made.repository, "ls-files").splitlines()
    assert shipped - ADDED == {name for name in tracked if not name.startswith(NOT_SHIPPED)}
    assert shipped >= ADDED


def test_the_same_commit_makes_the_same_bytes(made: Package, tmp_path: Path) -> None:
    """Again from a clone with other times and modes; the wheel from there, where the first was made from the sdist."""
    clone = tmp_path / "a clone"
    git(tmp_path, "clone", "-q", str(made.repository), str(clone))
    for path in [clone, *clone.rglob("*")]:
        if ".git" not in path.parts:
            path.chmod(path.stat().st_mode & 0o700)
            os.utime(path, (10**9, 10**9))
    again = {path.suffix: path.read_bytes() for path in build(clone, tmp_path / "dist", "--sdist", "--wheel")}
    assert again[".whl"] == made.wheel.read_bytes()
    assert again[".gz"] == made.sdist.read_bytes()


def test_an_unpacked_source_distribution_makes_the_same_again(made: Package, tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(made.sdist.read_bytes())) as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if sys.version_info >= (3, 12) else {}))
    [unpacked] = [path for path in tmp_path.iterdir() if path.is_dir()]
    git(unpacked, "init", "-q")  # within a repository of a distributor's
    again = build(unpacked, tmp_path / "dist", "--sdist", "--wheel")
    assert {path.read_bytes() for path in again} == {made.sdist.read_bytes(), made.wheel.read_bytes()}


# --- what the build hook knows --------------------------------------------------------------------------------------


def hook(root: Path, environ: dict[str, str] | None = None) -> dict[str, str] | None:
    """What it would write for these sources."""
    code = "import json, runpy, sys, pathlib; "
    code += "print(json.dumps(runpy.run_path(sys.argv[1])['_build'](pathlib.Path(sys.argv[2]))))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "hatch_build.py"), str(root)],
        env=os.environ | (environ or {}),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_what_is_not_committed_is_told(made: Package, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(made.repository), "clone")
    (tmp_path / "clone" / "README.md").write_text("changed")
    assert hook(tmp_path / "clone") == {"commit": f"{made.commit}-dirty", "date": COMMITTED[:10]}


def test_a_distributor_says_of_when_it_is(made: Package) -> None:
    assert hook(made.repository, {"SOURCE_DATE_EPOCH": "1800000000"}) == {"commit": made.commit, "date": "2027-01-15"}


@pytest.mark.parametrize("where", ["nowhere", "within another repository", "without git"])
def test_sources_of_which_git_knows_nothing_have_no_commit(made: Package, tmp_path: Path, where: str) -> None:
    if where == "without git":
        assert hook(made.repository, {"PATH": str(tmp_path)}) is None
        return
    if where == "within another repository":
        git(tmp_path, "init", "-q")
        (tmp_path / "file").touch()
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-q", "-m", "theirs")
    (tmp_path / "sources").mkdir()
    assert hook(tmp_path / "sources") is None


# --- what it says of itself -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "check", [["twine", "check", "--strict"], ["check_wheel_contents"]], ids=lambda words: words[0]
)
def test_indexes_take_it(made: Package, check: list[str]) -> None:
    files = [str(made.wheel)] if check[0] == "check_wheel_contents" else [str(made.wheel), str(made.sdist)]
    done = subprocess.run([sys.executable, "-m", *check, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_its_page_on_an_index_has_no_link_that_leads_nowhere(made: Package) -> None:
    page = str(made.metadata.get_payload())
    assert page.startswith("# memwatch\n")
    assert "](" in (ROOT / "README.md").read_text(), "there is something to take out"
    assert [target for target in re.findall(r"\]\(([^)]*)\)", page) if not target.startswith("https://")] == []
    assert "pipx install memwatch " in page
    assert not re.search(r"install '?\.|^ +make ", page, re.MULTILINE), "there is no checkout"
