"""What people write themselves: f-strings, loggers, tables, JSON and CSV, other languages."""

# ruff: noqa: E501 - lines as long as the programs print them
from __future__ import annotations

import json
from collections.abc import Iterator

from support.logs import falling, log, n, tqdm


@log("epoch", None, "end")
def took_minutes() -> Iterator[str]:
    yield "Loaded 50000 images in 12.3s"
    for e in range(10):
        yield f"Epoch {n(e)} took 1:2{e}.{e}, train loss={falling(e):.3f}, lr=1e-0{e % 5 + 1}, peak mem 12{e}4MB"


@log("round", 20, None)
def syslog_rounds() -> Iterator[str]:
    for r in range(1, 21):
        yield f"Nov 21 03:{r + 10}:47 gpu-3 fedavg[31{r:02}]: round {n(r)}/20 started, 12 of 40 clients"
        yield f"Nov 21 03:{r + 10}:49 gpu-3 fedavg[31{r:02}]: round {n(r)}/20 done, accuracy=0.{r + 40}"


@log("epoch", 10, "end")
def loguru() -> Iterator[str]:
    for e in range(1, 11):
        yield f"\x1b[32m2024-05-01 12:{e:02}:00.123\x1b[0m | \x1b[1mINFO    \x1b[0m | \x1b[36m__main__\x1b[0m:\x1b[36mtrain\x1b[0m:\x1b[36m42\x1b[0m - \x1b[1mEpoch {n(e)}/10 - train loss: {falling(e):.4f}\x1b[0m"
        yield f"\x1b[32m2024-05-01 12:{e:02}:07.423\x1b[0m | \x1b[33mWARNING \x1b[0m | \x1b[36mdata\x1b[0m:\x1b[36mload\x1b[0m:\x1b[36m117\x1b[0m - \x1b[33mslow batch {e * 17 % 90}: 2.3 s\x1b[0m"


@log("epoch", None, "end")
def structlog() -> Iterator[str]:
    yield "2024-05-01 12:00:00 [info     ] start                          seed=3 workers=8"
    for e in range(12):
        yield f"2024-05-01 12:{e:02}:10 [\x1b[32m\x1b[1minfo     \x1b[0m] \x1b[1mepoch finished\x1b[0m                 \x1b[36mepoch\x1b[0m=\x1b[35m{n(e)}\x1b[0m \x1b[36mloss\x1b[0m=\x1b[35m{falling(e):.3f}\x1b[0m"


@log("epoch", None, None)
def json_lines() -> Iterator[str]:
    yield json.dumps({"ts": "2024-05-01T12:00:00Z", "level": "info", "msg": "config", "batch_size": 32, "seed": 1})
    step = 0
    for e in range(8):
        for b in range(4):
            step += 250
            text = json.dumps(
                {
                    "ts": f"2024-05-01T12:{e:02}:{b:02}Z",
                    "level": "info",
                    "epoch": 77777,
                    "step": step,
                    "loss": falling(step),
                }
            )
            yield text.replace("77777", n(e) if b == 0 else str(e))


@log("generation", None, "end")
def json_generations() -> Iterator[str]:
    for g in range(1, 20):
        yield f'{{"time": {1714560000 + g * 31}, "event": "gen_end", "gen": {n(g)}, "best": {falling(g):.5f}, "evaluated": {g * 200}, "rss_mb": {900 + g * 7}}}'


@log("epoch", None, "end")
def csv_crlf() -> Iterator[str]:
    yield "epoch,train_loss,val_loss,seconds\r"
    for e in range(1, 16):
        yield f"{n(e)},{falling(e):.4f},{falling(e) + 0.1:.4f},{12 + e % 3}.{e}\r"


@log("generation", None, "end")
def csv_second_column() -> Iterator[str]:
    yield "time,generation,evaluations,best,mean"
    for g in range(20):
        yield f"{1714560000 + g * 12},{n(g)},{(g + 1) * 100},{falling(g):.4f},{falling(g) + 0.3:.4f}"


@log("step", None, "end")
def tsv_steps() -> Iterator[str]:
    yield "# run 7 of the sweep"
    yield "step\tloss\tgrad_norm\tlr\ttokens"
    for s in range(0, 2000, 100):
        yield f"{n(s)}\t{falling(s):.5f}\t0.{s % 97}\t3.0e-04\t{s * 4096}"


@log("epoch", 50, "end")
def german() -> Iterator[str]:
    yield "Lade Daten … 50.000 Bilder"
    for e in range(1, 21):
        yield f"Epoche {n(e)}/50 – Verlust: {falling(e):.4f}".replace(".", ",") + f", Dauer: {10 + e % 5},3 s"


@log("epoch", 30, "end")
def chinese() -> Iterator[str]:
    yield "开始训练，共 30 轮"
    for e in range(1, 21):
        yield f"第 {n(e)}/30 轮：训练损失 {falling(e):.4f}，验证准确率 0.{e + 50}，用时 {12 + e % 4} 秒"


