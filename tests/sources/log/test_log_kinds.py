"""Kinds of lines: the clock is found whatever program prints them, and whatever a launcher or a logger puts before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memwatch.sources.log.whole_log_scan import scan_json, scan_log
from support.logs import tqdm
from support.logs.kinds import KINDS, docker
from support.presets import packaged_presets

Wrap = Callable[[str], str]

PREFIXES: dict[str, Wrap] = {
    "none": lambda s: f"{s}\n",
    "docker": docker,
    "docker and loguru": lambda s: docker(f"2026-11-21 03:52:47.123 | INFO     | __main__:train:42 - {s}"),
    "containerd": lambda s: f"2016-10-06T00:17:09.669794202Z stdout F {s}\n",
    "containerd and hydra": lambda s: f"2016-10-06T00:17:09.6Z stdout F [2026-11-21 03:52:47,123][a.b][INFO] - {s}\n",
    "journald": lambda s: f"Nov 21 03:52:47 gpu-3 python[3112]: {s}\n",
    "docker compose": lambda s: f"trainer-1  | {s}\n",
    "kubectl logs": lambda s: f"[pod/train-abc/main] {s}\n",
    "srun --label": lambda s: "".join(f"{rank}: {s}\n" for rank in (0, 1, 2)),
    "PyTorch": lambda s: "".join(f"[rank{rank}]: {s}\n" for rank in (1, 0)),
    "torchrun --tee": lambda s: "".join(f"[default{rank}]:{s}\n" for rank in (0, 1)),
    "mpirun": lambda s: "".join(f"[1,{rank}]<stdout>:{s}\n" for rank in (0, 1)),
    "horovodrun": lambda s: "".join(f"[{rank}]<stdout>:{s}\n" for rank in (0, 1)),
    "SageMaker": lambda s: "".join(f"[1,mpirank:{rank},algo-1]<stdout>:{s}\n" for rank in (0, 1)),
    "SkyPilot": lambda s: "".join(f"(worker{rank}, rank={rank}, pid=3112, ip=10.0.0.3) {s}\n" for rank in (0, 1)),
    "Ray": lambda s: f"(train_fn pid=3112, ip=10.0.0.3) {s}\n",
    "Ray in colour": lambda s: f"\x1b[36m(RayTrainWorker pid=3112)\x1b[0m {s}\n",
    "Ray 1": lambda s: f"(pid=3112) {s}\n",
    "a GPU": lambda s: "".join(f"[GPU{rank}] {s}\n" for rank in (0, 1)),
    "accelerate": lambda s: f"05/01/2024 12:00:00 - INFO - __main__ - [RANK 0] {s}\n",
    "Kaggle": lambda s: docker(s).replace('{"log"', ',{"stream_name":"stdout","time":3.1,"data"'),
    "Hydra": lambda s: f"[2026-11-21 03:52:47,123][__main__][INFO] - {s}\n",
    "loguru": lambda s: f"2026-11-21 03:52:47.123 | INFO     | __main__:train:42 - {s}\n",
    "rich": lambda s: f"[03:52:47] INFO     {s:<60} train.py:118\n",
    "absl": lambda s: f"I1121 03:52:47.123456 140735 train.py:42] {s}\n",
    "basicConfig": lambda s: f"INFO:root:{s}\n",
    "logging": lambda s: f"2026-11-21 03:52:47,123 - my.trainer - INFO - {s}\n",
    "transformers": lambda s: f"[INFO|trainer.py:2128] 2024-05-01 12:00:00,123 >> {s}\n",
    "file and line": lambda s: f"Mon, 22 Aug 2016 08:58:58 ga.py[line:86] INFO {s}\n",
    "gensim": lambda s: f"2026-11-21 03:52:47,123 : INFO : {s}\n",
    "a level": lambda s: f"INFO: {s}\n",
    "a time": lambda s: f"2026-11-21T03:52:47Z {s}\n",
    "an American time": lambda s: f"[11/21/2026 03:52:47 AM] {s}\n",
}


def hf(wrap: Wrap) -> str:
    steps = range(0, 40, 5)
    return "".join(wrap(tqdm("", s, 40)) + wrap(f"{{'loss': 0.5, 'grad_norm': 1.2, 'epoch': {s / 10}}}") for s in steps)


def box(wrap: Wrap) -> str:
    rows = (("-" * 17, f"| iterations | {i} |", f"| total_timesteps | {i * 2048} |", "-" * 17) for i in range(1, 6))
    return "".join(wrap(row) for box in rows for row in box)


def table(wrap: Wrap) -> str:
    rows = [f"    {e}      0.7{e}      0.6{e}     0.01" for e in range(1, 7)]
    head = ["epoch  train_loss  valid_loss  dur", "-----  ----------  ---------- ----"]
    return "".join(wrap(row) for row in head + rows)


PROGRAMS: dict[str, tuple[str, int | None, list[int], Callable[[Wrap], str]]] = {
    "keras": ("epoch", 6, [*range(1, 7)], lambda w: "".join(w(f"Epoch {e}/6") + w("25/25 - 3s") for e in range(1, 7))),
    "sklearn": ("iteration", None, [*range(1, 7)],
                lambda w: "".join(w(f"Iteration {e}, loss = 0.6938{e}") for e in range(1, 7))),
    "words": ("epoch", None, [*range(6)],
              lambda w: "".join(w(f"epoch {e}: train_loss: 0.646 acc 0.5") for e in range(6))),
    "boosting": ("iteration", None, [*range(6)],
                 lambda w: "".join(w(f"[{e}]\ttrain-rmse:0.61188\teval-rmse:0.628073") for e in range(6))),
    "bar": ("epoch", None, [*range(4)],
            lambda w: "".join(w("\r".join(tqdm(f"Epoch {e}", b, 20) for b in (0, 5, 10, 20))) for e in range(4))),
    "json": ("step", None, [*range(10, 70, 10)],
             lambda w: "".join(w(f'{{"global_step": {s}, "loss": 0.3, "lr": 0.001}}') for s in range(10, 70, 10))),
    "table": ("epoch", None, [*range(1, 7)], table),
    "box": ("iteration", None, [*range(1, 6)], box),
    "transformers' Trainer": ("step", 40, [*range(0, 40, 5)], hf),
}  # fmt: skip


def scanned(path: Path, text: str) -> dict[str, Any]:
    path.write_bytes(text.encode())
    return scan_json(scan_log(path, packaged_presets()))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_clock_is_the_same_behind_each_prefix(prefix: str, program: str, tmp_path: Path) -> None:
    unit, total, indexes, lines = PROGRAMS[program]
    found = scanned(tmp_path / "train.log", lines(PREFIXES[prefix]))
    assert (found["unit"], found["total"], [m["index"] for m in found["markers"]]) == (unit, total, indexes)


@pytest.mark.parametrize(("unit", "total", "indexes", "text"), [kind[1:] for kind in KINDS], ids=[k[0] for k in KINDS])
def test_the_clock_of_many_programs(
    unit: str, total: int | None, indexes: list[int], text: str, tmp_path: Path
) -> None:
    found = scanned(tmp_path / "train.log", text)
    assert (found["unit"], found["total"], [m["index"] for m in found["markers"]]) == (unit, total, indexes)


def test_the_fraction_of_epochs_is_a_gauge(tmp_path: Path) -> None:
    found = scanned(tmp_path / "train.log", hf(PREFIXES["none"]))
    assert [(gauge["name"], gauge["value"]) for gauge in found["gauges"][:3]] == [
        ("epoch", 0),
        ("epoch", 0.5),
        ("epoch", 1),
    ]


TOTALS = {
    "epoch": """Total epochs: 50|n_epochs = 50|EPOCHS=50|python train.py --lr 0.1 --epochs 50 --seed 3|--num-epochs=50
        |Training for 50 epochs|Training 50 epochs|epochs               50|epochs\t50|'epochs': 50,|  epochs = 50
        |"num_train_epochs": 50,|TrainingArguments(output_dir=a, num_train_epochs=50, max_steps=-1)
        |max-epochs: 50|train.epochs: 50|Epochs ...... 50|TOTAL EPOCHS 50|args.epochs=50|epoch_num: 50|max_epoch=50""",
    "step": """max_steps=50|max_steps      : 50|--max-steps 50|--max_train_steps=50|num_training_steps = 50
        |total steps: 50|Total training steps: 50|training for 50 steps|train_steps: 50|MAX_STEPS = 50
        |total_train_steps=50|target steps 50|Start 50 train steps.""",
    "iteration": """n_iterations: 50|--iterations 50|max_iters = 50|num_iters: 50|MAX_ITER: 50|iterations: 50|niter=50
        |iters: 50""",
    "trial": "Starting hyperparameter optimization with 50 trials|Running 50 trials",
    "generation": "n_gen: 50|generations = 50|--generations 50|MAX_GENERATIONS=50|ngen=50|Running 50 generations",
}


@pytest.mark.parametrize(
    ("unit", "line"), [(unit, line.rstrip()) for unit in TOTALS for line in TOTALS[unit].split("|")]
)
def test_a_total_is_found_wherever_it_stands(unit: str, line: str, tmp_path: Path) -> None:
    found = scanned(tmp_path / "train.log", line + "\n" + "".join(f"{unit} {i} loss 0.3\n" for i in range(1, 8)))
    assert (found["unit"], found["total"], len(found["markers"])) == (unit, 50, 7)
