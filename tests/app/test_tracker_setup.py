"""Trackers as a configuration wants them: what is not installed or cannot be read is refused at start, with the fix."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memwatch.app import tracker_setup
from memwatch.config.load import load_config
from memwatch.config.settings import Config
from memwatch.errors import ConfigError, ExitCode
from support.mainjob import Folder, Memwatch
from support.processes import WAIT, python, running

NAME = Path("m.yaml")
EACH = {
    "wandb": "wandb: {project: p}",
    "mlflow": "mlflow: {experiment: e}",
    "tensorboard": "tensorboard: {dir: tb}",
    "notify": "notify: {urls: ['json://x']}",
}


def configured(*texts: str) -> Config:
    return load_config(NAME, "\n".join(texts))


def test_nothing_is_wanted_unless_it_is_configured() -> None:
    assert (
        Config().enabled_extras
        == configured("wandb: {}", "tensorboard:", "notify: {events: [warn]}").enabled_extras
        == ()
    )
    assert configured(*EACH.values()).enabled_extras == tuple(EACH)
    tracker_setup.check(Config())


@pytest.mark.parametrize("extra", EACH)
def test_what_is_not_installed_is_refused_with_the_way_to_install_it(extra: str) -> None:
    with pytest.raises(ConfigError, match=f"{extra} is configured, and .* is not installed") as caught:
        tracker_setup.check(configured(EACH[extra]))
    assert f"pip install 'memwatch[{extra}]'" in caught.value.hint


def test_nothing_is_started_that_could_not_be_tracked(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "m.yaml").write_text(EACH["tensorboard"])
    (tmp_path / "tensorboard").mkdir()  # a folder of that name, as a run leaves it, is no package
    started = Memwatch(folder, "run", "--config", "m.yaml", "--", "touch", "started")
    assert started.wait() == ExitCode.USAGE and not (tmp_path / "started").exists()
    with running(python(WAIT)) as trainer:
        watch = Memwatch(folder, "--pid", str(trainer.pid), "--config", "m.yaml")
        assert watch.wait() == ExitCode.USAGE
    assert "pip install 'memwatch[tensorboard]'" in watch.said()


def test_a_watch_without_any_imports_nothing_of_them() -> None:
    code = (
        "import sys; from memwatch.app.composition import check_extras; from memwatch.cli import watch_serve_markers; "
        "check_extras(watch_serve_markers.config_from_flags({})); "
        "print([name for name in sys.modules if name.startswith('memwatch.') and name.split('.')[-1] in "
        "('tracker_setup', 'tracker_proxy', 'tracker_worker', 'tracker_records', 'notification_messages')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


# --- the file of addresses ------------------------------------------------------------------------------------------


def test_a_file_that_others_may_read_is_remarked_on(tmp_path: Path) -> None:
    file = tmp_path / "urls"
    file.write_text("json://x\n")
    config = configured(f"notify: {{file: {file}}}")
    file.chmod(0o640)
    [remark] = tracker_setup.config_warnings(config)
    assert f"chmod 600 {file}" in remark
    file.chmod(0o600)
    assert list(tracker_setup.config_warnings(config)) == []


def test_a_watch_goes_on_though_the_file_is_gone(tmp_path: Path) -> None:
    assert list(tracker_setup.config_warnings(configured(f"notify: {{file: {tmp_path}/gone}}"))) == []


# --- tried out ------------------------------------------------------------------------------------------------------


def test_what_is_tried_out_and_not_there_is_an_error() -> None:
    for extra, text in EACH.items():
        with pytest.raises(ConfigError, match="not installed"):
            tracker_setup.probe_extra(configured(text), extra)


def test_doctor_says_what_is_missing(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "m.yaml").write_text(EACH["wandb"])
    asked = Memwatch(folder, "doctor", "--config", "m.yaml", "--listen", "none", "--test-notify")
    assert asked.wait() == ExitCode.CANNOT_ATTACH
    said = asked.out.read_text()
    assert "FAIL  wandb" in said and "FAIL  notify      no address is configured" in said
