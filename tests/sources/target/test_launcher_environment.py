"""Which part of which run: what launchers set, and what stands for it where they do not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from memwatch.core.measurements import RunIdentity
from memwatch.sources.target.launcher_environment import identify_run

SLURM = {"SLURM_JOB_ID": "4711", "SLURMD_NODENAME": "gpu-07", "SLURM_PROCID": "1", "SLURM_JOB_NUM_NODES": "2"}
RANK = {"TORCHELASTIC_RUN_ID": "abc", "RANK": "5", "LOCAL_RANK": "1", "GROUP_WORLD_SIZE": "2"}


def found(environ: Mapping[str, str], *argv: str, agent: bool = False) -> RunIdentity:
    return identify_run(environ, argv, agent=agent, host="host-a", run_id="20260101-1")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, RunIdentity("20260101-1", "host-a")),
        (SLURM, RunIdentity("4711", "gpu-07", 1, 2)),
        (RANK, RunIdentity("abc", "host-a", 5, 2)),
        ({**SLURM, **RANK}, RunIdentity("abc", "gpu-07", 5, 2)),
        ({**SLURM, **RANK, "TORCHELASTIC_RUN_ID": "none"}, RunIdentity("4711", "gpu-07", 5, 2)),
        ({"OMPI_COMM_WORLD_RANK": "0"}, RunIdentity("20260101-1", "host-a", 0)),
        ({"PMI_RANK": "3", "PBS_JOBID": "7.head"}, RunIdentity("7.head", "host-a", 3)),
        (
            {"MEMWATCH_RUN_ID": "job", "MEMWATCH_NODE": "n", "MEMWATCH_RANK": "2", **SLURM},
            RunIdentity("job", "n", 2, 2),
        ),
        ({"RANK": "many", "SLURM_NNODES": "-1", "SLURMD_NODENAME": ""}, RunIdentity("20260101-1", "host-a")),
        ({"SLURM_JOB_ID": "4\x1b[31m7"}, RunIdentity("47", "host-a")),
    ],
)
def test_of_a_trainer(environ: Mapping[str, str], expected: RunIdentity) -> None:
    assert found(environ) == expected


@pytest.mark.parametrize(
    ("options", "environ", "run_id", "nodes"),
    [
        (("--rdzv-id=x7", "--nnodes", "2"), {}, "x7", 2),
        (("--rdzv_id", "x7", "--nnodes=1:4"), {}, "x7", None),
        (("--rdzv-id=none",), SLURM, "4711", 2),
        ((), {"PET_RDZV_ID": "p", "PET_NNODES": "4"}, "p", 4),
        (("--standalone",), {}, "20260101-1", None),
    ],
)
def test_of_an_agent_that_has_no_rank(
    options: tuple[str, ...], environ: Mapping[str, str], run_id: str, nodes: int | None
) -> None:
    told = found({**environ, "RANK": "3"}, "torchrun", *options, "train.py", agent=True)
    assert (told.run_id, told.rank, told.nodes) == (run_id, None, nodes)
    assert found({"RANK": "3"}, "python", *options, agent=False).rank == 3, "its own options are nobody's"
