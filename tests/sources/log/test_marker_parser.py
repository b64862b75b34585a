"""Lines become markers: the presets, the choice among them, and what counts up in an unknown log."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwatch.core.events import CheckpointSeen, Event, GaugeSeen, GenerationSeen, OutOfMemorySeen, PhaseSeen, TotalSeen
from memwatch.sources.log.log_tail import LogSegmenter
from memwatch.sources.log.marker_parser import MarkerFinder
from memwatch.sources.log.marker_presets import Preset
from memwatch.sources.log.primary_counter import LocatedEvent
from memwatch.sources.log.unit_mentions import UNIT_PRIORITY, find_unit_mentions
from support.presets import packaged_presets
from support.stopwatch import CpuStopwatch


def find(text: str | bytes, *presets: Preset, bare: bool = False) -> tuple[MarkerFinder, list[LocatedEvent]]:
    raw = text.encode() if isinstance(text, str) else text
    finder, segmenter = MarkerFinder(presets if bare or presets else packaged_presets()), LogSegmenter()
    segments = [*segmenter.split(raw), *segmenter.flush()]
    return finder, [hit for s in segments for hit in finder.find_markers(s.data, s.byte, s.line, float(s.line))]


def events(text: str, *presets: Preset) -> list[Event]:
    return [hit.event for hit in find(text, *presets)[1]]


def indexes(text: str, bare: bool = False) -> tuple[str | None, list[float]]:
    finder, hits = find(text, bare=bare)
    return finder.unit, [hit.event.index for hit in hits if isinstance(hit.event, GenerationSeen)]


# --- presets ---


@pytest.mark.parametrize(
    ("line", "preset", "index", "total", "at"),
    [
        ("Generation 7 / 25", "evolutionary", 7, 25, "start"),
        ("=== GENERATION 7/25 ===", "evolutionary", 7, 25, "start"),
        ("🧬 Generation 7 of 25", "evolutionary", 7, 25, "start"),
        ("Generation 7/25 complete in 3.2s", "evolutionary", 7, 25, "end"),
        (" ****** Running generation 3 ****** ", "neat", 3, None, "start"),
        ("Epoch 3/10", "keras", 3, 10, "start"),
        ("Epoch 3:  13%|#3  | 5/38 [00:00<00:00, 4.1it/s]", "lightning", 3, None, "start"),
        ("Epoch 3/4  ━━━━━━━━━━ 38/38 0:00:00", "lightning", 3, 5, "progress"),
        ("{'loss': 0.5, 'learning_rate': 4e-05, 'epoch': 2.25}", "huggingface", 2, None, "end"),
        ("[10]\ttrain-rmse:0.61188\teval-rmse:0.62", "boosting", 10, None, "end"),
        ("10:\tlearn: 0.6931\ttotal: 56ms\tremaining: 5.5s", "boosting", 10, None, "end"),
    ],
)
def test_one_line_of_a_known_program_is_enough(line: str, preset: str, index: float, total: int, at: str) -> None:
    finder, hits = find(line + "\n")
    marker = next(hit.event for hit in hits if isinstance(hit.event, GenerationSeen))
    assert finder.preset == preset
    assert (marker.index, marker.total, marker.at, marker.unit) == (index, total, at, finder.unit)
    assert finder.total == total


def test_the_time_left_is_told_with_the_marker_of_its_line_where_no_total_is_known() -> None:
    rows = "".join(f"{i}:\tlearn: 0.{90 - i}\ttotal: {i}s\tremaining: {391 - i}s\n" for i in range(4))
    told = [one.remaining_seconds for one in events(rows) if isinstance(one, GenerationSeen)]
    assert told == [391.0, 390.0, 389.0, 388.0]
    rows = "".join(f"Epoch {i}/9 loss 0.{90 - i} eta: 0:01:{20 - i}\n" for i in range(1, 5))
    assert {one.remaining_seconds for one in events(rows) if isinstance(one, GenerationSeen)} == {None}


def test_a_users_preset_comes_before_all_others() -> None:
    rule = {"kind": "generation", "pattern": r"round (?P<index>[\d.]+) von (?P<total>\d+)", "at": "end"}
    mine = Preset.from_mapping({"name": "mine", "unit": "round", "rules": [rule]}, "mine", user=True)
    text = "Generation 1 / 25\nround 3 von 9\nGeneration 2 / 25\nround 4 von 9\n"
    finder, hits = find(text, *packaged_presets(), mine)
    assert finder.preset == "mine"
    assert [h.event.index for h in hits if isinstance(h.event, GenerationSeen)] == [1, 3, 4]
    assert finder.counter_changes == 2


@pytest.mark.parametrize("text", ["nan", "1e999", "9" * 400, "--", "", "1e300"])
def test_a_users_pattern_may_match_anything_but_only_numbers_count(text: str) -> None:
    rule = {"kind": "generation", "pattern": r"at <(?P<index>.*?)>"}
    mine = Preset.from_mapping({"rules": [rule]}, "mine", user=True)
    assert events(f"at <{text}>\n", mine) == []


def test_a_users_fraction_is_a_gauge_and_counts_whole_units() -> None:
    mine = Preset.from_mapping(
        {"unit": "epoch", "rules": [{"kind": "generation", "pattern": r"^done (?P<done>[\d.]+)", "at": "end"}]}, "mine"
    )
    found = events("done 0.4\ndone 1.2\ndone 1.8\ndone 2.0\n", mine)
    assert [event.index for event in found if isinstance(event, GenerationSeen)] == [1, 2]
    assert [event.value for event in found if isinstance(event, GaugeSeen)] == [0.4, 1.2, 1.8, 2]


def test_a_total_that_the_index_passes_was_none() -> None:
    finder, _ = find("num_steps: 20\n" + "".join(f"step {i} loss 0.1\n" for i in range(10, 90, 10)))
    assert (finder.unit, finder.total) == ("step", None)


def test_a_clock_goes_on_in_another_kind_of_lines() -> None:
    text = "".join(f"{'learner' if g < 6 else 'trainer'} at gen {g}, best 0.3\n" for g in range(20))
    finder, hits = find(text, bare=True)
    assert (finder.unit, finder.counter_changes) == ("generation", 1), "nothing begins anew"
    assert [hit.event.index for hit in hits if isinstance(hit.event, GenerationSeen)] == list(range(20))


def test_a_unit_is_counted_in_all_kinds_of_lines_that_go_on() -> None:
    """The rare line of a summary, and the others between that tell of single units."""
    text = "".join(
        f"Generation {g}: best 0.3\n" if g % 10 == 0 else f"new elite in generation {g}\n" if g % 3 else "sampling\n"
        for g in range(60)
    )
    finder, hits = find("Configuration: {'generations': 60, 'elite': 4}\n" + text, bare=True)
    indices = [hit.event.index for hit in hits if isinstance(hit.event, GenerationSeen)]
    assert indices[-30:] == [g for g in range(60) if g % 3 or g % 10 == 0][-30:] and finder.counter_changes == 1


def test_a_validation_that_counts_the_same_unit_is_not_taken_in() -> None:
    lines = [f"train step {s} loss 0.3\n" for s in range(10, 400, 10)]
    for at in (30, 20, 10):
        lines[at:at] = [f"validating, step {v} loss 0.4\n" for v in range(1, 6)]
    _, hits = find("".join(lines), bare=True)
    assert {h.event.index for h in hits if isinstance(h.event, GenerationSeen)} == set(range(10, 400, 10))


def test_the_time_of_a_simulation_is_its_clock_also_in_steps_that_differ() -> None:
    times = [0.005 * n for n in range(1, 41)] + [0.2 + 0.0125 * n for n in range(1, 41)] + [1, 1.5]
    text = "".join(
        f"Time = {t:.6g}\n\nCourant Number mean: 0.1 max: 0.5\nExecutionTime = 0.0{n} s\n" for n, t in enumerate(times)
    )
    finder, hits = find("Create mesh for time = 0\n" + text, bare=True)
    assert finder.unit == "time"
    assert [h.event.index for h in hits if isinstance(h.event, GenerationSeen)] == [float(f"{t:.6g}") for t in times]


def test_a_bar_below_another_is_no_clock() -> None:
    outer = [f"\r {n}%|## | {n}/160 [00:49<1:06:06, 25.10s/it]" for n in range(51)]
    inner = [f"\n {n}%|### | {n}/368 [00:01<00:55, 1.20it/s]\x1b[A" for n in range(120)]
    rest = [f"\r {n}%|## | {n}/160 [00:49<1:06:06, 25.10s/it]" for n in range(51, 100)]
    finder, hits = find("".join([*outer, *inner, *rest]), bare=True)
    assert [h.event.index for h in hits if isinstance(h.event, GenerationSeen)] == list(range(100))
    assert (finder.total, finder.counter_changes) == (160, 1)


def test_total_phases_and_gauges_that_a_preset_named_before_its_first_marker_are_told_with_it() -> None:
    rules = [
        {"kind": "generation", "pattern": r"^> (?P<index>\d+)"},
        {"kind": "total", "pattern": r"^plan (?P<total>\d+)"},
        {"kind": "phase", "pattern": r"^do (?P<phase>\w+)"},
        {"kind": "gauge", "pattern": r"^(?P<name>\w+) is (?P<value>\S+)"},
    ]
    mine = Preset.from_mapping({"unit": "generation", "rules": rules}, "mine")
    text = "plan 40\ndo warmup\nqueue is 12.5\n"
    assert events(text, mine) == []
    assert events(text + "> 1\n", mine) == [
        TotalSeen(1.0, 40),
        GenerationSeen(4.0, 1, None, "generation", "start"),
        PhaseSeen(2.0, "warmup"),
        GaugeSeen(3.0, "queue", 12.5),
    ]


def test_the_best_round_that_is_printed_again_is_no_new_round() -> None:
    text = "[8]\tt's l2: 0.5\n[9]\tt's l2: 0.4\nEarly stopping, best iteration is:\n[8]\tt's l2: 0.5\n"
    assert indexes(text) == ("iteration", [8, 9])


def test_a_resumed_run_that_goes_back_is_told() -> None:
    assert indexes("Generation 4 / 9\nGeneration 5 / 9\nresumed\nGeneration 4 / 9\n")[1] == [4, 5, 4]


@pytest.mark.parametrize("count", ["..k", "1.2.3k", ".k", "5.", "12345.6k"])
def test_what_looks_like_a_rounded_count_is_no_number(count: str) -> None:
    assert events("".join(f"fit:  {i}%|#  | {count}/200k [00:0{i}<00:10, 1it/s]\n" for i in range(9))) == []


# --- what is the same for all programs ---


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("  Replay Buffer:     15,680 / 50,000", (15680, 50000)),
        ("--- Training Population (Buffer: 7840) ---", (7840, None)),
        ("Buffer not ready: 6960 / 10000", (6960, None)),
        ("buffer_size=1200", (1200, None)),
    ],
)
def test_gauges(line: str, level: tuple[float, float | None]) -> None:
    gauges = [e for e in events(line) if isinstance(e, GaugeSeen)]
    assert [(g.value, g.capacity) for g in gauges] == [level]
    assert gauges[0].name == "replay buffer"


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("Checkpoint saved: ckpt.pt", "saved"),
        ("INFO : saved /runs/results/progress.gensim", "saved"),
        ("Checkpoint> Saving in path=['./checkpoint/agent/0_Step-0.ckpt']", "writing"),
        ("💾 Saved checkpoint to runs/a/gen_12.pt", "saved"),
        ("saved model to best.pth", "saved"),
        ("Model weights saved in ./out/pytorch_model.bin", "saved"),
        ("Saving checkpoint to ckpt.npz", "writing"),
        ("Saving model checkpoint to ./out/checkpoint-500", "writing"),
        ("Interrupted, saving population ...", "writing"),
        ("80/100 ━━━━━━━━ 3s 20ms/step - loss: 0.1234Saving checkpoint to ckpt.npz", "writing"),
        ("100/100 ━━━━━━━━ 4s 20ms/step - loss: 0.1234Checkpoint saved: ckpt.npz", "saved"),
        ("At iteration 14/40, mean error=5.8, char error 93.0, New best error = 93.0 wrote checkpoint.", "saved"),
        ("Saved model.safetensors, validation error: 0.31", "saved"),
        ("[process=0] Finished saving checkpoint (finished tmp dir: `/out/400`).", "saved"),
        ("Writing model shards: 100%|##########| 1/1 [00:00<00:00, 617.63it/s]", "saved"),
        ("Writing model shards: 0%| | 0/1 [00:00<?, ?it/s]", "writing"),
        ("Writing model shards: 50%|#####     | 1/2 [00:00<?, ?it/s]", None),
        ("[ITER 7000] Saving Gaussians", "writing"),
        ("This epoch receive better accuracy: 57.07 > 42.79. Saving session...", "writing"),
        ("Saving new best policy, reward=1.083!", "writing"),
        ("[08/21 09:32:12] ppdet.utils.checkpoint INFO: Save checkpoint: output/best_model", "writing"),
        ("Save model to ckpts/TransE_l2_wn18rr_3", "writing"),
        ("2018-06-25 20:49:29,142 - root - Save best parameters to transformer/valid_best.params", "writing"),
        ("2022-04-12 17:24:35,404 - INFO - Already save model in output_model_sign/0", "writing"),
        ("2021-09-03 20:22:24.604 | INFO | yolox.core.trainer:save_ckpt:318 - Save weights to ./outputs", "writing"),
        ("> BEST MODEL : /content/vits/best_model_1000037.pth", "saved"),
        ("INFO 2026-06-12 11:35:18 ot_train.py:367 Checkpoint policy after step 5000", "writing"),
        ("[20:27:38] saving adapter ...", "writing"),
        ("[20:27:38] adapter saved to adapters/triage", "saved"),
        ("Save G/Ds models.", "writing"),
        ("2021-03-21 02:50:07,310 - Model - INFO - Save model...", "writing"),
        ("Save Checkpoint @ 09:03 AM", "writing"),
        ("============save model============", "writing"),
        ("Get better model ,score 0.24, save model to check_point/best_model2.pth.tar", "writing"),
        ("INFO:tensorflow:Assets written to: mlp_1.0_1_0.985./assets", "saved"),
        ("2023-01-01 10:00:00,123 INFO Save latest model to out/latest_model", "writing"),
        ("2023-01-01 10:00:00 | INFO | a.b | Preparing to save checkpoint for epoch 1 @ 500 updates", "writing"),
        ("I0821 09:26:08.530220 5405 solver.cpp:395] Snapshotting to binary proto file a_5000.caffemodel", "writing"),
        ("[I] Finished asynchronous save (blocking + background) in 47.57 seconds to out/checkpoints/1000", "saved"),
        ("[I] Wrote 50 array_metadata.ArrayMetadata to out/checkpoints/1000", None),
        ("Saved_the_max_model", "saved"),
        ("模型已保存至 out/best.pth", "saved"),
        ("保存最佳模型到 out/best.pth", "saved"),
        ("保存模型失败", None),
        ("Checkpointing model to model_checkpoints/iter_0_2_reg_L2/hc", "writing"),
        ("* New best AUC=0.2681 (F1=0.3966 thr=0.54) → saved", "saved"),
        ("Run log saved: D:\\work\\checkpoints_a\\logs\\run_seed_42.json", None),
        ("Using gradient checkpointing to save memory", None),
        ("LoRA params to-be-saved (float32-equivalent): 23,040", None),
        ("Save model parameters every 500 steps", None),
        ("save_checkpoint: true", None),
        ("Configuration saved in out/checkpoint-20/config.json", None),
        ("tokenizer config file saved in out/checkpoint-20/tokenizer_config.json", None),
        ("saved nothing: error writing model.safetensors", None),
        ("Saving checkpoint ... done", "saved"),
        ("Variables saved in 0.52 seconds", "saved"),
        ("PEFT modules are saved in ./out/samsum-lora directory", "saved"),
        ("Epoch 1 - Save Best Score: 11.6000 Model", "writing"),
        ("[2023/04/16 05:59:34] root INFO: save best model is to ./output/db_mv3/best_accuracy", "writing"),
        ("Saving best periodic pipeline to /tmp/tpot/pipeline_2019.02.11_16-19-15.py", "writing"),
        ("Saving checkpoints to: outputs/desk/models", None),
        ("Saving checkpoints to /data/nets/saves/ConvNet__2014-06-05_14.57.14", None),
        ("Saving model in the path :/data/logs", None),
        ("saved figure to out/model/plot.png", None),
        ("Results saved to out/checkpoint-500/results.json", None),
        ("Global data order indices saved to 'checkpoints/run/train_data/global_indices.npy'", None),
        ("Model config and weights were saved to out/3.pt", "saved"),
        ("model saved: False", None),
        ("Checkpoints will be saved to runs/", None),
        ("Save Solutions: False", None),
        ("At iteration 9/40, BCER train=12.5%, skip ratio=0.2%, New best BCER = 12.5 wrote checkpoint.", "saved"),
        ("[async] Started save checkpoint @ gs://lab-a/run/checkpoints/0.", "writing"),
        ("Started an asynchronous checkpoint save for step 0", "writing"),
        ("Finished async_save (background). Time taken: 27.0s. directory=gs://lab-a/run/checkpoints/0", "saved"),
        ("Last step checkpoint completed in 6.41s", "saved"),
        ("[INFO kernel.cc:864] Save model in resources", "writing"),
        (" 'save_checkpoint_to_hub': False,", None),
        ("skip writing the checkpoint of step 9", None),
        ("failed to save checkpoint: disk full", None),
        ("Checkpoint could not be saved", None),
        ('  save : "/media/data/models"', None),
        ("2025-07-07 13:55:26.653 INFO: [SAVE] Best model at epoch 1.", "writing"),
        ("2025-03-08 18:27:19,139 - INFO - Дообученная модель сохранена в models/0998.pth", "saved"),
        ("模型已保存: out/best.pt", "saved"),
        ("Modell gespeichert: out.pt", "saved"),
        ("modelo guardado en a.h5", "saved"),
        ("Modèle sauvegardé", "saved"),
        ("salvando o modelo em x.pt", "writing"),
        ("Fehler: Modell gespeichert? fehlgeschlagen", None),
        ("Loading the last saved checkpoint ckpt.pt", None),
    ],
)
def test_checkpoints(line: str, state: str | None) -> None:
    seen = [e for e in events(line) if isinstance(e, CheckpointSeen)]
    assert [e.state for e in seen] == ([state] if state else [])
    assert all(e.evidence == "log: " + line for e in seen)


def test_a_save_without_an_object_is_of_the_model_once_the_training_has_begun() -> None:
    lines = ["Processing...", "Saving...", *(f"Epoch: {n}\n 391/391 | Loss: 2.{n}\nSaving.." for n in range(4))]
    seen = [e for e in events("\n".join(lines)) if isinstance(e, CheckpointSeen)]
    assert [(e.state, e.evidence) for e in seen] == [("writing", "log: Saving..")] * 4


def test_what_a_preset_says_of_a_save_counts_alone() -> None:
    rule = {"kind": "checkpoint_saved", "pattern": "^Saving weights for round [0-9]+$"}
    mine = Preset.from_mapping({"name": "mine", "rules": [rule]}, "mine", user=True)
    finder = MarkerFinder([*packaged_presets(), mine])
    found = [marker.event for marker in finder.find_markers(b"Saving weights for round 3", 0, 1, 0.0)]
    assert [(type(one).__name__, getattr(one, "state", "")) for one in found] == [("CheckpointSeen", "saved")]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("MemoryError", "MemoryError"),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 1.20 GiB", "MemoryError"),
        ("RuntimeError: [enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried", "MemoryError"),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "CUDA out of memory"),
        ("RuntimeError: CUDA error: out of memory", "CUDA out of memory"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "CUDA out of memory"),
        ("OOM when allocating tensor with shape[8] on /job:a/task:0/device:GPU:0 by allocator x", "CUDA out of memory"),
        ("OOM when allocating tensor with shape[8] on /job:a/task:0/device:CPU:0 by allocator cpu", "MemoryError"),
        ('Exception in thread "main" java.lang.OutOfMemoryError: Java heap space', "OutOfMemoryError"),
        (
            "RuntimeError: DataLoader worker (pid 3) is killed by signal: Bus error. It is possible that dataloader's "
            "workers are out of shared memory. Please try to raise your shared memory limit.",
            "shared memory full",
        ),
        ("RuntimeError: unable to write to file </torch_15_30>: No space left on device (28)", "shared memory full"),
        ("OSError: [Errno 28] No space left on device: '/psm_b2f41c09'", "shared memory full"),
        ("OSError: [Errno 28] No space left on device: 'out/model.pt'", None),
        ("using shared memory for 4 workers", None),
        (
            "slurmstepd: error: Job 9 exceeded memory limit (734003200 > 536870912), being killed",
            "Slurm memory limit",
        ),
        ("slurmstepd: error: Exceeded job memory limit", "Slurm memory limit"),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=9.batch. Some of your", "Slurm memory limit"),
        ("slurmstepd: error: Detected 2 oom_kill events in StepId=9.0.", "Slurm memory limit"),
        ("slurmstepd: error: Exceeded step memory limit at some point.", None),
        ("slurmstepd: error: *** JOB 9 ON node12 CANCELLED AT 2025-11-04T08:41:07 ***", None),
        ("=>> PBS: job killed: mem 8650752kb exceeded limit 8388608kb", "PBS memory limit"),
        ("Job 104759609 has exceeded memory allocation on node1", "PBS memory limit"),
        (
            "under_oom detected for 5 seconds. Cache usage 2 less than minimum 4, re-enabling OOM killer",
            "PBS memory limit",
        ),
        ("RuntimeError: SYNHELPER workspace Allocation of size ::14493510400 failed!", "accelerator out of memory"),
        ("=>> PBS: job killed: walltime 3607 exceeded limit 3600", None),
        ("    except MemoryError:", None),
        ("memory error rate: 0.1", None),
    ],
)
def test_failed_allocations(line: str, kind: str | None) -> None:
    seen = [e for e in events(line) if isinstance(e, OutOfMemorySeen)]
    assert [(e.kind, e.line) for e in seen] == ([(kind, " ".join(line.split()))] if kind else [])


def test_terminal_escapes_reach_no_event() -> None:
    line = "\x1b[31mCheckpoint saved: \x1b]0;title\x07a\x1b[2J.pt\x1b[0m\n\x1b[1mMemoryError\x1b[0m: no\x9b2J\n"
    seen = events(line)
    assert [type(e) for e in seen] == [CheckpointSeen, OutOfMemorySeen]
    assert all("\x1b" not in str(e) and "\x9b" not in str(e) for e in seen)


@pytest.mark.parametrize(
    "line", ["Number of Generations: 50", "Namespace(num_generations=50, seed=1)", "generations: 50"]
)
def test_a_total_apart_from_the_markers(line: str) -> None:
    finder, hits = find(f"{line}\nGeneration = 1\n")
    assert finder.total == 50
    assert hits[0].event == TotalSeen(1.0, 50)


def test_a_total_of_another_unit_is_not_the_total() -> None:
    assert find("Num Epochs = 5\nGeneration = 1\n")[0].total is None


# --- what counts up in an unknown log ---


def test_a_recurring_line_with_a_number_that_goes_up() -> None:
    lines = [f"2026-11-21 03:{i:02}:00,123 worker did chunk {i} of the data in 0.{i}1 s, 512 items\n" for i in range(8)]
    assert indexes("".join(lines), bare=True) == ("chunk", list(range(8)))


def test_hits_that_were_understood_late_keep_their_own_place_and_time() -> None:
    finder, hits = find("".join(f"did part {i}\n" for i in range(7)), bare=True)
    assert [(h.byte, h.line, h.event.t) for h in hits] == [(9 + 11 * i, i + 1, i + 1.0) for i in range(7)]
    assert finder.preset == "counter"


def test_numbers_that_go_up_unevenly_or_down_are_no_counter() -> None:
    text = "".join(f"used {v} MB, left {99 - i}\n" for i, v in enumerate([3, 7, 8, 20, 21, 40, 41]))
    assert indexes(text, bare=True) == (None, [])


def test_the_outer_loop_is_the_clock() -> None:
    inner = "".join(f"Epoch {e}/3\nloss: 0.5\n" for e in (1, 2, 3))
    finder, hits = find("".join(f"Generation {g}\n{inner}" for g in (1, 2, 3)), bare=True)
    assert finder.unit == "generation"
    assert [h.event.index for h in hits if h.event.unit == "generation"] == [1, 2, 3]


def test_a_bar_without_a_name_is_the_clock_that_lines_name_now_and_then() -> None:
    lines = []
    for i in range(1, 200):
        lines.append(f"Training progress: {i // 2:>3}%|{'#' * (i // 20):<10}| {i * 10}/2000 [00:01<00:09, 99.00it/s]")
        if i % 50 == 0:
            lines.append(f"[ITER {i * 10}] Evaluating test: L1 0.05")
    finder, hits = find("\n".join(lines) + "\n")
    assert (finder.unit, finder.total) == ("iteration", 2000)
    assert [h.event.index for h in hits if isinstance(h.event, GenerationSeen)][-1] == 1990
    assert len(hits) > 190


def test_an_outer_loop_that_shows_itself_late_takes_over() -> None:
    inner = "".join(f"Epoch {e}/3\nloss: 0.5\n" for e in (1, 2, 3))
    finder, hits = find("".join(f"{inner}finished Generation {g}\n" for g in (1, 2, 3)))
    assert (finder.unit, finder.counter_changes) == ("generation", 2)
    assert [h.event.index for h in hits if h.event.unit == "generation"] == [1, 2, 3]


def test_a_counter_that_only_went_up_for_a_while_is_dropped() -> None:
    text = "".join(f"cache holds {i % 9} things\n" for i in range(40))
    finder, hits = find(text, bare=True)
    assert (finder.preset, finder.unit) == (None, None)
    assert len(hits) < 20


@pytest.mark.parametrize(
    ("line", "unit", "index", "total"),
    [
        ("Epoch: [3][ 120/5005]\tTime 0.5", "epoch", 3, None),
        ("Epoch(train)  [3][ 50/200]  lr: 0.02", "epoch", 3, None),
        ('{"ts": 1714560031, "epoch": 3, "step": 1200, "loss": 0.5}', "epoch", 3, None),
        ("global_step=300, episodic_return=23.0", "step", 300, None),
        ("Iteration No: 3 started.", "iteration", 3, None),
        ("iteration       10/     500 | consumed samples: 80", "iteration", 10, 500),
        ("[12.5s] Episodes = 3 | Steps = 600", "episode", 3, None),
        ("Ep. 3 : Up. 1200 : Cost 7.2", "epoch", 3, None),
        ("EPOCH - 3 : training on 1000 words", "epoch", 3, None),
        ("fps step: 31077 fps total: 20013 epoch: 3/500 frames: 98304", "epoch", 3, 500),
        ("Epoche 3/50 – Verlust: 0,5", "epoch", 3, 50),
        ("Эпоха 3/12, потери: 0.5", "epoch", 3, 12),
        ("第 3/30 轮：训练损失 0.5", "epoch", 3, 30),
        ("世代 3 最良適応度=0.5", "generation", 3, None),
        ("Generación 3: mejor aptitud = 0.5", "generation", 3, None),
        ("> iter 1,200 took 3 s", "iteration", 1200, None),
        ("After epoch 3: accuracy 0.5", "epoch", 3, None),
        ("loss in epoch 3: 0.5", "epoch", 3, None),
    ],
)
def test_what_a_line_says_of_its_unit(line: str, unit: str, index: int, total: int | None) -> None:
    found = {word.unit: word for word in find_unit_mentions(line.lower(), len(line))}
    word = max(found.values(), key=lambda word: UNIT_PRIORITY[word.unit])
    assert (word.unit, word.number, word.total) == (unit, index, total)
    assert line[word.position :].replace(",", "").startswith(str(index))


@pytest.mark.parametrize(
    "line",
    [
        "Best is trial 3 with value: 0.5", "no improvement since epoch 4", "resuming from epoch 12", "max_epoch=30",
        "batch_in_epoch: 7", "episodes_this_iter: 190", "loaded checkpoint (epoch 12)", "epoch 0.33", "step-1",
        "a step 5% further", "[eval batch=3/50]", "val_step: 7", "test iteration 9",
        "in 10 epochs", "warmup_epoch: 3", "epoch 12:30 started", "eps=1", "epoch .5",
    ],
)  # fmt: skip
def test_what_is_said_of_another_unit_or_of_none(line: str) -> None:
    assert not list(find_unit_mentions(line.lower(), len(line)))


def test_of_several_processes_the_first_is_followed() -> None:
    lines = [f"[rank{r}]: epoch {e - (r == 3)}/6\n" for e in (1, 2, 3) for r in (0, 3, 1) if e - (r == 3)]
    assert indexes("".join(lines), bare=True) == ("epoch", [1, 2, 3])
    islands = [f"INFO island {i}: gen {g + i} best=0.5\n" for g in range(4) for i in range(3)]
    assert indexes("".join(islands), bare=True) == ("generation", [0, 1, 2, 3])


@pytest.mark.parametrize("outer", ["Fold {}/5", "Iteration {}", "Walk {} of 9", "round {}: 12 clients"])
def test_what_starts_anew_is_the_inner_loop_whatever_it_is_called(outer: str) -> None:
    text = "".join(outer.format(o) + "\n" + "".join(f"epoch {e}/4\n" for e in range(1, 5)) for o in range(1, 5))
    assert indexes(text, bare=True)[1][-4:] == [1, 2, 3, 4]
    assert find(text, bare=True)[0].unit == outer.split(maxsplit=1)[0].lower()


def test_a_loop_that_starts_anew_several_times_in_each_unit() -> None:
    text = "".join(f"round {r}\n" + "".join(f"user {u} epoch {e}\n" for u in "abc" for e in (0, 1)) for r in range(5))
    assert find(text, bare=True)[0].unit == "round"


def test_a_run_that_begins_anew_in_the_same_log_does_not_turn_the_epoch_into_an_inner_loop() -> None:
    run = "".join(f"Epoch {e}/9\nsaved version 1 of 2\n" for e in range(1, 6))
    text = run + run.replace("version 1", "version 2")
    assert indexes(text, bare=True) == ("epoch", [1, 2, 3, 4, 5, 1, 2, 3, 4, 5])


def test_a_setting_of_several_runs_does_not_count() -> None:
    text = "".join(f"epochs: {10 * i} lr: 0.1\n" + "".join(f"> step {s}\n" for s in range(9)) for i in (1, 2, 3))
    assert find(text, bare=True)[0].unit == "step"


def test_the_hour_is_not_taken_for_a_process() -> None:
    text = "".join(f"{h}:59:01 epoch {h - 8} loss 0.5\n" for h in range(9, 20))
    assert indexes(text, bare=True) == ("epoch", list(range(1, 12)))


def test_text_that_is_another_in_each_line_does_not_drive_out_the_clock() -> None:
    words = [a + b + c for a in "abcdefgh" for b in "abcdefgh" for c in "abcdefgh"]
    text = "".join(f"epoch {e}\n" + "".join(f"{word} {i % 7}/9\n" for i, word in enumerate(words)) for e in range(4))
    assert indexes(text, bare=True) == ("epoch", [0, 1, 2, 3])


@pytest.mark.parametrize("batches", [3, 4, 40])
def test_an_index_that_is_repeated_within_its_unit_beside_one_that_starts_anew(batches: int) -> None:
    text = "".join(f"[E{e} B{b:03}] L=0.5\n" for e in range(5) for b in range(batches))
    hits = find(text, bare=True)[1]
    marks = [h.event for h in hits if isinstance(h.event, GenerationSeen)][-5:]  # with 40, the inner loop came first
    assert [(mark.index, mark.at) for mark in marks] == [(e, "progress") for e in range(5)]


@pytest.mark.parametrize("text", ["epoch,loss,s\r\n{},0.5,3\r\n", "time;epoch;loss\n17;{};0.5\n", "t,gen\n1,{}\n"])
def test_comma_separated_rows(text: str) -> None:
    head, row, _ = text.split("\n")
    whole = head + "\n" + "".join(row.format(i) + "\n" for i in range(7))
    finder, hits = find(whole, bare=True)
    assert finder.preset == "table"
    assert [h.event.index for h in hits if isinstance(h.event, GenerationSeen)] == list(range(7))


def test_a_number_without_a_word_counts_what_the_total_counts() -> None:
    text = "Training for 50 epochs\n" + "".join(f"[{i:3}] loss 0.{i}1\n" for i in range(1, 9))
    finder, hits = find(text)
    assert (finder.unit, finder.total) == ("epoch", 50)
    assert {h.event.unit for h in hits if isinstance(h.event, GenerationSeen)} == {"epoch"}


def test_a_last_index_that_stands_for_the_total() -> None:
    head = "Starting training for 30 epochs...\n     Epoch   gpu_mem       box    labels\n"
    finder, hits = find(head + "".join(f"      {i}/29     3.6G   0.045      9\n" for i in range(3)))
    assert finder.total == 30
    assert [h.event.total for h in hits if isinstance(h.event, GenerationSeen)] == [30, 30, 30]
    bar = "Epoch 0/49:  20%|##   | 20/100 [00:20<00:10, v_num=1]\n"
    assert find(bar)[0].total == 50


@pytest.mark.parametrize(
    ("line", "unit", "total"),
    [
        ("Starting training for 300 epochs...", "epoch", 300),
        ("will run for 80 generations", "generation", 80),
        ("  MAXITER =       200     TOL = 0.1000E-05", "iteration", 200),
        ("Scheduled epochs: 300. LR stepped per epoch.", "epoch", 300),
        ('  - max_epochs: "10"', "epoch", 10),
        ("  train_iters ..................... 500", "iteration", 500),
        ("    max_num_iterations=30000,", "iteration", 30000),
        ("  Total optimization steps = 1,377", "step", 1377),
        ("Starting Flower ServerApp, config: num_rounds=4, no round_timeout", "round", 4),
        ("I0211 23:50:04.121400 134871203092480 pyconfig.py:405] Config param steps: 160", "step", 160),
        ("{'steps': 160, 'lr': 0.1}", "step", 160),
        ("Config param learning_rate_schedule_steps: 160", "step", None),
        ("gradient accumulation steps: 8", "step", None),
        ("did not improve for 10 epochs", "epoch", None),
        ("training stops after no improvement for 10 epochs", "epoch", None),
        ("eval_steps=500, logging_steps=10", "step", None),
    ],
)
def test_totals_in_other_words(line: str, unit: str, total: int | None) -> None:
    finder, _ = find(line + "\n" + "".join(f"{unit} {i} begins\n" for i in range(4)))
    assert (finder.unit, finder.total) == (unit, total)


def test_a_bar_that_is_drawn_only_when_it_is_full_says_that_its_unit_is_over() -> None:
    text = "".join(f"Epoch {e}: 100%|####| 40/40 [00:03<00:00]\n" for e in range(3))
    for bare in (False, True):
        marks = [h.event for h in find(text, bare=bare)[1] if isinstance(h.event, GenerationSeen)]
        assert [(m.index, m.at) for m in marks] == [(0, "end"), (1, "end"), (2, "end")]


@pytest.mark.parametrize("rate", ["1.2epoch/s", "2.50s/epoch"])
def test_a_bar_counts_the_unit_of_its_rate(rate: str) -> None:
    text = "".join(f"\r{10 * i}%|#  | {i}/10 [00:01<00:09, {rate}, loss=0.{i}]" for i in range(4))
    assert indexes(text, bare=True) == ("epoch", [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("done", "rate", "unit"),
    [("{}it", "4.51it/s", "step"), ("{}epoch", " 2.50s/epoch", "epoch"), ("{} examples", "91.2 examples/s", "step")],
)
def test_a_bar_counts_where_nobody_told_how_many_there_will_be(done: str, rate: str, unit: str) -> None:
    text = "\r".join(f"Fitting: {done.format(i)} [00:{i:02}, {rate}, loss=0.{i}]" for i in range(1, 9))
    assert indexes(text, bare=True) == (unit, [*range(1, 9)])


def test_bytes_that_come_and_examples_that_are_read_are_no_units_of_a_run() -> None:
    text = "\r".join(f"{i}.10MB [00:{i:02}, 1.71MB/s]" for i in range(1, 9))
    text += "\r".join(f"Generating train split: {i * 1000} examples [00:01, 9123.1 examples/s]" for i in range(9))
    assert indexes(text, bare=True) == (None, [])


def test_a_bar_with_the_epoch_beside_its_count() -> None:
    text = "\r".join(f"{50 * b}%|#  | {b}/2 [00:01<00:09, epoch={e}/5]" for e in (1, 2, 3) for b in (0, 1, 2))
    assert indexes(text, bare=True) == ("epoch", [1, 2, 3])


def test_a_counter_without_a_name_counts_until_the_unit_that_was_named_does() -> None:
    text = "Starting iteration 0\n" + "".join(f"executed {s}00 of them\n" for s in range(1, 12))
    executed = [100 * s for s in range(1, 12)]
    assert indexes(text, bare=True) == ("executed", executed)
    assert indexes(text + "Starting iteration 1\n", bare=True) == ("iteration", [*executed, 0, 1])


def test_batches_within_the_only_epoch_are_counted_from_the_first_on() -> None:
    text = "".join(f"Epoch 1 ({b}/128) loss 0.{b}\n" for b in range(1, 12))
    assert indexes(text, bare=True) == ("step", [*range(1, 12)])


def test_process_ids_moments_and_measures_are_no_counters() -> None:
    text = "".join(
        f"cron[{3100 + i}]: at {1714560000 + i} rss {i + 5} MB, uptime {i}, 10.0.0.{i}, -{i}\n" for i in range(9)
    )
    assert indexes(text, bare=True) == (None, [])


def test_an_epoch_that_is_named_in_every_line_is_under_way_not_over() -> None:
    text = "".join(f"epoch {e} | batch {b} | loss 0.5\n" for e in range(3) for b in range(4))
    marks = [h.event for h in find(text, bare=True)[1] if isinstance(h.event, GenerationSeen)]
    assert [(m.index, m.at) for m in marks] == [(0, "progress"), (1, "progress"), (2, "progress")]
    once = [h.event.at for h in find("epoch 0: loss 0.5\nepoch 1: loss 0.4\n", bare=True)[1]]
    assert once == ["end", "end"]


def test_lines_with_brackets_are_not_taken_for_one_bar_redrawn() -> None:
    finder = MarkerFinder(packaged_presets())
    hits = [finder.find_markers(f"INFO [main] Generation {i} [a]", i, i, 0.0) for i in range(4)]
    assert [hit.event.index for told in hits for hit in told] == [0, 1, 2, 3]


def test_a_plain_bar_around_the_whole_run() -> None:
    bars = "".join(f"\r {4 * i}%|#  | {i}/25 [00:{i:02}<01:00,  1.00it/s]" for i in range(26))
    finder, hits = find(bars, bare=True)
    assert [h.event.index for h in hits if isinstance(h.event, GenerationSeen)] == list(range(25))
    assert finder.total == 25


def test_a_bar_that_is_drawn_anew_is_an_inner_loop() -> None:
    bars = "".join(f"\r{b}: {4 * i}%|#  | {i}/25 [00:01<01:00]" for b in ("a", "a") for i in range(0, 25, 12))
    assert indexes(bars, bare=True) == (None, [])


def test_a_table_whose_header_names_the_unit() -> None:
    text = "time  epoch  loss\n0.1   1      0.9\n0.2   2      0.8\nnote\n0.3   3      0.7\n"
    assert indexes(text, bare=True) == ("epoch", [1, 2, 3])


@pytest.mark.parametrize(
    "text", ["for 10 consecutive epochs\n" * 3, "epochs: 50\n", "step-1 3\n", "a generation 5% done\n"]
)
def test_what_only_looks_like_a_counter(text: str) -> None:
    assert indexes(text, bare=True) == (None, [])


# --- laws ---

_WORDS = [b"Generation ", b"Epoch ", b"3", b"12", b"/", b" / 25", b": ", b"\n", b"\r", b"|", b"%|#| ", b"7/9 [00:01]",
          b"\x1b[31m", b"\xff\xfe", b"\0", b"epoch  loss  time\n", b"1  0.5  0.1\n", b"| iterations | 4 |\n",
          b"-----\n", b"Buffer: 5", b"MemoryError", b"saved model.pt", b"nan", b"9" * 30, "█é中".encode()]  # fmt: skip
_LOGS = st.lists(st.one_of(st.sampled_from(_WORDS), st.binary(max_size=12)), max_size=60).map(b"".join)


@settings(max_examples=150, deadline=None)
@given(_LOGS)
def test_any_bytes_give_finite_numbers_at_true_places(raw: bytes) -> None:
    for hit in find(raw)[1]:
        assert 0 <= hit.byte < len(raw)
        event = hit.event
        if isinstance(event, GenerationSeen):
            assert math.isfinite(event.index)
            assert event.total is None or 0 < event.total <= 1e15
            assert raw[hit.byte : hit.byte + 1].isdigit()
            assert raw[: hit.byte].count(b"\n") == hit.line - 1
        if isinstance(event, GaugeSeen):
            assert math.isfinite(event.value)
        assert str(event).isprintable()


def test_a_finder_holds_a_bounded_part_of_what_it_saw() -> None:
    finder = MarkerFinder(packaged_presets())
    for i in range(6000):
        finder.find_markers(f"word{'abcdefghij'[i % 10] * (i % 97)} thing {i} {i * i}", i, i, 0.0)
        finder.find_markers(f"gauge{i} Buffer: {i} epoch {i * 7 % 11} {i}", i, i, 0.0)
    assert len(finder._counter_finder._counters) <= 128
    assert len(finder._counter_finder._recurring._numbers) <= 256
    assert all(len(stream.pending_events) <= 4096 for stream in finder._counter_finder.counters)


@pytest.mark.parametrize(
    "line",
    [
        b"| " * 2000,
        b"epoch " * 700,
        b"Epoch: [" * 500,
        b"epoch" + b" " * 4000,
        b"gen," * 1000,
        b"a 1/" * 1000,
        b"[ " * 2000,
        b"best is epoch 1 " * 250,
        "第1轮".encode() * 500,
        b"E " * 2000,
        b"x_epoch=1|" * 400,
        b"|:#" * 1300,
        b"1 " * 2000,
        b"saved model " * 340,
        b"\x1b]" * 2000,
        "━".encode() * 1300,
        "a ━ 1/2 ".encode() * 400,
        b"[rank0]: " * 450,
        b"INFO - " * 580,
        b"2024-05-01 12:00:00 " * 200,
        b"a.b:c:" * 680,
        b'{"log":"' + b"\\u003c" * 680,
        b'{"a":1,' * 580 + b'"log":',
        b"1 h, 3 m, " * 400,
        b"1/2 steps " * 400,
        b"| 1/2 [" * 580,
        b"a: | b " * 580,
        b"epoch  |  " * 400,
        b"total_steps : " * 290,
        b"{'epoch': 0." * 340,
        b"0" * 4096,
        b"- " * 2000,
    ],
)
def test_no_line_takes_long(line: bytes) -> None:
    finder = MarkerFinder(packaged_presets())
    stopwatch = CpuStopwatch()
    for i in range(10):
        finder.find_markers(line + b"%d" % i, 0, 1, float(i))
    assert stopwatch.seconds < 1.0
