"""Further programs, after samples of their output that people posted; written before anything was tried on them."""

# ruff: noqa: E501 - lines as long as the programs print them
from __future__ import annotations

from collections.abc import Iterator

from support.logs import falling, log, n, tqdm


@log("epoch", 3, None)
def llama_recipes() -> Iterator[str]:
    yield "--> Model meta-llama/Llama-2-7b-hf\n--> applying fsdp activation checkpointing...\n--> Training Set Length = 14732"
    for e in range(1, 4):
        for s in range(0, 36, 4):
            yield "\r" + tqdm(f"Training Epoch: {n(e)}/3, step {s}/36 completed (loss: {falling(s)})", s // 4, 9)
        yield f"Max CUDA memory allocated was 31 GB\nEpoch {e}: train_perplexity=1.2{e}, train_epoch_loss=0.3{e}, epoch time {200 + e}.1s"


@log("step", None, "end")
def tf_slim() -> Iterator[str]:
    yield "INFO:tensorflow:Starting Queues.\nINFO:tensorflow:global_step/sec: 0"
    for s in range(1, 60):
        yield f"INFO:tensorflow:global step {n(s)}: loss = {falling(s):.4f} (0.5{s % 10}9 sec/step)"
        if s % 20 == 0:
            yield f"2018-02-05 13:11:{s % 60}.666037: W tensorflow/core/common_runtime/bfc_allocator.cc:273] Allocator (GPU_0_bfc) ran out of memory trying to allocate 4.42GiB."


@log("epoch", None, "progress")
def graphsage() -> Iterator[str]:
    for e in range(8):
        for s in (0, 20, 40):
            mark = f"{e:05d}" if s else n(e, "05d")
            yield f"Epoch {mark} | Step {s:05d} | Loss {falling(e):.4f} | Train Acc 0.{e + 30}00 | Speed (samples/sec) 43672.{s} | GPU {296 + e}.2 MB"
        yield f"Epoch Time(s): {8 - e / 10:.4f}"


@log("epoch", None, "progress")
def step_and_samples() -> Iterator[str]:
    for e in range(1, 6):
        for s in range(0, 100, 20):
            mark = n(e, ">3") if s == 0 else f"{e:>3}"
            yield f"Train Epoch: {mark}  Step: {s:>3}  [{s * 16:>4}/1600 ({s:5.1f}%)]  Loss: {falling(e):0.6f}  lr_0:  0.001  [0.{s}12s every   16 data]"
        yield f"Epoch {e:3}  Train Loss: {falling(e):.4f}\n"
        yield f"Epoch {e:3}  Validation Loss: {falling(e):.4f}\n"


@log("epoch", 100, "end")
def time_per_epoch() -> Iterator[str]:
    for e in range(10, 101, 10):
        yield f"epoch {n(e, '5d')}/  100 | time/epoch   12.3{e % 7} ms | loss {falling(e):3.6f} | val_loss {falling(e) + 0.1:.6f}"


@log("episode", None, "end")
def dqn_explores() -> Iterator[str]:
    for e in range(1, 30):
        yield f"Episode: {n(e)} Total reward: {105.0 + e * 53 % 410} Explore P: {1 - e * 0.0141:.4f} Training Loss {falling(e):.4f}"
        if e % 5 == 1:
            yield "Model Saved"


@log("round", 4, "start")
def flower() -> Iterator[str]:
    yield "INFO :      Starting Flower ServerApp, config: num_rounds=4, no round_timeout\nINFO :      \nINFO :      [INIT]\nINFO :      Requesting initial parameters from one random client"
    for r in range(1, 5):
        yield f"INFO :      \nINFO :      [ROUND {n(r)}]"
        yield "INFO :      configure_fit: strategy sampled 10 clients (out of 100)\nINFO :      aggregate_fit: received 10 results and 0 failures\nINFO :      configure_evaluate: strategy sampled 50 clients (out of 100)\nINFO :      aggregate_evaluate: received 50 results and 0 failures"
    yield "INFO :      [SUMMARY]\nINFO :      Run finished 4 round(s) in 31.22s"


@log("generation", None, "start")
def neat_of_2016() -> Iterator[str]:
    for g in range(9):
        yield f"\n ****** Running generation {n(g)} ****** \n"
        yield "." * 250
        yield f"Population's average fitness: -{10184 - g}.15880 stdev: 28927.39939\nBest fitness: -10.{g} - size: (3, 4) - species 5 - id {2268 + g * 61}"
        yield f"Species length: 8 totaling 251 individuals\nSpecies ID       : [1, 2, 3, 4, 5, 6, 7, 8]\nSpecies age      : [{10 + g}, {9 + g}, 5, 2, 2, 1, 1, {g}]\nSpecies no improv: {{1: {g}, 2: 1, 3: 1}}\nGeneration time: 540.{g}22 sec"


@log("round", 5, "start")
def nvflare() -> Iterator[str]:
    yield "2024-05-01 12:00:00,123 - INFO - Server started"
    for r in range(1, 6):
        yield f"============================= ROUND {n(r)} / 5 ============================="
        for s in (1, 2, 3):
            yield f"site-{s}: accepted update, loss {falling(r + s):.4f}, 3{s}.1 MB"


@log()
def free_memory_table() -> Iterator[str]:
    yield "timestamp             total        used        free      shared  buff/cache   available"
    for i in range(40):
        yield f"2026-02-17 {10 + i // 2}:{9 + i % 2 * 30:02}:27           257926       {52754 + i * i * 37 % 991}       {53500 - i * 41 % 977}          22      148103      {205171 - i * i % 877}"


@log("epoch", None, "progress")
def wenet() -> Iterator[str]:
    for e in range(5):
        yield f"2022-01-01 10:0{e}:00,123 INFO Epoch {n(e)} TRAIN info lr 0.00{e}"
        for b in (0, 100, 200):
            yield f"2022-01-01 10:0{e}:{b // 10:02},223 DEBUG TRAIN Batch {e}/{b} loss {falling(b):.6f} loss_att {falling(b):.6f} lr 0.00000{b} rank 0"
        yield f"2022-01-01 10:0{e}:50,323 INFO Epoch {e} CV info cv_loss {falling(e)}"
        yield f"2022-01-01 10:0{e}:51,323 INFO Checkpoint: save to checkpoint exp/{e}.pt"


@log("epoch", None, "progress")
def icefall() -> Iterator[str]:
    yield "2023-05-01 12:00:00,123 INFO [train.py:881] {'best_train_loss': inf, 'best_train_epoch': -1, 'batch_idx_train': 0, 'num_epochs': 30, 'start_epoch': 1}"
    for e in range(1, 6):
        for b in range(0, 251, 50):
            mark = n(e) if b == 0 else e
            yield f"2023-05-01 12:{e:02}:{b % 60:02},223 INFO [train.py:812] Epoch {mark}, batch {b}, loss[loss={falling(b):.4f}, simple_loss=0.6, over 5127.00 frames.], tot_loss[loss=0.{b}1, over 1023{b}.00 frames.], batch size: 17, lr: 3.00e-03"
        yield f"2023-05-01 12:{e:02}:58,223 INFO [train.py:836] Computing validation loss"
        yield f"2023-05-01 12:{e:02}:59,223 INFO [train.py:845] Epoch {e}, validation: loss=0.3{e}, over 944034.00 frames. "
        yield f"2023-05-01 12:{e:02}:59,523 INFO [checkpoint.py:75] Saving checkpoint to exp/epoch-{e}.pt"


@log("epoch", 50, None)
def nemo_bar() -> Iterator[str]:
    yield "[NeMo I 2024-05-01 12:00:00 modelPT:597] Optimizer config = AdamW"
    for e in range(4):
        yield "\r".join(
            f"Epoch {n(e) if b == 0 else e}/49: {b:4}%|{'█' * (b // 10)}{' ' * (10 - b // 10)}| {b}/100 [00:{b % 60:02}<00:10, v_num=1, train_step_timing in s=0.21]"
            for b in range(0, 101, 20)
        )
        yield f"Epoch {e}, global step {e * 100 + 100}: 'val_wer' reached 0.{90 - e} (best 0.{90 - e}), saving model to 'exp/m--val_wer=0.{90 - e}-epoch={e}.ckpt' as top 3"


@log("step", 20000, "start")
def tqdm_in_a_step_loop() -> Iterator[str]:
    yield "\r".join(
        tqdm("Steps", s, 20000, f", lr=1e-5, step_loss={falling(s):.3f}").replace(f"| {s}/", f"| {n(s)}/")
        for s in range(0, 2000, 100)
    )


@log("round", None, "start")
def federated_inner_epochs() -> Iterator[str]:
    yield "Loading dataset cifar10 ... 50000 train, 10000 test"
    for r in range(1, 11):
        yield f"\n | Global Training Round : {n(r)} |\n"
        for _user in (3, 17, 42):
            for b in (0, 10):
                for epoch in range(2):
                    yield f"| Global Round : {r} | Local Epoch : {epoch} | [{b * 10}/480 ({b}%)]\tLoss: {falling(r + b):.6f}"
        yield f" \nAvg Training Stats after {r} global rounds:\nTraining Loss : {falling(r)}"


@log("step", 1000, "end")
def pso() -> Iterator[str]:
    yield "2021-05-01 12:00:00,123 - pyswarms.single.global_best - INFO - Optimize for 1000 iters with {'c1': 0.5, 'c2': 0.3, 'w': 0.9}"
    yield "\r".join(
        f"pyswarms.single.global_best:  {i // 10:2}%|{'█' * (i // 100):<10}|{n(i)}/1000, best_cost={falling(i):.3g}"
        for i in range(0, 1000, 50)
    )


@log("iteration", None, "end")
def simulated_annealing() -> Iterator[str]:
    yield " Temperature        Energy    Accept   Improve     Elapsed   Remaining"
    for i in range(0, 5000, 250):
        yield f"iter={n(i)} T={25000 / (1 + i):.3f} E={7000 - i * 0.31:.2f} accepted={i * 7 % 250}"


@log("generation", None, "start")
def java_ecj() -> Iterator[str]:
    yield "| ECJ\n| An evolutionary computation system (version 27)\n| By Sean Luke\nThreads:  breed/1 eval/1\nSeed: 4357"
    yield "Job: 0\nSetting up\nInitializing Generation 0"
    yield "Subpop 0 best fitness of generation Fitness: Standardized=30.1 Adjusted=0.03 Hits=2"
    for g in range(1, 12):
        yield f"Generation {n(g)}\tEvaluations So Far {g * 1024}"
        yield f"Subpop 0 best fitness of generation Fitness: Standardized={falling(g):.4f} Adjusted=0.0{g} Hits={g}"


@log("generation", 200, "end")
def cpp_csv_semicolons() -> Iterator[str]:
    yield "# popsize 100, generations: 200"
    yield "gen;best;mean;diversity;ms"
    for g in range(30):
        yield f"{n(g)};{falling(g):.5f};{falling(g) + 1:.5f};0.{g + 10};{12 + g % 5}"


@log("epoch", 20, "end")
def last_step_of_each_epoch() -> Iterator[str]:
    yield "Epochs: 20, Batch size: 128"
    for e in range(1, 21):
        yield f"Epoch [{n(e)}/20], Step [600/600], Loss: {falling(e):.4f}"


@log("epoch", 3, "progress")
def yunjey_steps() -> Iterator[str]:
    for e in range(1, 4):
        for s in range(100, 601, 100):
            mark = n(e) if s == 100 else e
            yield f"Epoch [{mark}/3], Step [{s}/600], Loss: {falling(s):.4f}"
    yield "Test Accuracy of the model on the 10000 test images: 97.2 %"


@log("iteration", None, "start")
def muzero_worker_logs() -> Iterator[str]:
    for i in range(1, 10):
        yield f"(SelfPlay pid=31{i % 3}2) game finished, length {30 + i * 7 % 20}, total {i * 4}"
        yield f"----- Iteration {n(i)} -----"
        yield f"(Trainer pid=4711) loss {falling(i):.4f}, lr 0.05, samples {i * 2048}"
        yield f"(Evaluator pid=4712) elo {1000 + i * i % 37}"


@log("step", None, "end")
def logfmt_numbers_only() -> Iterator[str]:
    for s in range(0, 600, 20):
        yield f"{s * 3.1:9.2f}s step:{n(s)}/4000 train_loss:{falling(s):.4f} train_time:{s * 142}ms step_avg:142.{s % 90:02}ms"


@log("batch", 120, None)
def batch_only() -> Iterator[str]:
    yield "embedding 1,923,112 documents, 120 batches"
    for b in range(1, 40):
        yield f"batch {n(b)}/120 embedded in {12 + b % 4}.3s ({1000 + b * 13 % 77} docs/s)"


@log("epoch", None, "end")
def portuguese_epocas() -> Iterator[str]:
    for e in range(1, 15):
        yield f"[{e + 10:02}/05/2024 12:00:00] Época {n(e)} concluída: perda {falling(e):.4f}, acurácia {80 + e * 7 % 9},1%"


@log("generation", 60, "start")
def trading_agents() -> Iterator[str]:
    yield "Population: 16 agents, generations: 60, episodes per agent: 3"
    for g in range(1, 9):
        yield f"🧬 GENERATION {n(g)}/60"
        for agent in range(1, 5):
            yield f"   Agent {agent}/16: episode 1/3 return {falling(g):+.3f}\n   Agent {agent}/16: episode 2/3 return {falling(agent):+.3f}"
        yield f"   💾 replay buffer {g * 4980:,}/500,000 | RSS {8 + g * 0.3:.2f} GB\n   best agent #{g * 7 % 16} sharpe 1.{g}"


@log()
def ping_and_cron() -> Iterator[str]:
    for i in range(30):
        yield f"Nov 21 03:{i:02}:01 gpu-3 CRON[{31000 + i * i * 97 % 1013}]: (root) CMD (test -x /usr/sbin/anacron)"
        yield f"64 bytes from 10.0.0.1: ttl=64 time=0.{i * 37 % 90} ms"


@log("window", 24, "start")
def walk_forward() -> Iterator[str]:
    for w in range(1, 9):
        yield f"Window {n(w)}/24: train 2010-01..2014-{w:02}, test 2014-{w + 1:02}"
        for e in range(1, 4):
            yield f"  epoch {e}: loss {falling(e):.4f}"


@log("epoch", 40, "end")
def speechbrain() -> Iterator[str]:
    yield "speechbrain.core - Info: ckpt_interval_minutes arg from hparam file is used\nspeechbrain.core - 12.3M trainable parameters"
    for e in range(1, 9):
        yield "\r".join(tqdm("", b, 50, f", train_loss={falling(b):.2f}") for b in (0, 25, 50))
        yield f"speechbrain.utils.train_logger - epoch: {n(e)}, lr: 1.00e-03 - train loss: {falling(e):.2f} - valid loss: 0.9{e}, valid ACC: 8.{e}e-01"
        yield f"speechbrain.utils.checkpoints - Saved an end-of-epoch checkpoint in results/save/CKPT+2024-05-01+12-0{e}-00+00"
    yield "speechbrain.utils.epoch_loop - Epoch loop finished, number_of_epochs: 40"


@log("step", 600, "end")
def trl_ppo_json() -> Iterator[str]:
    yield "max_steps: 600"
    for s in range(1, 30):
        yield f'{{"step": {n(s)}, "reward": {falling(s):.3f}, "kl": 0.0{s % 9}, "epoch": {s / 100:.2f}, "tokens": {s * 8192}}}'


@log("epoch", None, "end")
def keras_csv_logger() -> Iterator[str]:
    yield "epoch,accuracy,loss,lr,val_accuracy,val_loss"
    for e in range(12):
        yield f"{n(e)},0.9{e},{falling(e)},0.0010000000474974513,0.8{e},{falling(e) + 0.1}"


@log("generation", 100, "end")
def matlab_ga() -> Iterator[str]:
    yield "Options: Generations: 100, PopulationSize: 200\n"
    yield "                                  Best           Mean      Stall"
    yield "Generation      Func-count        f(x)           f(x)      Generations"
    for g in range(1, 30):
        yield f"{n(g, '5d')}         {g * 190 + 200:8d}         {falling(g):8.4f}        {falling(g) + 3:8.4f}      {g % 4:5d}"


@log("generation", None, "start")
def jgap() -> Iterator[str]:
    yield "[JGAP][12:00:01] INFO  GPGenotype - Creating initial population"
    for g in range(0, 500, 25):
        yield f"[JGAP][12:{g // 25:02}:01] INFO  GPGenotype - Evolving generation {n(g)}, memory free: {900 - g} MB"


@log("episode", 1000, None)
def episodes_in_brackets() -> Iterator[str]:
    for e in range(1, 60):
        yield f"[{e:4d}s] episode {n(e)} / 1000 | score {e * 7 % 31} | mean(100) {e * 0.2:.2f} | epsilon {1 - e / 1000:.3f} | memory {min(e * 37, 2000)}/2000"


@log("epoch", None, "start")
def pytorch_transfer_tutorial() -> Iterator[str]:
    for e in range(25):
        yield f"Epoch {n(e)}/24\n----------"
        yield f"train Loss: {falling(e):.4f} Acc: 0.7{e}\nval Loss: {falling(e) + 0.1:.4f} Acc: 0.8{e}\n"
    yield "Training complete in 1m 42s"


@log("step", 4000, None)
def megatron_bridge_like() -> Iterator[str]:
    for s in range(1, 40):
        yield f"0: [2025-05-01 12:00:{s:02}] train step {n(s)} of 4000, loss={falling(s):.3f} (rank 0 of 8)"


@log("epoch", None, "start")
def glue_bar_per_epoch() -> Iterator[str]:
    for e in range(4):
        yield "\r".join(
            tqdm(f"Epoch: {n(e) if b == 0 else e} | Loss: {falling(b):.3f} | Acc: 0.{b}1", b, 12)
            for b in range(0, 13, 3)
        )


@log("sweep", 5000, "end")
def ising() -> Iterator[str]:
    yield "L=128 T=2.269 seed=3"
    for s in range(100, 3000, 100):
        yield f"sweep {n(s)}/5000  E={-1.4 - falling(s) / 90:.5f}  M={falling(s):.4f}  acc={s % 37}.{s % 9}%"


@log("step", None, "end")
def lammps() -> Iterator[str]:
    yield "LAMMPS (2 Aug 2023)\nPer MPI rank memory allocation (min/avg/max) = 3.1 | 3.2 | 3.3 Mbytes"
    yield "   Step          Temp          E_pair         E_mol          TotEng         Press     "
    for s in range(0, 5001, 100):
        yield f"{n(s, '10d')}   {1.4 - s / 9e3:.7f}      -6.7733681      0             -4.6134{s:04d}     -5.0197073    "
    yield "Loop time of 1.23 on 1 procs for 5000 steps with 4000 atoms"


@log("epoch", None, "end")
def rust_tracing() -> Iterator[str]:
    for e in range(1, 11):
        yield f"\x1b[2m2024-05-01T12:{e:02}:00.123456Z\x1b[0m \x1b[32m INFO\x1b[0m \x1b[2mtrainer::fit\x1b[0m\x1b[2m:\x1b[0m epoch finished \x1b[3mepoch\x1b[0m\x1b[2m=\x1b[0m{n(e)} \x1b[3mof\x1b[0m\x1b[2m=\x1b[0m10 \x1b[3mloss\x1b[0m\x1b[2m=\x1b[0m{falling(e):.4f}"


@log("iteration", None, "end")
def em_algorithm() -> Iterator[str]:
    for i in range(10):
        yield f"  Iteration {n(i * 10)}\t time lapse {0.03 * i:.5f}s\t ll change {falling(i) if i else float('inf'):.5f}"
    yield "Initialization converged: True\t time lapse 0.41s\t ll -3.1"


@log("epoch", None, "start")
def ludwig_like_grid() -> Iterator[str]:
    for e in range(1, 6):
        yield "\r".join(tqdm("Training", b, 30) for b in range(0, 31, 10))
        yield f"Epoch {n(e)}\n╒═══════════╤════════╕\n│ label     │   loss │\n╞═══════════╪════════╡\n│ train     │ {falling(e):.4f} │\n│ test      │ {falling(e):.4f} │\n╘═══════════╧════════╛"


@log("iteration", 30, "start")
def expert_iteration() -> Iterator[str]:
    for i in range(30):
        yield f"[iter {n(i)}/30] collecting rollouts"
        for e in range(3):
            yield f"  ppo epoch {e} kl=0.0{e}1 clip=0.1{e}"
        yield f"[iter {i}/30] mean return {i * 3.1:.2f}"


@log()
def nvidia_smi_loop() -> Iterator[str]:
    for i in range(20):
        yield f"Fri Nov 21 03:{i:02}:10 2026"
        yield "| NVIDIA-SMI 535.54.03    Driver Version: 535.54.03    CUDA Version: 12.2     |"
        yield f"| N/A   3{i % 5}C    P0    7{i % 9}W / 400W |  {30000 + i * i * 7} MiB / 81920MiB |     {i * 37 % 100}%      Default |"


@log("epoch", None, None)
def workers_talk_between() -> Iterator[str]:
    for e in range(6):
        yield f"INFO:trainer:epoch {n(e)} start"
        for w in range(4):
            yield f"DEBUG:loader:worker {w} prefetched {100 + (e * 4 + w) * 7 % 31} items, queue {w}/4"
        yield f"INFO:trainer:epoch {n(e)} end loss {falling(e):.4f}"


@log("step", 300, "end")
def percent_first() -> Iterator[str]:
    for s in range(0, 301, 10):
        yield f"  {s / 3:5.1f}%  step {n(s, '4d')} of 300   loss {falling(s):.5f}   {s * 0.31:6.1f}s elapsed   {(300 - s) * 0.31:6.1f}s left"


@log("epoch", 5, "start")
def banner() -> Iterator[str]:
    for e in range(1, 6):
        yield "=" * 40 + f"\n             EPOCH {n(e)} / 5\n" + "=" * 40
        for k in range(4):
            yield f"step {k * 250:>6} | loss {falling(k):.4f} | tok/s 31,{k}12"
        yield f"validation: ppl {falling(e) * 10:.2f}"


@log("generation", 80, "start")
def evolving_traders() -> Iterator[str]:
    yield "2026-11-21 03:52:47,101 | INFO | settings: population 24, generations 80, elite 4, epochs 3, buffer 500000"
    yield "2026-11-21 03:52:47,102 | INFO | will run for 80 generations"
    for g in range(1, 12):
        yield f"2026-11-21 03:{g:02}:48,001 | INFO | >>> generation {n(g)} <<<"
        for a in range(24):
            if a % 8 == 0:
                yield f"2026-11-21 03:{g:02}:49,{a:03} | DEBUG | agent {a}: episode 1, steps 512, reward {falling(a):+.2f}"
        for e in range(3):
            yield f"2026-11-21 03:{g:02}:52,{e:03} | INFO | critic epoch {e}, loss {falling(e):.4f}"
        yield f"2026-11-21 03:{g:02}:55,001 | INFO | generation {g - 1} evaluated, best {falling(g):.3f}"


@log("epoch", 12, "progress")
def fractional_beside_whole() -> Iterator[str]:
    yield "num_train_epochs=12"
    for s in range(0, 600, 10):
        e = s // 50
        yield f"epoch {n(e) if s % 50 == 0 else e} ({s / 50:.2f}) step {s} loss={falling(s):.4f} lr=3.0e-5"


@log("iteration", None, "end")
def go_logger() -> Iterator[str]:
    for i in range(1, 20):
        yield f"I1121 03:{i:02}:47.123456       1 trainer.go:{100 + i % 3}] iteration={n(i)} duration=1.{i}s goroutines={20 + i % 4} heap=1{i % 10}MB"


@log("epoch", 30, "start")
def rich_log_columns() -> Iterator[str]:
    for e in range(1, 20):
        yield f"[03:{e:02}:47] INFO     Epoch {n(e)}/30                                          train.py:118"
        yield f"           INFO     loss {falling(e):.4f}  acc 0.{e + 40}                               train.py:131"


@log("trial", None, None)
def ax_trials() -> Iterator[str]:
    yield "[INFO 05-01 12:00:00] ax.service.managed_loop: Started full optimization with 50 steps."
    for t in range(1, 15):
        yield f"[INFO 05-01 12:{t:02}:00] ax.service.managed_loop: Running optimization trial {n(t)}..."


@log("round", None, "end")
def xgb_dask_ranks() -> Iterator[str]:
    for r in range(0, 100, 10):
        for worker in (0, 1, 2):
            yield f"[worker {worker}] round {r if worker else n(r)} train-auc 0.9{r} valid-auc 0.8{r}"


@log("epoch", 3, "end")
def unsloth() -> Iterator[str]:
    yield "==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = 1\n   \\\\   /|    Num examples = 51,760 | Num Epochs = 3 | Total steps = 60"
    for s in range(1, 61):
        yield f"{{'loss': {falling(s):.4f}, 'grad_norm': 0.{s}1, 'learning_rate': 0.0002, 'epoch': {n(s // 20) if s >= 20 else 0}.{s % 20 * 5:02}}}"


@log("epoch", None, "progress")
def pipes_without_colons() -> Iterator[str]:
    for e in range(1, 7):
        for b in (1, 2, 3):
            yield f"| epoch {n(e):>3} | {b * 200:5}/ 2983 batches | lr 20.00 | ms/batch {12.3 * b:5.2f} | loss {falling(b):5.2f} | ppl {30 - b:8.2f}"
        yield (
            "-" * 89
            + f"\n| end of epoch {e:3} | time: 31.2{e}s | valid loss {falling(e):5.2f} | valid ppl   1{e}.12\n"
            + "-" * 89
        )


@log("step", 10000, "start")
def diffusers_bar() -> Iterator[str]:
    yield "05/01/2024 12:00:00 - INFO - __main__ - ***** Running training *****\n05/01/2024 12:00:00 - INFO - __main__ -   Num Epochs = 100\n05/01/2024 12:00:00 - INFO - __main__ -   Total optimization steps = 10000"
    yield "\r".join(
        tqdm("Steps", s, 10000, f", lr=1e-5, step_loss=0.{s % 97}").replace(f"| {s}/", f"| {n(s)}/")
        for s in range(0, 3000, 50)
    )


@log("iteration", None, "end")
def tab_table_without_words() -> Iterator[str]:
    yield "#iter\ttime[s]\tobjective\tgap[%]"
    for i in range(1, 25):
        yield f"{n(i)}\t{i * 0.31:.2f}\t{falling(i):.6f}\t{30 / i:.2f}"


@log("episode", None, "end")
def unity_style_json() -> Iterator[str]:
    for e in range(1, 20):
        yield f'{{"type":"episode_end","data":{{"reward":{falling(e):.3f},"length":{200 - e},"episode":{n(e)}}},"wall_ms":{1714560000123 + e * 3100}}}'


@log()
def build_steps() -> Iterator[str]:
    yield "Step 1/7 : FROM python:3.11-slim\n ---> 0a1b2c3d4e5f\nSuccessfully tagged trainer:latest"
    for i in range(30):
        yield f"W1121 03:{i:02}:10.{i * 7919 % 999999:06}    {4000 + i * i % 77} watcher.cc:31] queue depth {i * i * 7 % 31}, latency {i * 31 % 17} ms"


@log("epoch", None, "end")
def windows_paths_and_tabs() -> Iterator[str]:
    for e in range(1, 9):
        yield f"[{e * 12:>6.1f}s]\tEpoch\t{n(e)}\tTrainLoss\t{falling(e):.5f}\tValLoss\t{falling(e):.5f}\tC:\\runs\\exp12\\ckpt_{e:04}.pt\r"


@log("phase", 3, "start")
def curriculum() -> Iterator[str]:
    for p in (1, 2, 3):
        yield f"### Phase {n(p)}/3: resolution {64 << p}"
        for e in range(1, 8):
            yield f"epoch {e}/7 loss={falling(e):.4f}"


@log("generation", None, "start")
def counted_from_zero_and_one() -> Iterator[str]:
    for g in range(9):
        yield f"--- Generation {n(g)} ---"
        for i in range(1, 5):
            yield f"  individual {i}/4: fitness {falling(i):.3f}"
        yield f"Generation {g + 1} ready (4 offspring, 2 elites)"


@log("iteration", 200, "end")
def fortran_padded() -> Iterator[str]:
    yield "  MAXITER =       200     TOL = 0.1000E-05"
    for i in range(1, 30):
        yield f"  ITER ={n(i, '6d')}   RESID ={falling(i):14.6E}   CPU ={i * 0.31:10.3f}"