@log("epoch", 12, "end")
def russian() -> Iterator[str]:
    for e in range(1, 13):
        yield f"Эпоха {n(e)}/12, потери: {falling(e):.4f}, точность: 0.{e + 60}, время: 0:01:{e + 10}"


@log("generation", None, "end")
def spanish() -> Iterator[str]:
    for g in range(1, 18):
        yield f"Generación {n(g)}: mejor aptitud = {falling(g):.4f}, promedio = {falling(g) + 1:.4f}, tiempo {g}.3 s"


@log("generation", None, "end")
def japanese() -> Iterator[str]:
    for g in range(1, 18):
        yield f"世代 {n(g)} 最良適応度={falling(g):.4f} 平均={falling(g) + 1:.4f} 個体数=200"


@log("generation", None, "end")
def generation_said_at_its_end_only() -> Iterator[str]:
    for g in range(6):
        for e in range(1, 4):
            for s in range(0, 300, 100):
                yield f"    epoch {e} step {s}/300 loss {falling(s):.4f}"
        yield f"generation {n(g)} done: best {falling(g):.4f}, archive {g * 40} entries"


@log("epoch", 50, "end")
def total_in_a_sentence() -> Iterator[str]:
    yield "Training for 50 epochs on 2 GPUs (batch size 64)"
    for e in range(1, 30):
        yield f"[{n(e, '3d')}] loss {falling(e):.4f}  acc 0.{e + 40}  {3 + e % 4}.1s"


@log("epoch", 100, "end")
def config_dump_first() -> Iterator[str]:
    yield "Namespace(arch='resnet50', batch_size=256, epochs=100, evaluate=False, gpu=None, lr=0.1, print_freq=10, seed=None, start_epoch=0, workers=4)"
    yield "model:\n  layers: 12\n  heads: 8\ntrain:\n  epochs: 100\n  batch_size: 256\n  warmup_epochs: 5\n  save_every_epoch: 10\n  max_steps: -1"
    for e in range(25):
        yield f"epoch {n(e)} | loss {falling(e):.4f} | lr 0.1 | 12{e}.3 s"


@log("epoch", 50, "start")
def resumed() -> Iterator[str]:
    yield "=> loading checkpoint 'runs/a/checkpoint_0012.pth.tar'"
    yield "=> loaded checkpoint (epoch 12)"
    yield "Resuming from epoch 12 (global step 4680)"
    for e in range(13, 31):
        yield f"Epoch {n(e)}/50"
        yield f"  train loss {falling(e):.4f}  val loss {falling(e) + 0.1:.4f}"


@log("epoch", 8, "start")
def one_based_head_zero_based_foot() -> Iterator[str]:
    for e in range(8):
        yield f"Epoch {n(e + 1)}/8"
        yield f"  batch 100/200 loss {falling(e):.3f}\n  batch 200/200 loss {falling(e):.3f}"
        yield f"epoch {e} done in 12.{e}s, best so far 0.2{e}"


@log("step", 10000, "end")
def steps_by_100() -> Iterator[str]:
    for s in range(100, 4001, 100):
        yield f"step {n(s)}/10000 | loss {falling(s):.4f} | norm 0.{s % 97} | {200 + s % 9} ms | {4000 + s % 31} tok/s"


@log("step", 1000, "end")
def bare_ratio() -> Iterator[str]:
    for i in range(50, 1001, 50):
        yield f"[{n(i, '04d')}/1000] loss {falling(i):.4f} lr 1.00e-03 eta 0:0{i % 9}:12"


@log("fold", 5, "start")
def folds_around_epochs() -> Iterator[str]:
    for fold in range(1, 6):
        yield f"===== Fold {n(fold)}/5 ====="
        for e in range(1, 11):
            yield f"epoch {e}/10 train {falling(e):.4f} valid {falling(e) + 0.1:.4f}"


@log("epoch", 3, "start")
def preparation_counts_first() -> Iterator[str]:
    for r in range(1000, 20001, 1000):
        yield f"tokenized {r} documents"
    yield "Loading checkpoint shards:  33%|███▎      | 1/3 [00:01<00:02,  1.0s/it]\rLoading checkpoint shards: 100%|██████████| 3/3"
    for w in range(8):
        yield f"worker {w} started (pid {4000 + w})"
    for e in range(1, 4):
        yield f"Epoch {n(e)}/3"
        for b in range(0, 400, 50):
            yield f"  batch {b}/400: loss {falling(b):.4f}"


@log("day", 365, "start")
def simulation_days() -> Iterator[str]:
    for d in range(1, 60):
        yield f"Simulation day {n(d)} of 365"
        yield f"  infected {d * 31 % 977}, susceptible {100000 - d * 31}"


