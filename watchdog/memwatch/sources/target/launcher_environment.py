"""Reads a trainer's run, node and rank from the environment and the command line that its launcher gave it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from memwatch.core.measurements import RunIdentity
from memwatch.core.text_and_units import printable

# The first variable that is set is used. MEMWATCH_* are for trainers without a launcher, such as pods (Downward API).
RUN_ID_VARIABLES = ("MEMWATCH_RUN_ID", "TORCHELASTIC_RUN_ID", "PET_RDZV_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
NODE_VARIABLES = ("MEMWATCH_NODE", "SLURMD_NODENAME", "NODE_NAME")
RANK_VARIABLES = ("MEMWATCH_RANK", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
NODE_COUNT_VARIABLES = ("GROUP_WORLD_SIZE", "PET_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
_NO_ID = "none"  # torchrun's default
_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")  # after -m, or as the path of a script


def identify_run(
    environ: Mapping[str, str], argv: Sequence[str], *, agent: bool, host: str, run_id: str
) -> RunIdentity:
    """Return what the launcher set; `run_id` and `host` are used when it set nothing.

    `agent`: the process is torchrun, which has no rank and passes its options on only to its ranks.
    """
    given = {**environ, **_options(argv)} if agent else environ
    ids = [name for name in RUN_ID_VARIABLES if given.get(name, _NO_ID) != _NO_ID]
    return RunIdentity(
        printable(given[ids[0]]) if ids else run_id,
        printable(_first(given, NODE_VARIABLES) or host),
        None if agent else _number(_first(given, RANK_VARIABLES)),
        _number(_first(given, NODE_COUNT_VARIABLES)),
    )


def is_torchrun(argv: Sequence[str]) -> bool:
    """Whether a command line is the elastic agent's: `torchrun`, `python -m torch.distributed.run` and the like."""
    for index, word in enumerate(argv[:8]):
        name = PurePath(word).name
        if name == "torchrun" or (word in _TORCHRUN_MODULES and index > 0 and argv[index - 1] == "-m"):
            return True
        if name.endswith(".py"):
            return word.replace("/", ".").removesuffix(".py").endswith(_TORCHRUN_MODULES)
    return False


def _options(argv: Sequence[str]) -> dict[str, str]:
    """Return torchrun's options by the names of its environment variables: `--rdzv-id=7` is PET_RDZV_ID."""
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
