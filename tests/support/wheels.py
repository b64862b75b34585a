"""The package as users get it: built from a repository of its own, installed apart, with the sources out of reach."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from email import message_from_string
from email.message import Message
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
TRACKERS = ROOT / ".venv" / "trackers"
TRACKED = (
    "mlflow",
    "notify",
    "parquet",
    "tensorboard",
    "wandb",
)  # extras that are there, not among the tests' own packages
COMMITTED = "2026-02-03T04:05:06Z"
_LEFT_BEHIND = shutil.ignore_patterns(".*", "__pycache__", "dist", "build", "PKG-INFO", "build.json", "*.egg-info")
_SOMEBODY = {
    **{f"GIT_{who}_{what}": "nobody" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    **{f"GIT_{who}_DATE": COMMITTED for who in ("AUTHOR", "COMMITTER")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


# --- building -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Package:
    """What was built from one commit."""

    repository: Path
    commit: str
    sdist: Path
    wheel: Path  # of the sdist

    @property
    def metadata(self) -> Message:
        """The wheel's."""
        with zipfile.ZipFile(self.wheel) as archive:
            [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
            return message_from_string(archive.read(name).decode())

    def requirements(self, extra: str = "") -> list[Requirement]:
        """What has to be there besides: of memwatch alone, or with an extra."""
        every = map(Requirement, self.metadata.get_all("Requires-Dist"))
        return [one for one in every if one.marker is None or one.marker.evaluate({"extra": extra})]


def package(folder: Path) -> Package:
    """Built in a repository that has nothing but a copy of these sources, in one commit."""
    repository = folder / "sources"
    shutil.copytree(ROOT, repository, ignore=_LEFT_BEHIND)
    shutil.copy(ROOT / ".gitignore", repository)
    git(repository, "init", "-q")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "all")
    wheel, sdist = sorted(build(repository, folder / "dist"), key=lambda path: path.suffix, reverse=True)
    return Package(repository, git(repository, "rev-parse", "--short=12", "HEAD"), sdist, wheel)


def build(sources: Path, folder: Path, *kinds: str, environ: dict[str, str] | None = None) -> list[Path]:
    """What `python -m build` makes: an sdist and its wheel; `--sdist --wheel`: both from the sources."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), *kinds]
    made = subprocess.run(
        command, cwd=sources, capture_output=True, text=True, env=os.environ | (environ or {}), check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return list(folder.iterdir())


def git(repository: Path, *words: str) -> str:
    """Of somebody without settings of their own."""
    done = subprocess.run(
        ["git", *words], cwd=repository, capture_output=True, text=True, env=os.environ | _SOMEBODY, check=True
    )
    return done.stdout.strip()


# --- installing -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Installed:
    """A virtual environment that has the wheel."""

    folder: Path

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.folder / "bin" / "python")

    @property
    def packages(self) -> Path:
        """Where its packages are."""
        [found] = self.folder.glob("lib/python*/site-packages")
        return found

    def command(self, *arguments: str) -> list[str]:
        """As users call it, where the sources are out of reach."""
        return [*hiding(), str(self.folder / "bin" / "memwatch"), *arguments]

    def environ(self) -> dict[str, str]:
        """With a state folder of its own, and nothing that leads to other packages."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "WANDB"))}
        kept["MLFLOW_ALLOW_FILE_STORE"] = "true"  # it needs no server then
        return {**kept, "XDG_STATE_HOME": str(self.folder / "state"), "NO_COLOR": "1"}

    def start(self, *arguments: str, **options: object) -> subprocess.Popen[str]:
        """`memwatch`, begun."""
        return subprocess.Popen(self.command(*arguments), env=self.environ(), cwd="/", text=True, **options)  # type: ignore[call-overload]

    def memwatch(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`memwatch`, to its end."""
        return self.run(*self.command(*arguments))

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Any command."""
        return subprocess.run(
            command, env=self.environ(), cwd="/", capture_output=True, text=True, timeout=90, check=False
        )


def environment(folder: Path, package: Package, extra: str = "", besides: Iterable[str] = ()) -> Installed:
    """The wheel and the packages that it says it needs, as these tests have them, and no others: no index is asked."""
    made = _empty(folder, str(Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")))
    have = TRACKERS if extra in TRACKED else Path(sys.prefix)
    [source] = have.glob("lib/python*/site-packages")
    for distribution in _closure([*package.requirements(extra), *map(Requirement, besides)], source):
        _link(distribution, made)
    _install(made, "--no-deps", "--no-index", str(package.wheel))
    return made


def environment_of(folder: Path, package: Package, python: str, extra: str, resolution: str) -> Installed:
    """The wheel with what an index has: of what it says it needs the `highest`, or the lowest (`lowest-direct`)."""
    made = _empty(folder, python)
    named = [str(one).partition(";")[0] for one in package.requirements(extra)]
    wheel = f"{package.wheel}[{extra}]" if extra else str(package.wheel)
    _install(made, "--only-binary", ":all:", "--resolution", resolution, wheel, *named)
    return made


def _empty(folder: Path, python: str) -> Installed:
    """Of an interpreter that is no virtual environment's: that may lie within what is hidden."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    return Installed(folder)


def _install(made: Installed, *words: str) -> None:
    """By uv, which takes a tenth of pip's time."""
    done = made.run(sys.executable, "-m", "uv", "pip", "install", "-q", "--python", made.python, *words)
    assert done.returncode == 0, done.stderr


def _closure(wanted: Sequence[Requirement], source: Path) -> list[Distribution]:
    """What is wanted, and what that needs in turn."""
    queue, found = list(wanted), dict[str, Distribution]()
    while queue:
        one = queue.pop()
        name = canonicalize_name(one.name)
        if name in found:
            continue
        if name not in _distributions(source):
            raise PackageNotFoundError(f"{name} in {source}")
        found[name] = _distributions(source)[name]
        needed = [Requirement(text) for text in found[name].requires or ()]
        extras = one.extras or {""}
        queue += [
            more for more in needed if more.marker is None or any(more.marker.evaluate({"extra": e}) for e in extras)
        ]
    return list(found.values())


@cache
def _distributions(source: Path) -> dict[str, Distribution]:
    return {canonicalize_name(one.metadata["Name"]): one for one in distributions(path=[str(source)])}


def _link(distribution: Distribution, made: Installed) -> None:
    """Its files under a second name: they stay when their folder is hidden."""
    for file in distribution.files or ():
        source = Path(str(distribution.locate_file(file)))
        place = made.folder / "bin" / file.name if ".." in file.parts else made.packages / file
        if source.suffix == ".pyc" or not source.is_file():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, place)
        except OSError:  # another file system
            shutil.copy(source, place)


@cache
def hiding() -> tuple[str, ...]:
    """Words before a command for which there are no sources: nothing is mounted over them for others. Needs root."""
    words = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(ROOT))
    try:
        done = subprocess.run([*words, "ls", "-A", str(ROOT)], capture_output=True, text=True, check=False)
    except OSError:
        return ()
    return words if (done.returncode, done.stdout) == (0, "") else ()
