"""The unit, its drop-ins and their README as systemd-analyze reads them; nothing is started."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from memwatch.config.load import load_config
from memwatch.core.text_and_units import parse_size
from support.exposure import ANALYZE, MOST, SYSTEMD, counted, explained, overall
from support.machine import install_commands
from support.needed import missing

DROP_INS = sorted(SYSTEMD.glob("drop-ins/*.conf"))
README = (SYSTEMD / "README.md").read_text()
OWN_BYTES = 64 << 20  # memwatch and the helper for GPUs


def analyzed(command: str, unit: Path) -> str:
    if shutil.which("systemd-analyze") is None:
        missing("systemd-analyze is not installed: apt-get install systemd")
    done = subprocess.run([*command.split(), unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """An instance whose program is there."""
    text = (SYSTEMD / "memwatch@.service").read_text()
    program = "/opt/memwatch/bin/memwatch"
    assert f"ExecStart={program} " in text
    instance = tmp_path / "memwatch@x.service"
    instance.write_text(text.replace(f"ExecStart={program} ", "ExecStart=/bin/true "))
    shutil.copy(SYSTEMD / "memwatch.slice", tmp_path)
    return instance


def test_its_exposure_is_low_and_each_line_that_is_open_has_its_reason(unit: Path) -> None:
    found = overall(analyzed(ANALYZE, unit))
    assert found <= MOST and f"says {found} of 10" in README
    assert counted(analyzed(f"{ANALYZE} --json=short", unit)) == explained()


@pytest.mark.parametrize("drop_in", [None, *DROP_INS], ids=lambda one: one.stem if one else "none")
def test_systemd_understands_each_line(unit: Path, drop_in: Path | None) -> None:
    if drop_in is not None:
        folder = unit.with_name(f"{unit.name}.d")
        folder.mkdir()
        shutil.copy(drop_in, folder)
        assert f"drop-ins/{drop_in.name})" in README
    said = analyzed("systemd-analyze verify --man=no", unit)
    assert str(unit.parent) not in said, said


def test_the_example_is_a_configuration_and_leaves_room_below_the_units_limit() -> None:
    config = load_config(SYSTEMD / "example.yaml")
    assert config.target.unit == "trainer.service" and config.listen == "127.0.0.1:9877"
    [limit] = re.findall(r"^MemoryMax=(\d+)M$", (SYSTEMD / "memwatch@.service").read_text(), re.MULTILINE)
    assert parse_size(str(config.diagnosis.memory)) + OWN_BYTES <= int(limit) << 20


def test_the_readme_installs_files_that_are_there() -> None:
    [*_, last] = commands = install_commands().splitlines()
    named = [
        word for line in commands if line.startswith("install ") for word in line.split() if word.startswith("systemd/")
    ]
    assert len(named) == 4 and all((SYSTEMD.parent / one).is_file() for one in named)
    assert last == "systemctl enable --now memwatch@trainer"
