"""The image, really built: by buildah, from the Dockerfile, on a base of this machine's; run as containers are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.pythons import pythons

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("buildah", "ldd", "unshare", "nsenter", "setpriv", "ip")
_TOOLS = ("sh", "env", "install", "cat")  # what the Dockerfile's steps call, beside Python
_EVERYWHERE = ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libgcc_s.so.1", "libstdc++.so.6")
_TRUSTED = ("/etc/ssl", "/etc/pip.conf")  # what pip here needs for the network
_CONTAINER = """
set -e
root=$1 user=$2; shift 2
ip link set lo up
mount --bind "$root" "$root" && mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/var/lib/memwatch"
while [ "$1" != -- ]; do mount --bind "$1" "$root$2" && mount -o "remount,bind,$3" "$root$2"; shift 3; done; shift
exec setpriv --bounding-set=-all,+setuid,+setgid,+sys_chroot --no-new-privs \\
    chroot --userspec="$user" --groups= "$root" "$@"
"""


def missing() -> str:
    """What building needs and this machine lacks."""
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    if os.geteuid() != 0:
        lacking.append("root")
    if _tree() is None:
        lacking.append("a CPython in a folder of its own")
    return ", ".join(lacking)


def _tree() -> tuple[str, Path] | None:
    """A CPython that can be moved: as near to the image's own as there is."""
    for _, python in sorted(pythons().items(), key=lambda item: item[0] != "3.13"):
        asked = "import sys; print('%d.%d' % sys.version_info[:2], sys.base_prefix)"
        done = subprocess.run([*python.command, "-c", asked], capture_output=True, text=True, check=False)
        version, _, prefix = done.stdout.strip().partition(" ")
        if prefix not in ("", "/usr", "/usr/local"):
            return version, Path(prefix)
    return None


def _lay_base(folder: Path) -> None:
    """A tree like that of python:X-slim: CPython with pip in /usr/local, a shell, and the libraries of both."""
    found = _tree()
    assert found is not None
    version, prefix = found
    for name in ("bin", "lib", "lib64"):
        (folder / "usr" / name).mkdir(parents=True)
        (folder / name).symlink_to(f"usr/{name}")
    for name in ("proc", "dev", "tmp", "etc", "root", "var/lib"):
        (folder / name).mkdir(parents=True)
    library = Path("lib", f"python{version}")
    skipped = shutil.ignore_patterns("test", "__pycache__", "*.a", "config-*", "site-packages")
    shutil.copytree(prefix / library, folder / "usr/local" / library, ignore=skipped, symlinks=True)
    for package in (prefix / library / "site-packages").glob("pip*"):
        shutil.copytree(package, folder / "usr/local" / library / "site-packages" / package.name)
    for shared in (prefix / "lib").glob("libpython*.so*"):
        shutil.copy(shared, folder / "usr/local/lib", follow_symlinks=False)
    (folder / "usr/local/bin").mkdir()
    shutil.copy(prefix / "bin" / f"python{version}", folder / "usr/local/bin/python3")
    (folder / "usr/local/bin/python").symlink_to("python3")
    for tool in _TOOLS:
        shutil.copy(str(shutil.which(tool)), folder / "usr/bin")
    _add_libraries(folder)


def _add_libraries(folder: Path) -> None:
    """What ldd names, and the rest of libc6, libgcc-s1 and libstdc++6, which every Debian has and wheels rest on."""
    binaries = [*folder.glob("usr/bin/*"), folder / "usr/local/bin/python3", *folder.rglob("lib-dynload/*.so")]
    words = set(subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout.split())
    [libc] = [Path(word) for word in words if word.endswith("/libc.so.6")]
    for word in words | {str(libc.with_name(name)) for name in _EVERYWHERE}:
        if word.startswith("/") and ".so" in word and not word.startswith(str(folder)) and not word.endswith(":"):
            target = folder / word[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy(word, target)


@dataclass(frozen=True, slots=True)
class Image:
    """What was built: its files, and what an engine is told of it."""

    files: Path
    config: dict[str, Any]

    @property
    def start(self) -> list[str]:
        """What runs where nothing else is asked for."""
        return [*self.config["Entrypoint"], *self.config["Cmd"]]

    def command(
        self, arguments: Sequence[str], user: str = "65532:65532", volumes: Sequence[tuple[Path, str, str]] = ()
    ) -> list[str]:
        """A container: no capabilities, a read-only root, a loopback of its own; the PIDs of all, as in one pod."""
        for _, inside, _ in volumes:
            (self.files / inside[1:]).mkdir(parents=True, exist_ok=True)
        mounts = [str(word) for volume in volumes for word in volume]
        inner = ["env", "-i", *self.config["Env"], *arguments]
        namespaces = ["unshare", "--mount", "--net", "--propagation", "private"]
        return [*namespaces, "sh", "-c", _CONTAINER, "sh", str(self.files), user, *mounts, "--", *inner]

    def within(self, pid: int, arguments: Sequence[str]) -> list[str]:
        """One more process in a container, as an engine's `exec` and its health check."""
        entered = ["nsenter", "--target", str(pid), "--mount", "--net", "chroot", "--userspec=65532:65532", self.files]
        return [str(word) for word in (*entered, "env", "-i", *self.config["Env"], *arguments)]


def build(work: Path) -> Image:
    """Every step of the Dockerfile; a failed assertion with what was printed when one fails."""
    base = work / "base"
    base.mkdir(parents=True)
    _lay_base(base / "tree")
    (base / "Dockerfile").write_text("FROM scratch\nCOPY tree /\nENV PATH=/usr/local/bin:/usr/bin:/bin\n")
    trusted = [f"--volume={path}:{path}:ro" for path in _TRUSTED if Path(path).exists()]
    made = ["bud", "--isolation=chroot", "--format=docker", "--layers=false"]
    _buildah(work, *made, "-t", "base", str(base))
    _buildah(work, *made, *trusted, "--build-arg=BASE=localhost/base", "-t", "memwatch", str(ROOT))
    container = _buildah(work, "from", "localhost/memwatch").split()[-1]
    inspected = json.loads(_buildah(work, "inspect", "--type=image", "localhost/memwatch"))
    return Image(Path(_buildah(work, "mount", container).strip()), inspected["Docker"]["config"])


def _buildah(work: Path, *arguments: str) -> str:
    storage = [f"--root={work / 'storage'}", f"--runroot={work / 'run'}", "--storage-driver=vfs"]
    done = subprocess.run(["buildah", *storage, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"buildah {arguments[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout
