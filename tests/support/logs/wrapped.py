"""Logs with what launchers, containers and loggers put around each line, and with bars of what comes before the run."""

# ruff: noqa: E501 - lines as long as the programs print them
from __future__ import annotations

from collections.abc import Iterator

from support.logs import bar, falling, log, n, tqdm


@log("epoch", 6, "start")
def docker_json_file() -> Iterator[str]:
    for e in range(1, 7):
        yield f'{{"log":"Epoch {n(e)}/6\\n","stream":"stdout","time":"2026-11-21T03:52:47.{e}23456789Z"}}'
        drawn = "\\r".join(tqdm("", b, 25).replace("<", "\\u003c") for b in (1, 9, 25))
        yield f'{{"log":"\\u001b[1m{drawn}\\u001b[0m\\r\\n","stream":"stderr","time":"2026-11-21T03:52:48.{e}23456789Z"}}'


@log("step", 90, "start")
def docker_hf_trainer() -> Iterator[str]:
    for s in range(0, 90, 5):
        drawn = bar("", s, 90).replace("<", "\\u003c")
        yield f'{{"log":"\\r{drawn}\\r                     \\r{{\'loss\': 1.{s}, \'epoch\': {s / 30:.2f}}}\\n","stream":"stderr","time":"2026-11-21T03:52:48.{s}Z"}}'


@log("iteration", None, "end")
def cri_sb3() -> Iterator[str]:
    for i in range(1, 9):
        for row in (
            "-" * 40,
            f"| iterations         | {n(i)}           |",
            f"| total_timesteps    | {2048 * i}       |",
            "-" * 40,
        ):
            yield f"2026-10-06T00:17:{i:02}.669794202Z stdout F {row}"


@log("iteration", None, "end")
def journald_sklearn() -> Iterator[str]:
    for i in range(1, 9):
        yield f"Nov 21 03:52:{i:02} gpu-3 train.sh[3112]: Iteration {n(i)}, loss = 0.6938{i}"


@log("iteration", None, "end")
def compose_boosting() -> Iterator[str]:
    for i in range(0, 90, 10):
        yield f"trainer-1  | [{n(i)}]\ttrain-rmse:0.61188\teval-rmse:0.62807{i}"


@log("epoch", None, "end")
def srun_table() -> Iterator[str]:
    for row in ("epoch  train_loss  valid_loss  dur", "-----  ----------  ---------- ----"):
        yield from (f"{rank}: {row}" for rank in (0, 1, 2))
    for e in range(1, 7):
        yield from (f"{rank}:     {n(e) if rank == 0 else e}      0.7{e}      0.6{rank}     0.01" for rank in (0, 1, 2))


@log("epoch", 9, "start")
def torchrun_tee() -> Iterator[str]:
    for e in range(1, 7):
        yield from (
            f"[default{rank}]:Epoch {n(e) if rank == 3 else e - 1}/9" for rank in (3, 0, 1) if rank == 3 or e > 1
        )


@log("epoch", 40, "start")
def ray_actor_that_is_restarted() -> Iterator[str]:
    for e in range(1, 40):
        yield f"\x1b[36m(train_fn pid={3112 if e < 9 else 4771}, ip=10.0.0.3)\x1b[0m Epoch {n(e)}/40"


@log("epoch", None, "end")
def hydra_rank() -> Iterator[str]:
    for e in range(9):
        yield f"[rank0]: [2026-11-21 03:52:4{e},123][__main__][INFO] - epoch {n(e)}: train_loss: {falling(e):.4f}"


@log("step", None, "end")
def loguru_json() -> Iterator[str]:
    for s in range(10, 90, 10):
        yield f'2026-11-21 03:52:{s}.123 | INFO     | __main__:train:42 - {{"global_step": {n(s)}, "loss": {falling(s):.3f}}}'


@log("step", 400, "end")
def json_lines_with_their_total() -> Iterator[str]:
    yield '{\n  "learning_rate": 0.0003,\n  "max_steps": 400,\n  "warmup_steps": 40,\n  "save_steps": 50\n}'
    for s in range(10, 90, 10):
        yield f'{{"global_step": {n(s)}, "max_steps": 400, "epoch": {s / 90:.3f}, "loss": {falling(s):.3f}}}'


@log("iteration", 1000, None)
def mlx_lora() -> Iterator[str]:
    yield "Loading pretrained model\n\rFetching 9 files:   0%|          | 0/9 [00:00<?, ?it/s]\rFetching 9 files: 100%|##########| 9/9 [00:00<00:00, 9312.1it/s]"
    yield "Starting training..., iters: 1000"
    for i in (1, *range(10, 300, 10)):
        yield f"Iter {n(i)}: Train loss {falling(i):.3f}, Learning Rate 1.000e-05, It/sec 0.317, Peak mem 60.333 GB"
        if i % 100 == 0:
            yield f"Iter {i}: Saved adapter weights to adapters/adapters.safetensors and adapters/{i:07}_adapters.safetensors."


@log("iteration", None, "end")
def tesseract() -> Iterator[str]:
    for i in range(1, 40):
        yield f"At iteration {n(i * 67)}/{i * 100}/{i * 100 + i}, Mean rms=5.889%, delta=39.1%, New best BCER = 9{i}.0 wrote checkpoint.\n"


@log("step", None, "end")
def nerfstudio() -> Iterator[str]:
    for s in range(60):
        left = f"1 h, {30 - s} m, 0 s" if s < 30 else f"{60 - s} m, 15 s" if s < 55 else f"{60 - s} s, 412 ms"
        yield "Step (% Done)       Train Iter (time)    ETA (time)           Train Rays / Sec                       "
        yield "-" * 83
        yield f"{n(f'{20000 + 100 * s}')} (66.67%)      41.140 ms            {left:<20} 11.32 M"


@log("step", 400, "end")
def time_left_in_words() -> Iterator[str]:
    for s in range(10, 400, 10):
        yield f"[{n(s)}/400] loss {falling(s):.3f} eta {'1 hour 3 minutes' if s < 200 else '40 minutes'}"


@log("epoch", 4, None)
def ultralytics_of_2025() -> Iterator[str]:
    yield "engine/trainer: task=detect, mode=train, model=yolo11n.pt, epochs=4, time=None, patience=100, batch=16"
    yield "Starting training for 4 epochs..."
    for e in range(1, 5):
        yield "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size"
        rows = (
            f"\x1b[K{n(e):>11}/4         0G      1.139      3.118      1.264         16        640: {100 * b // 8}% {'━' * b}{'─' * (12 - b)} {b}/8 1.2it/s {b}.2s<1.0s"
            for b in (1, 4, 8)
        )
        yield "\r".join(rows)
        yield f"\x1b[K                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100% {'━' * 12} 4/4 2.1it/s 0.5s"
        yield "                   all          4         17      0.571      0.849      0.853      0.631"
    yield "4 epochs completed in 0.01 hours."


@log("epoch", None, "start")
def loading_bars_before_epochs() -> Iterator[str]:
    yield "\r".join(tqdm("Loading weights", b, 96) for b in range(97))
    yield "\r".join(tqdm("Tokenizing", b, 40) for b in range(41))
    for e in range(4):
        yield "\r".join([tqdm(f"Epoch {n(e)}", 0, 20), *(tqdm(f"Epoch {e}", b, 20) for b in (5, 10, 20))])
        yield "\r".join(tqdm("Validation", b, 12) for b in range(13))


@log("step", 400, "start")
def a_bar_without_a_name_that_ends_first() -> Iterator[str]:
    yield "\r".join(tqdm("", b, 96) for b in range(0, 97, 4))
    for s in range(0, 400, 20):
        yield "\r" + bar("", s, 400) + f"\nloss {falling(s):.3f}"


@log("epoch", 5, None)
def rich_track() -> Iterator[str]:
    for e in range(1, 6):
        yield f"Epoch {n(e)}/5 {'━' * 40} 100% 0:00:00"
        yield f"                    INFO     epoch {e} done loss=0.4                                                            train.py:8"


@log("epoch", None, "end")
def fastai_with_redrawn_bars() -> Iterator[str]:
    yield "epoch     train_loss  valid_loss  time    "
    for e in range(5):
        yield "\r".join(f"█ : |{'█' * b}{'-' * (10 - b)}| {b * 10}.00% [{b}/10 00:0{b}<00:10 0.31]" for b in range(11))
        yield f"{n(e)}         0.412345    0.312345    00:12     "
