"""The rules of a node, and the names in the paths of cgroups."""

from __future__ import annotations

import pytest

from memwatch.core.trainer_rules import CgroupNames, TrainerRule, Workload, parse_cgroup_path

UID = "8a7c1111-2222-3333-4444-555566667777"
ID = "9c0f" * 16


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"
            f"/cri-containerd-{ID}.scope",
            CgroupNames(UID, ID),
        ),
        (f"/kubepods/besteffort/pod{UID}/{ID}", CgroupNames(UID, ID)),
        (f"/docker/{ID}", CgroupNames("", ID)),
        (f"/system.slice/docker-{ID}.scope", CgroupNames("", ID)),
        ("/slurm/uid_1000/job_4711/step_0/task_0", CgroupNames(job="4711")),
        ("/system.slice/slurmstepd.scope/job_12/step_batch", CgroupNames(job="12", unit="slurmstepd.scope")),
        ("/system.slice/trainer.service/worker", CgroupNames(unit="trainer.service")),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/run.scope", CgroupNames(unit="run.scope")),
        ("/", CgroupNames()),
        ("/podium/9c0f", CgroupNames()),
    ],
)
def test_the_names_in_a_path(path: str, names: CgroupNames) -> None:
    assert parse_cgroup_path(path) == names


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        (TrainerRule(), True),
        (TrainerRule(namespace="training"), True),
        (TrainerRule(namespace="train*", pod="trainer-?"), True),
        (TrainerRule(namespace="training", pod="other"), False),
        (TrainerRule(job="*"), False),  # it is in none
        (TrainerRule(cgroup="/kubepods"), True),
        (TrainerRule(cgroup="kubepods/*/pod*"), True),
        (TrainerRule(cgroup="/kubepods/b"), False),  # a part of a name is none
        (TrainerRule(cgroup="/system.slice"), False),
    ],
)
def test_all_that_is_given_must_fit(rule: TrainerRule, fits: bool) -> None:
    workload = Workload(namespace="training", pod="trainer-0", container="main")
    assert rule.fits_place((f"/kubepods/besteffort/pod{UID}/{ID}",), workload) is fits
