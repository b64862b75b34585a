"""The programs of the gallery, and what is true of each whatever memwatch says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SMALL = "gallery-small"  # the environment of programs whose packages are small enough for each change
PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Program:
    """One program; it ends by itself in one to four minutes on a calm core."""

    name: str
    script: str  # in `programs`
    unit: str  # a pattern of the unit of its clock, by its log or its memory; "" if neither tells one
    total: int | None  # units of a whole run, where either tells it
    words: tuple[str, ...] = ()
    leak: tuple[str, ...] | None = ("--leak",)  # words that make it fail; None: its own growth, with a lower limit
    checkout: str = ""  # folder of a public repository, fetched by hand, that the script gets
    cause: str = ""  # a pattern of what grows in the failing variant, as the finding's holder, type or cause
    fills: str = ""  # a pattern of its own buffer, which fills and fits; empty: `cause` is that
    saves: bool = True  # it writes checkpoints of its own
    gauge: str = ""
    python: str = "gallery"  # the environment
    unwatched_runs: int = 1  # more where memory differs from run to run


def _eigen2(commit: str) -> Program:
    return Program(
        f"eigen2 {commit}",
        "eigen2.py",
        "generation",
        25,
        leak=None,
        checkout=f"eigen2-{commit}",
        cause=r"ReplayBuffer|replay_buffer",
        gauge="buffer",
        unwatched_runs=3,
    )


CATALOGUE = (
    *map(_eigen2, ("c248105", "ddb7d97", "adb868b", "22ab79c")),
    Program("Hugging Face Trainer", "huggingface.py", "step", 1200, cause=r"KEPT"),
    Program("Lightning", "lightning_fit.py", "epoch", 600, cause=r"Regression\.features"),
    Program("Ultralytics", "yolo.py", "epoch", 20, cause=r"KEPT", python="gallery-vision"),
    Program(
        "stable-baselines3 DQN",
        "stable_baselines.py",
        "timestep",
        30_000,
        words=("dqn",),
        leak=None,
        cause=r"ReplayBuffer|buffer",
    ),
    Program(
        "stable-baselines3 SAC",
        "stable_baselines.py",
        "timestep",
        12_000,
        words=("sac",),
        cause=r"Watch\.seen|kept\[i\]\.seen",
        fills=r"ReplayBuffer",
    ),
    Program("Keras", "keras_fit.py", "epoch", 40, cause=r"PREDICTIONS"),
    Program("XGBoost", "boosting.py", "iteration", 5000, words=("xgboost",), cause=r"KEPT"),
    Program("LightGBM", "boosting.py", "iteration", 8000, words=("lightgbm",), cause=r"KEPT"),
    Program("nanoGPT", "nanogpt.py", "iteration", 6000, checkout="nanoGPT", cause=r"KEPT"),
    Program(
        "CleanRL DQN",
        "cleanrl_dqn.py",
        "step",
        30_000,
        leak=None,
        checkout="cleanrl",
        cause=r"ReplayBuffer|buffer",
        saves=False,
    ),
    Program("DEAP", "evolution.py", "generation", 250, words=("deap",), cause=r"History", saves=False, python=SMALL),
    Program("pymoo", "evolution.py", "generation|iteration", None, words=("pymoo",), cause=r"history", saves=False),
    Program("Gensim Word2Vec", "word2vec.py", "epoch", 80, cause=r"Epochs\.vectors", python=SMALL),
    Program("torchrl DQN", "torchrl_dqn.py", "step", 60_000, cause=r"Batches\.seen"),
    Program("CatBoost", "catboost_fit.py", "iteration", None, cause=r"KEPT"),
)
