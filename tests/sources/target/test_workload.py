"""What a process belongs to: the kubelet's names of logs, the downward API, Slurm, systemd."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwatch.core.trainer_rules import Workload
from memwatch.sources.target.target_facts import read_cgroups, read_workload

UID = "8a7c1111-2222-3333-4444-555566667777"
ID = "9c0f" * 16
CGROUPS = (f"/kubepods/burstable/pod{UID}/{ID}", "/")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "var/log/containers").mkdir(parents=True)
    (tmp_path / "var/log/pods").mkdir()
    return tmp_path


def test_the_link_to_its_log_names_pod_and_container(host: Path) -> None:
    (host / f"var/log/containers/trainer-0_training_main-{ID}.log").touch()
    (host / f"var/log/containers/other_training_side-{'ab' * 32}.log").touch()
    assert read_workload(CGROUPS, {}, str(host)) == Workload("", "training", "trainer-0", "main")


def test_the_folder_of_its_logs_names_the_pod(host: Path) -> None:
    (host / f"var/log/pods/training_trainer-0_{UID}").mkdir()
    assert read_workload(CGROUPS, {}, str(host)) == Workload("", "training", "trainer-0", ID[:12])


def test_else_the_downward_api_does(host: Path) -> None:
    environ = {"POD_NAME": "trainer-0", "POD_NAMESPACE": "training", "HOSTNAME": "x"}
    assert read_workload(CGROUPS, environ, str(host)) == Workload("", "training", "trainer-0", ID[:12])
    assert read_workload(CGROUPS, {"HOSTNAME": "trainer-0"}, str(host)).pod == "trainer-0"
    assert read_workload(CGROUPS, {}, str(host)).pod == UID


def test_slurm_and_systemd() -> None:
    assert read_workload(("/slurm/uid_0/job_7/step_0",), {}) == Workload("7")
    assert read_workload(("/",), {"SLURM_JOB_ID": "8"}) == Workload("8")
    assert read_workload(("/system.slice/a.service",), {}) == Workload(unit="a.service")
    assert read_workload((), {}) == Workload()


def test_a_name_is_one_short_printable_line() -> None:
    job = read_workload((), {"SLURM_JOB_ID": "a\nb\x1b[31m" + "c" * 500}).job
    assert job.isprintable() and len(job) <= 120


def test_one_that_has_ended_has_none() -> None:
    assert read_cgroups(2**22) == ()
    assert read_cgroups(1)
