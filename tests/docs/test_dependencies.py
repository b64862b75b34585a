"""Each third-party package is imported in one place, and each one that is declared is used."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "watchdog" / "memwatch"
PLACES = {  # the name in pyproject.toml -> the name that is imported, and the module or folder that may import it
    "psutil": ("psutil", "sources/target/process_table.py"),
    "nvidia-ml-py": ("pynvml", "sources/gpu/nvml_helper.py"),
    "prometheus-client": ("prometheus_client", "outputs/metrics/collector.py"),
    "pyyaml": ("yaml", "system/json_and_yaml.py"),
    "msgspec": ("msgspec", "system/json_and_yaml.py"),
    "rich": ("rich", "outputs/terminal"),
    "numpy": ("numpy", "diagnosis/whole_heap"),
    "pyelftools": ("elftools", "diagnosis/heap/cpython_runtime.py"),
    "bcrypt": ("bcrypt", "outputs/http/password_hashes.py"),
    "wandb": ("wandb", "outputs/trackers/wandb_writer.py"),
    "mlflow-skinny": ("mlflow", "outputs/trackers/mlflow_writer.py"),
    "tensorboard": ("tensorboard", "outputs/trackers/tensorboard_writer.py"),
    "pyarrow": ("pyarrow", "history/trace_files.py"),
    "apprise": ("apprise", "outputs/trackers/apprise_sender.py"),
}
NOT_IMPORTED = {"py-spy"}  # a program that is run
OF_TRAINERS = {"transformers", "lightning", "keras"}  # whose callbacks are for who has them


def imported(path: Path) -> set[str]:
    """The third-party packages that a file imports anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"memwatch"}


def test_each_third_party_package_is_imported_in_one_place() -> None:
    found = {(name, str(path.relative_to(PACKAGE))) for path in PACKAGE.rglob("*.py") for name in imported(path)}
    places = dict(PLACES.values())
    assert {path for name, path in found if name in OF_TRAINERS} == {"callbacks.py"}
    found = {(name, path) for name, path in found if name not in OF_TRAINERS}
    assert {name for name, _ in found} == set(places)
    assert not [(name, path) for name, path in found if not path.startswith(places[name])]


def test_what_is_declared_is_what_is_used() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    declared = project[project.index("\ndependencies = [") : project.index("\n[project.scripts]")]
    names = set(re.findall(r'"([a-z0-9-]+)[><=]', declared))
    assert names == set(PLACES) | NOT_IMPORTED
