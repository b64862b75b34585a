"""Which part of which run a trainer is, as the launcher that started it says: its environment, its command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memwatch.core.measurements import RunIdentity
from memwatch.core.text_and_units import printable

# The first that is set counts. MEMWATCH_* are for those whom no launcher tells: pods, by the Downward API.
RUN_ID_VARIABLES = ("MEMWATCH_RUN_ID", "TORCHELASTIC_RUN_ID", "PET_RDZV_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
NODE_VARIABLES = ("MEMWATCH_NODE", "SLURMD_NODENAME", "NODE_NAME")
RANK_VARIABLES = ("MEMWATCH_RANK", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
NODE_COUNT_VARIABLES = ("GROUP_WORLD_SIZE", "PET_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
_NO_ID = "none"  # torchrun's own default


def identify_run(
    environ: Mapping[str, str], argv: Sequence[str], *, agent: bool, host: str, run_id: str
) -> RunIdentity:
    """What the launcher says; `run_id` and `host` where it says nothing.

    `agent`: torchrun, which has no rank of its own and hands its options to its ranks alone, as TORCHELASTIC_RUN_ID.
    """
    given = {**environ, **_options(argv)} if agent else environ
    ids = [name for name in RUN_ID_VARIABLES if given.get(name, _NO_ID) != _NO_ID]
    return RunIdentity(
        printable(given[ids[0]]) if ids else run_id,
        printable(_first(given, NODE_VARIABLES) or host),
        None if agent else _number(_first(given, RANK_VARIABLES)),
        _number(_first(given, NODE_COUNT_VARIABLES)),
    )


def _options(argv: Sequence[str]) -> dict[str, str]:
    """Of torchrun's command line, by the names that its environment would have: `--rdzv-id=7` is PET_RDZV_ID."""
    found: dict[str, str] = {}
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        name = f"PET_{option.lstrip('-').replace('-', '_').upper()}"
        if option.startswith("--") and name in (*RUN_ID_VARIABLES, *NODE_COUNT_VARIABLES):
            found.setdefault(name, value if equals else following)
    return found


def _first(environ: Mapping[str, str], names: Sequence[str]) -> str:
    return next(filter(None, (environ.get(name) for name in names)), "")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