@log("cycle", 20, "start")
def named_cycles() -> Iterator[str]:
    for c in range(1, 13):
        yield f"=== Cycle {n(c)} of 20 ==="
        yield f"explore: {100 + c * 7 % 30} new states\nlearn: loss {falling(c):.3f}\nprune: kept {400 + c * 13 % 50}"


@log("epoch", 5, "start")
def heartbeat_between() -> Iterator[str]:
    beat = 0
    for e in range(1, 6):
        yield f"Epoch {n(e)}/5"
        for _ in range(12):
            beat += 1
            yield f"heartbeat {beat} ok"


@log("generation", 25, "start")
def kubernetes_prefix() -> Iterator[str]:
    for g in range(1, 26):
        yield f"2024-05-01T12:{g:02}:00.{g * 31337 % 999999999:09}Z stdout F Generation {n(g)}/25"
        yield f"2024-05-01T12:{g:02}:59.{g * 77777 % 999999999:09}Z stderr F best={falling(g):.4f}"


@log("epoch", 10, "end")
def docker_compose_prefix() -> Iterator[str]:
    for e in range(1, 11):
        yield f"db-1       | 2024-05-01 12:{e:02}:00.123 UTC [1] LOG:  checkpoint complete: wrote {e * 31 % 90} buffers"
        yield f"trainer-1  | Epoch {n(e)}/10: loss={falling(e):.4f}"


@log("epoch", 10, "start")
def srun_labels() -> Iterator[str]:
    for e in range(1, 11):
        for task in (0, 1, 2, 3):
            yield f"{task}: Epoch {n(e)}/10"


@log("e", None, "progress")
def terse() -> Iterator[str]:
    for e in range(6):
        for b in range(0, 400, 100):
            yield f"[E{n(e) if b == 0 else e} B{b:03}] L={falling(b):.3f} a={b % 97}% t={b / 9:.1f}s"


@log("epoch", 500, "end")
def ep_abbreviated() -> Iterator[str]:
    for e in range(1, 41):
        yield f"Ep {n(e)}/500 | steps {30 + e * 17 % 90} | return {e * 3.1:.1f} | eps {1 - e / 500:.3f} | buffer {e * 61}"


@log("epoch", None, "progress")
def train_and_test_phases() -> Iterator[str]:
    for e in range(1, 11):
        for phase in ("train", "val", "test"):
            yield f"epoch {n(e)} {phase}: loss {falling(e):.4f} acc 0.{e + 50}"


@log("iteration", None, "end")
def percent_and_eta() -> Iterator[str]:
    for i in range(10, 400, 10):
        yield f"Iter {n(i)} ({i / 50:.1f}%) eta 0:{i % 60:02}:10 mem 1{i}MB total 5000 iters loss {falling(i):.4f}"


@log("epoch", 20, "start")
def julia_info() -> Iterator[str]:
    yield "[ Info: Training on CPU, epochs = 20"
    for e in range(1, 15):
        yield f"[ Info: Epoch {n(e)}"
        yield f"┌ Info: evaluation\n│   train_loss = {falling(e)}\n└   test_acc = 0.{e + 70}"


@log("step", 100, None)
def progressbar2() -> Iterator[str]:
    yield "\r".join(
        f"{e:3}% ({n(e)} of 100) |{'#' * (e // 10)}{' ' * (10 - e // 10)}| Elapsed Time: 0:00:{e % 60:02} ETA:   0:01:{(100 - e) % 60:02}"
        for e in range(100)
    )


@log("epoch", None, "end")
def bars_at_the_end_only() -> Iterator[str]:
    for e in range(6):
        yield tqdm(f"Epoch {n(e)}", 400, 400, ", loss=0.31")
        yield tqdm("Eval", 50, 50)


@log("step", None, "end")
def keys_and_values() -> Iterator[str]:
    yield "level=info msg=start version=1.4.2 pid=4711"
    for s in range(0, 3000, 100):
        yield f'ts=1714560{s:03} level=info msg="train" step={n(s)} loss={falling(s):.4f} lr=0.0003 rss_mb={900 + s // 31}'


@log("iteration", None, "start")
def outer_iteration_inner_epochs() -> Iterator[str]:
    for i in range(1, 7):
        yield f"Active learning iteration {n(i)}: {i * 100} labelled samples"
        for e in range(1, 4):
            yield f"Epoch {e}/3 - loss {falling(e):.4f}"


@log("epoch", 40, "start")
def cuda_oom_and_retry() -> Iterator[str]:
    for e in range(1, 12):
        yield f"Epoch {n(e)}/40"
        if e == 5:
            yield 'Traceback (most recent call last):\n  File "/app/train.py", line 214, in step\n    loss.backward()\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity; 70.12 GiB already allocated)'
            yield "caught OOM, halving the batch: 64 -> 32"
        yield f"  loss {falling(e):.4f}"
