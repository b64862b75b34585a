"""Supervised and generative training: frameworks, libraries and the reference scripts that many copy."""

# ruff: noqa: E501 - lines as long as the programs print them
from __future__ import annotations

from collections.abc import Iterator

from support.logs import bar, falling, log, n, tqdm


@log("epoch", 10, "start")
def keras_verbose_1() -> Iterator[str]:
    yield "2026-11-21 03:52:47.123456: I tensorflow/core/platform/cpu_feature_guard.cc:193] This binary is optimized"
    for e in range(1, 11):
        yield f"Epoch {n(e)}/10"
        yield "\r".join(
            f"{b:4}/25 [{'=' * b}>{'.' * (25 - b)}] - ETA: {25 - b}s - loss: {falling(e):.4f} - accuracy: 0.8{e}"
            for b in range(1, 26, 6)
        )


@log("epoch", 8, "start")
def keras_verbose_2() -> Iterator[str]:
    for e in range(1, 9):
        yield f"Epoch {n(e)}/8"
        yield f"1875/1875 - 3s - loss: {falling(e):.4f} - accuracy: 0.91 - val_loss: 0.3112 - 3s/epoch - 2ms/step"


@log("epoch", 5, "start")
def keras_backspaces() -> Iterator[str]:
    yield "Train on 60000 samples, validate on 10000 samples"
    for e in range(1, 6):
        yield f"Epoch {n(e)}/5"
        yield "".join(
            f"{b:5}/60000 [>{'.' * 20}] - ETA: 1:{b % 60:02} - loss: 0.3" + "\b" * 60 for b in (32, 640, 9984)
        )
        yield f"Epoch {e:05}: val_loss improved from 0.31 to 0.30, saving model to weights.{e:02}-0.30.hdf5"


@log("epoch", 6, "start")
def lightning_1_x() -> Iterator[str]:
    yield "  | Name  | Type       | Params"
    yield "-------------------------------------"
    yield "0 | model | Sequential | 50.3 K"
    yield "-------------------------------------"
    yield "\r".join(tqdm("Validation sanity check", b, 2) for b in range(3))
    for e in range(6):
        first = tqdm(f"Epoch {n(e)}", 0, 40, ", loss=0.71, v_num=0")
        yield "\r".join([first, *(tqdm(f"Epoch {e}", b, 40, ", loss=0.71, v_num=0") for b in range(5, 41, 5))])
    yield "`Trainer.fit` stopped: `max_epochs=6` reached."


@log("step", 1377, "start")
def hf_trainer() -> Iterator[str]:
    yield "***** Running training *****"
    yield "  Num examples = 3,668"
    yield "  Num Epochs = 3"
    yield "  Instantaneous batch size per device = 8"
    yield "  Total optimization steps = 1,377"
    for s in range(50, 1351, 50):
        yield bar("", s, 1377) + "\r" + bar("", s + 1, 1377)
        yield f"{{'loss': {falling(s):.4f}, 'learning_rate': {5e-05 * (1 - s / 1377)}, 'epoch': {round(s / 459, 2)}}}"


@log("step", 90, "start")
def hf_trainer_4_57() -> Iterator[str]:
    yield "\r".join(tqdm("Loading weights", b, 96) for b in range(0, 97, 3))
    for s in range(0, 91, 10):
        yield "\r" + (bar if s < 90 else tqdm)("", s, 90) + "                                  "
        yield f"\r{{'loss': '1.2{s}', 'grad_norm': '3.1', 'learning_rate': '4.5e-05', 'epoch': '{round(s / 30, 4)}'}}"
        if s % 30 == 0:
            yield "\r".join(tqdm("", b, 12) for b in (0, 5, 9, 12))
            yield f"{{'eval_loss': '0.9', 'eval_runtime': '2.1', 'eval_steps_per_second': '12.1', 'epoch': '{s // 30}'}}"
    yield f"{{'train_runtime': '93.1', 'train_samples_per_second': '31', 'train_loss': '1.1', 'epoch': '{3}'}}"


@log("epoch", 3, "end")
def hf_trainer_without_bars() -> Iterator[str]:
    yield "  Num Epochs = 3\n  Total optimization steps = 90"
    for s in range(3, 91, 3):
        done = f"{s // 30}.{s % 30 // 3}"
        epoch = n(s // 30) + "." + str(s % 30 // 3) if s >= 30 else done
        yield f"{{'loss': 1.2{s}, 'grad_norm': 3.1, 'learning_rate': 4.5e-05, 'epoch': {epoch}}}"
    yield "{'train_runtime': 93.1, 'train_samples_per_second': 31, 'train_loss': 1.1, 'epoch': 3.0}"


@log("epoch", None, "end")
def accelerate_nlp_example() -> Iterator[str]:
    yield "Downloading data: 100%|██████████| 1.47M/1.47M [00:00<00:00, 25.1MB/s]"
    yield "\r".join(tqdm("Map", k, 3668).replace("it/s", " examples/s") for k in (0, 1000, 2000, 3668))
    for e in range(5):
        yield f"epoch {n(e)}: {{'accuracy': 0.8{e}21, 'f1': 0.8{e}7}}"


@log("iteration", None, "end")
def nanogpt() -> Iterator[str]:
    yield "tokens per iteration will be: 16,384"
    yield "number of parameters: 10.65M"
    yield "num decayed parameter tensors: 26, with 10,740,096 parameters"
    for i in range(0, 400, 10):
        if i % 100 == 0:
            yield f"step {i}: train loss {falling(i):.4f}, val loss {falling(i) + 0.1:.4f}"
            yield "saving checkpoint to out-shakespeare-char"
        yield f"iter {n(i)}: loss {falling(i):.4f}, time {15 + i % 7}.{i % 10}1ms, mfu {i % 30}.10%"


@log("epoch", None, None)
def fairseq() -> Iterator[str]:
    date = "2021-03-04 10:{:02}:00 | INFO | "
    yield date.format(0) + "fairseq_cli.train | Namespace(arch='transformer', max_epoch=6, max_update=0, seed=1)"
    yield date.format(1) + "fairseq.trainer | loaded checkpoint (epoch 0 @ 0 updates)"
    for e in range(1, 7):
        yield date.format(e) + f"fairseq.trainer | begin training epoch {n(e)}"
        for u in range(100, 400, 100):
            yield date.format(e) + (
                f"train_inner | epoch {n(e, '03d')}: {u:6} / 353 loss={falling(e):.3f}, wps=3500, "
                f"num_updates={353 * (e - 1) + u}, lr=0.0005, wall={e * 93 + u}"
            )
        yield (
            date.format(e) + f"valid | epoch {n(e, '03d')} | valid on 'valid' subset | loss 5.1 | num_updates {353 * e}"
        )
        yield date.format(e) + f"train | epoch {n(e, '03d')} | loss 5.6 | nll_loss 4.1 | num_updates {353 * e}"


@log("epoch", None, None)
def fairseq_json() -> Iterator[str]:
    yield "2022-05-01 10:00:00 | INFO | fairseq.tasks.text_to_speech | [en] dictionary: 40 types"
    for e in range(1, 6):
        yield f"2022-05-01 10:0{e}:00 | INFO | fairseq_cli.train | begin training epoch {n(e)}"
        for u in (1, 2, 3):
            yield (
                f"2022-05-01 10:0{e}:{u}0 | INFO | train_inner | "
                f'{{"epoch": {n(e)}, "update": {e - 1 + u / 4:.3f}, "loss": "9.{u}", "num_updates": "{100 * u + 400 * e}"}}'
            )


@log("iteration", 500, "end")
def megatron() -> Iterator[str]:
    yield "using world size: 8, data-parallel size: 2, tensor-model-parallel size: 4, pipeline-model-parallel size: 1"
    yield "  train_iters ..................................... 500"
    yield "  num_layers ...................................... 24"
    yield "[before the start of training step] datetime: 2023-05-01 12:00:00 "
    for i in range(10, 501, 10):
        yield (
            f" [2023-05-01 12:{i % 60:02}:00] iteration {n(i, '8d')}/     500 | consumed samples: {i * 8:12} | "
            f"elapsed time per iteration (ms): 812.3 | learning rate: 1.5E-04 | global batch size:     8 | "
            f"lm loss: {falling(i):.6E} | number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
        if i % 100 == 0:
            yield f"saving checkpoint at iteration {i:7} to checkpoints/gpt"
            yield f" validation loss at iteration {i} | lm loss value: 1.03E+01 | lm loss PPL: 2.9E+04 |"


@log("step", None, "end")
def deepspeed() -> Iterator[str]:
    yield "[2023-05-01 12:00:00,123] [INFO] [runner.py:550:main] cmd = /usr/bin/python3 -u -m deepspeed.launcher.launch"
    yield "[2023-05-01 12:00:03,456] [INFO] [config.py:956:print]   train_batch_size ............. 32"
    for s in range(10, 161, 10):
        yield (
            f"[2023-05-01 12:{s % 60:02}:10,900] [INFO] [logging.py:68:log_dist] [Rank 0] step={n(s)}, skipped=0, "
            f"lr=[9.6e-06, 9.6e-06], mom=[(0.9, 0.95), (0.9, 0.95)]"
        )
        yield (
            f"[2023-05-01 12:{s % 60:02}:10,910] [INFO] [timer.py:198:stop] epoch=0/micro_step={s}/global_step={s}, "
            f"RunningAvgSamplesPerSec=45.12, CurrSamplesPerSec=46.3, MemAllocated=4.34GB, MaxMemAllocated=12.1GB"
        )


@log("epoch", 12, "progress")
def mmengine() -> Iterator[str]:
    yield "2023/05/01 11:59:00 - mmengine - INFO - "
    yield "System environment:"
    yield "    sys.platform: linux"
    yield "train_cfg = dict(max_epochs=12, type='EpochBasedTrainLoop', val_interval=1)"
    for e in range(1, 13):
        for b in range(50, 201, 50):
            mark = n(e) if b == 50 else e
            yield (
                f"2023/05/01 12:{e:02}:{b % 60:02} - mmengine - INFO - Epoch(train)  [{mark}][{b:3}/200]  lr: 2.0e-02  "
                f"eta: 1:0{e % 10}:{b % 60:02}  time: 0.21  data_time: 0.01  memory: 3456  loss: {falling(e):.4f}"
            )
        yield f"2023/05/01 12:{e:02}:59 - mmengine - INFO - Saving checkpoint at {e} epochs"
        yield f"2023/05/01 12:{e:02}:59 - mmengine - INFO - Epoch(val)  [{e}][ 50/100]    eta: 0:00:02  time: 0.05"
        yield f"2023/05/01 12:{e:02}:59 - mmengine - INFO - Epoch(val) [{e}][100/100]    coco/bbox_mAP: 0.3{e}"


@log("epoch", None, "progress")
def mmdet_2() -> Iterator[str]:
    for e in range(1, 7):
        for b in (50, 100, 150):
            mark = n(e) if b == 50 else e
            yield (
                f"2021-05-01 12:{e:02}:{b % 60:02},123 - mmdet - INFO - Epoch [{mark}][{b}/7330]\tlr: 1.978e-03, "
                f"eta: 12:01:1{e}, time: 0.5, memory: 3800, loss: {falling(e):.4f}"
            )
        yield f"2021-05-01 13:{e:02}:00,456 - mmdet - INFO - Saving checkpoint at {e} epochs"


@log("iteration", 900, "end")
def detectron2() -> Iterator[str]:
    yield "[05/01 11:59:00 detectron2]: Running with full config:"
    yield "SOLVER:"
    yield "  IMS_PER_BATCH: 2"
    yield "  MAX_ITER: 900"
    yield "[05/01 12:00:00 d2.engine.train_loop]: Starting training from iteration 0"
    for i in range(19, 900, 20):
        yield (
            f"[05/01 12:{i % 60:02}:10 d2.utils.events]:  eta: 0:1{i % 10}:12  iter: {n(i)}  total_loss: {falling(i):.3f}  "
            f"loss_cls: 0.61  time: 0.4512  data_time: 0.0123  lr: 0.00025  max_mem: 2713M"
        )


@log("epoch", 20, None)
def ultralytics() -> Iterator[str]:
    yield "Ultralytics YOLOv8.0.196 Python-3.10.12 torch-2.0.1 CUDA:0 (Tesla T4, 15102MiB)"
    yield "engine/trainer: task=detect, mode=train, model=yolov8n.pt, epochs=20, patience=50, batch=16, imgsz=640"
    yield "Starting training for 20 epochs..."
    for e in range(1, 21):
        yield ""
        yield "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size"
        drawn = [
            f"{n(e) if b == 0 else e:>10}/20      2.3G      1.1{b}      2.5      1.2        {b + 30}        640: "
            + tqdm("", b, 16)
            for b in (0, 8, 16)
        ]
        yield "\r".join(drawn)
        yield "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): " + tqdm(
            "", 4, 4
        )
        yield "                   all        128        929      0.643      0.542      0.608      0.45"
    yield "20 epochs completed in 0.012 hours."


@log("epoch", 30, None)
def yolov5() -> Iterator[str]:
    yield "hyperparameters: lr0=0.01, lrf=0.01, momentum=0.937, warmup_epochs=3.0, warmup_momentum=0.8"
    yield "Starting training for 30 epochs..."
    for e in range(30):
        yield ""
        yield "     Epoch   gpu_mem       box       obj       cls    labels  img_size"
        yield "\r".join(
            f"{n(e) if b == 0 else e:>10}/29     3.62G   0.0454   0.0678   0.0179       {b + 9}       640: {tqdm('', b, 8)}"
            for b in (0, 4, 8)
        )
        yield "               Class     Images     Labels          P          R     mAP@.5 mAP@.5:.95: " + tqdm(
            "", 4, 4
        )


@log("epoch", None, "end")
def fastai() -> Iterator[str]:
    yield "epoch     train_loss  valid_loss  accuracy  time    "
    for e in range(8):
        if e == 0:
            yield "Epoch 1/8 : |----------------------------------------| 0.00% [0/58 00:00<?]"
        yield f"{n(e, '<10')}{falling(e):.6f}    0.2{e}1234    0.91{e}     00:1{e}     "


@log("epoch", None, "progress")
def imagenet_example() -> Iterator[str]:
    yield "=> creating model 'resnet18'"
    for e in range(6):
        for b in range(0, 5005, 1000):
            mark = n(e) if b == 0 else e
            yield (
                f"Epoch: [{mark}][{b:4}/5005]\tTime  0.{b % 9}31 ( 0.412)\tData  0.011 ( 0.020)\tLoss {falling(e):.4e} "
                f"(6.9e+00)\tAcc@1   0.39 (  0.21)\tAcc@5   1.17 (  0.98)"
            )
        yield "Test: [  0/196]\tTime  2.345 ( 2.345)\tLoss 6.1e+00 (6.1e+00)\tAcc@1   3.12 (  3.12)"
        yield f" *   Acc@1 {e}.123 Acc@5 1{e}.456"


@log("epoch", None, "progress")
def torchvision_reference() -> Iterator[str]:
    yield "| distributed init (rank 0): env://"
    yield "Start training"
    for e in range(5):
        for b in (0, 10, 20, 30):
            mark = n(e) if b == 0 else e
            yield (
                f"Epoch: [{mark}]  [{b:4}/1875]  eta: 0:1{e}:0{b // 10}  lr: 0.1  img/s: 210.3  loss: {falling(e):.4f} "
                f"(6.98)  acc1: 0.0000 (0.01)  time: 0.31  data: 0.01  max mem: 7412"
            )
        yield f"Epoch: [{e}] Total time: 0:12:0{e}"
        yield "Test:   [  0/196]  eta: 0:01:12  loss: 5.9 (5.9)  acc1: 3.1 (3.1)  time: 0.36  max mem: 7412"
        yield f"Test:  Acc@1 1{e}.020 Acc@5 31.120"


@log("epoch", None, "progress")
def pytorch_mnist_example() -> Iterator[str]:
    for e in range(1, 8):
        for b in range(0, 60000, 12800):
            mark = n(e) if b == 0 else e
            yield f"Train Epoch: {mark} [{b}/60000 ({b // 600}%)]\tLoss: {falling(e + b / 6e4):.6f}"
        yield ""
        yield f"Test set: Average loss: 0.0{e}, Accuracy: 98{e}0/10000 (9{e}%)"
        yield ""


@log("epoch", None, "progress")
def timm() -> Iterator[str]:
    yield "Training with a single process on 1 device (cuda:0)."
    yield "Scheduled epochs: 300. LR stepped per epoch."
    for e in range(5):
        for b in (0, 50, 100):
            mark = n(e) if b == 0 else e
            yield (
                f"Train: {mark} [{b:4}/1251 ({b // 12:3}%)]  Loss: {falling(e):.3f} (6.94)  Time: 0.512s, 500.12/s  "
                f"(0.612s, 418.1/s)  LR: 1.000e-06  Data: 0.011 (0.101)"
            )
        yield "Test: [   0/48]  Time: 1.512 (1.512)  Loss:   6.912 ( 6.912)  Acc@1:   0.195 (  0.195)"
        yield f"Current checkpoints:\n ('./output/train/checkpoint-{e}.pth.tar', {e}.123)"


@log("epoch", 7, None)
def espnet() -> Iterator[str]:
    for e in range(1, 8):
        yield f"[gpu1] 2022-01-01 10:0{e}:00,123 (trainer:273) INFO: {n(e)}/7epoch started. Estimated time to finish: 3 hours"
        for b in (1, 101, 201):
            yield (
                f"[gpu1] 2022-01-01 10:0{e}:{b // 10:02},223 (trainer:732) INFO: {e}epoch:train:{b}-{b + 99}batch: "
                f"iter_time=1.2e-04, forward_time=0.1, loss_ctc=97.{e}, loss={falling(e):.3f}, train_time=0.812"
            )
        yield (
            f"[gpu1] 2022-01-01 10:0{e}:50,323 (trainer:338) INFO: {e}epoch results: [train] iter_time=1e-4, "
            f"loss=71.2, time=12 minutes and 3.1 seconds, total_count={300 * e}, gpu_max_cached_mem_GB=9.1"
        )


@log("step", 5000, "end")
def opennmt() -> Iterator[str]:
    yield "[2021-05-01 12:00:00,123 INFO] encoder: 4210688"
    yield "[2021-05-01 12:00:00,124 INFO] * number of parameters: 12345678"
    yield "[2021-05-01 12:00:01,124 INFO] Start training loop and validate every 10000 steps..."
    for s in range(50, 1500, 50):
        yield (
            f"[2021-05-01 12:{s % 60:02}:02,{s % 1000:03} INFO] Step {n(s)}/ 5000; acc:   {s % 90}.12; ppl: {900 - s / 9:.2f}; "
            f"xent: 5.55; lr: 0.00012; 5123/5511 tok/s;     {s // 4} sec;"
        )


@log("epoch", None, "progress")
def marian() -> Iterator[str]:
    yield "[2020-05-01 12:00:00] [config] after-epochs: 20"
    yield "[2020-05-01 12:00:00] [memory] Reserving 231 MB, device gpu0"
    yield "[2020-05-01 12:00:01] Training started"
    u = 0
    for e in range(1, 5):
        for k in range(7):
            u += 100
            mark = n(e) if k == 0 else e
            yield (
                f"[2020-05-01 12:{u // 100:02}:31] Ep. {mark} : Up. {u} : Sen. {u * 64:,} : Cost {falling(u):.8f} : "
                f"Time {90 + k}.31s : 5012.44 words/s : L.r. 3.0000e-04"
            )
        yield f"[2020-05-01 12:{u // 100:02}:40] Seen {u * 64} samples"
        yield f"[2020-05-01 12:{u // 100:02}:40] Starting data epoch {e + 1} in logical epoch {e + 1}"


@log("iteration", None, None)
def kaldi_chain() -> Iterator[str]:
    yield "2019-05-01 12:00:00,123 [steps/nnet3/chain/train.py:428 - train - INFO ] Copying the properties from exp/egs"
    for i in range(72):
        yield (
            f"2019-05-01 12:{i % 60:02}:10,223 [steps/nnet3/chain/train.py:529 - train - INFO ] Iter: {n(i)}/71   Jobs: {3 + i // 9}   "
            f"Epoch: {i / 18:.2f}/4.0 ({i / 0.72:.1f}% complete)   lr: 0.000{700 - i}   "
        )


@log("epoch", None, None)
def spacy() -> Iterator[str]:
    yield "ℹ Saving to output directory: output"
    yield "ℹ Initial learn rate: 0.001"
    yield "E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  ENTS_P  ENTS_R  SCORE "
    yield "---  ------  ------------  --------  ------  ------  ------  ------"
    last = -1
    for s in range(0, 4001, 200):
        e = s // 700
        mark = f"{'  ' if e < 10 else ' '}{n(e) if e != last else e}"
        last = e
        yield f"{mark}  {s:6}          {s / 7:6.2f}    {falling(s):6.2f}   {s % 90}.12   79.14   78.02    0.{s % 90:02}"
    yield "✔ Saved pipeline to output directory"


@log("percent", 100, "progress")
def fasttext() -> Iterator[str]:
    yield "Read 1M words"
    yield "Number of words:  41212"
    yield "Number of labels: 0"
    yield "\r".join(
        f"Progress: {n(p, '3')}.0% words/sec/thread:   {50000 + p * p * 31 % 977} lr:  0.0{50 - p // 2:02} avg.loss:  {falling(p):.6f} ETA:   0h{p % 9:2}m{p % 60:2}s"
        for p in range(0, 101, 5)
    )


@log("epoch", None, None)
def gensim() -> Iterator[str]:
    yield "2020-05-01 12:00:00,123 : INFO : collecting all words and their counts"
    yield "2020-05-01 12:00:00,133 : INFO : PROGRESS: at sentence #0, processed 0 words, keeping 0 word types"
    yield "2020-05-01 12:00:01,133 : INFO : PROGRESS: at sentence #10000, processed 103212 words, keeping 12312 word types"
    yield "2020-05-01 12:00:02,133 : INFO : training model with 3 workers on 15123 vocabulary and 100 features, window=5"
    for e in range(1, 6):
        for k in (1, 2):
            yield f"2020-05-01 12:00:1{e},{k}33 : INFO : EPOCH {n(e)} - PROGRESS: at {k * 41}.21% examples, 812345 words/s, in_qsize 5, out_qsize 0"
        for w in (2, 1, 0):
            yield f"2020-05-01 12:00:1{e},733 : INFO : worker thread finished; awaiting finish of {w} more threads"
        yield f"2020-05-01 12:00:1{e},753 : INFO : EPOCH - {e} : training on 812312 raw words (612312 effective words) took 0.8s, 712345 effective words/s"


@log("step", None, "end")
def tf1_estimator() -> Iterator[str]:
    yield "INFO:tensorflow:Using config: {'_model_dir': '/tmp/m', '_save_checkpoints_steps': 1000, '_log_step_count_steps': 100}"
    yield "INFO:tensorflow:Saving checkpoints for 0 into /tmp/m/model.ckpt."
    yield f"INFO:tensorflow:loss = 2.3, step = {n(1)}"
    for s in range(101, 2000, 100):
        yield f"INFO:tensorflow:global_step/sec: 1{s % 97}.{s % 10}"
        yield f"INFO:tensorflow:loss = {falling(s):.6f}, step = {n(s)} (0.{s % 9}31 sec)"


@log("step", None, "end")
def tf_object_detection() -> Iterator[str]:
    for s in range(100, 1600, 100):
        yield f"INFO:tensorflow:Step {n(s)} per-step time 0.{s % 90}2s"
        yield f"I0501 12:{s // 100:02}:13.123456 140123456789 model_lib_v2.py:705] {{'Loss/classification_loss': 0.31,"
        yield f" 'Loss/total_loss': {falling(s):.4f},"
        yield " 'learning_rate': 0.0266}"


@log("step", None, "end")
def jax_clu() -> Iterator[str]:
    yield "I0501 12:00:00.123456 140123456789 xla_bridge.py:353] Unable to initialize backend 'tpu_driver': NOT_FOUND"
    for s in range(100, 2001, 100):
        yield (
            f"I0501 12:{s // 100:02}:10.{s * 61 % 999999:06} 140123456789 logging_writer.py:48] [{n(s)}] "
            f"accuracy=0.{s % 97:02}, learning_rate=0.001, loss={falling(s):.5f}, steps_per_second=12.31"
        )


@log("epoch", 20, "start")
def coqui_tts() -> Iterator[str]:
    yield " > Using CUDA: True"
    for e in range(20):
        yield ""
        yield f"\x1b[4m\x1b[1m > EPOCH: {n(e)}/20\x1b[0m"
        yield " --> /data/run-May-01-2022"
        yield f"\x1b[1m > TRAINING (2022-05-01 12:{e:02}:31) \x1b[0m"
        for b in (0, 25):
            yield f"\x1b[1m   --> STEP: {b}/40 -- GLOBAL_STEP: {e * 40 + b}\x1b[0m"
            yield f"     | > loss: {falling(e):.5f}  (3.21)"
            yield f"     | > step_time: 0.{b}1  (0.61)"


@log("epoch", None, "start")
def allennlp() -> Iterator[str]:
    yield "2020-05-01 12:00:00,123 - INFO - allennlp.common.params - trainer.num_epochs = 8"
    for e in range(8):
        yield f"2020-05-01 12:0{e}:00,123 - INFO - allennlp.training.trainer - Epoch {n(e)}/7"
        yield f"2020-05-01 12:0{e}:00,133 - INFO - allennlp.training.trainer - Worker 0 memory usage MB: 2{e}12.3"
        yield f"2020-05-01 12:0{e}:00,143 - INFO - allennlp.training.trainer - Training"
        yield "\r".join(tqdm(f"accuracy: 0.{b}, loss: 0.6931 ||", b, 50) for b in (0, 25, 50))


@log("epoch", 10, None)
def flair() -> Iterator[str]:
    yield "2020-05-01 12:00:00,123 Parameters:"
    yield '2020-05-01 12:00:00,124  - learning_rate: "0.100000"'
    yield '2020-05-01 12:00:00,125  - max_epochs: "10"'
    for e in range(1, 11):
        for b in range(50, 251, 50):
            yield (
                f"2020-05-01 12:{e:02}:{b % 60:02},123 epoch {n(e)} - iter {b}/250 - loss {falling(e):.8f} - "
                f"time (sec): {b / 9:.2f} - samples/sec: 212.31 - lr: 0.100000"
            )
        yield "-" * 100
        yield f"2020-05-01 12:{e:02}:59,123 EPOCH {e} done: loss 0.2134 - lr: 0.1000000"
        yield f"2020-05-01 12:{e:02}:59,523 DEV : loss 0.1{e} - f1-score (micro avg)  0.8{e}"


@log("epoch", None, "progress")
def paddledetection() -> Iterator[str]:
    for e in range(5):
        for b in (0, 20, 40):
            mark = n(e) if b == 0 else e
            yield (
                f"[05/01 12:0{e}:{b:02}] ppdet.engine INFO: Epoch: [{mark}] [{b:2}/60] learning_rate: 0.000500 "
                f"loss_xywh: 0.7 loss: {falling(e):.6f} eta: 1:0{e}:{b:02} batch_cost: 0.8123 data_cost: 0.0003 ips: 9.8 images/s"
            )


@log("epoch", None, None)
def mxnet() -> Iterator[str]:
    yield "INFO:root:Start training with [gpu(0)]"
    for e in range(6):
        for b in (20, 40):
            yield f"INFO:root:Epoch[{n(e)}] Batch [{b - 20}-{b}]\tSpeed: 1012.31 samples/sec\taccuracy=0.{b}{e}"
        yield f"INFO:root:Epoch[{n(e)}] Train-accuracy=0.8{e}1"
        yield f"INFO:root:Epoch[{n(e)}] Time cost=12.{e}12"
        yield f'INFO:root:Saved checkpoint to "model-{e + 1:04}.params"'
        yield f"INFO:root:Epoch[{n(e)}] Validation-accuracy=0.7{e}"


@log("step", None, "end")
def darknet() -> Iterator[str]:
    yield "yolov3"
    yield "Learning Rate: 0.001, Momentum: 0.9, Decay: 0.0005"
    for i in range(1, 31):
        for region in (82, 94, 106):
            yield f"Region {region} Avg IOU: 0.{i + 200}, Class: 0.5{i}, Obj: 0.6, No Obj: 0.5, .5R: 0.0, .75R: 0.0,  count: {i % 4 + 1}"
        yield f"{n(i)}: {720 - i}.51, {720 - i}.1 avg, 0.000000 rate, {3 + i % 3}.21 seconds, {64 * i} images"


@log("iteration", 4500, None)
def caffe() -> Iterator[str]:
    yield "I0501 12:00:00.123456  1234 solver.cpp:44] Initializing solver from parameters: "
    yield "base_lr: 0.01\ndisplay: 100\nmax_iter: 4500\nmomentum: 0.9\nsnapshot: 1000"
    for i in range(0, 4500, 100):
        if i % 1000 == 0:
            yield f"I0501 12:{i // 100:02}:00.123456  1234 solver.cpp:337] Iteration {n(i)}, Testing net (#0)"
            yield f"I0501 12:{i // 100:02}:01.123456  1234 solver.cpp:404]     Test net output #0: accuracy = 0.1{i}"
        yield f"I0501 12:{i // 100:02}:02.123456  1234 solver.cpp:228] Iteration {n(i)} (5.2 iter/s, 19.2s/100 iters), loss = {falling(i):.5f}"
        yield f"I0501 12:{i // 100:02}:02.123556  1234 solver.cpp:244]     Train net output #0: loss = {falling(i):.5f} (* 1 = 2.1 loss)"
        yield f"I0501 12:{i // 100:02}:02.123656  1234 sgd_solver.cpp:106] Iteration {n(i)}, lr = 0.01"


@log("epoch", None, "end")
def chainer() -> Iterator[str]:
    yield "epoch       main/loss   validation/main/loss  main/accuracy  elapsed_time"
    for e in range(1, 9):
        yield f"\x1b[J{n(e, '<10')}  {falling(e):.6f}    0.10{e}                 0.9{e}          {e * 12}.31"
        yield f"\x1b[J     total [###{'.' * 30}] {e}.2%"
        yield f"this epoch [#####{'.' * 30}] 2{e}.4%"
        yield f"      {e * 600} iter, {e} epoch / 20 epochs"
        yield "    12.312 iters/sec. Estimated time to finish: 0:01:12.\x1b[4A"


@log("batch", 200, None)
def composer() -> Iterator[str]:
    for b in range(1, 41):
        yield f"[batch={n(b)}/200]:"
        yield f"\t Train time/batch: {b - 1}"
        yield f"\t Train time/sample: {(b - 1) * 32}"
        yield "\t Train time/batch_in_epoch: " + str(b - 1)
        yield f"\t Train loss/train/total: {falling(b):.4f}"
        yield f"\t Train throughput/batches_per_sec: 0.{b % 10}1"


@log("epoch", None, "progress")
def torchtune() -> Iterator[str]:
    yield "INFO:torchtune.utils.logging:Running FullFinetuneRecipe with resolved config:"
    yield "\nbatch_size: 2\nepochs: 3\nmax_steps_per_epoch: null\n"
    yield "\r" + "\r".join(
        tqdm(f"{n(e) if s == 1 else e}|{(e - 1) * 20 + s}|Loss: {falling(s):.6f}", s, 20)
        for e in (1, 2, 3)
        for s in range(1, 21)
    )


@log("epoch", 5, "progress")
def gluonts() -> Iterator[str]:
    yield "learning rate from ``lr_scheduler`` has been overwritten by ``learning_rate`` in optimizer."
    yield "\r".join(
        tqdm("", b, 50, f", epoch={n(e) if b == 0 else e}/5, avg_epoch_loss={falling(b):.2f}")
        for e in range(1, 6)
        for b in range(0, 51, 10)
    )


@log("tick", None, "end")
def stylegan() -> Iterator[str]:
    yield 'Training options:\n{\n  "total_kimg": 1000,\n  "batch_size": 32\n}'
    yield "Training for 1000 kimg..."
    for k in range(12):
        yield (
            f"tick {n(k, '<5d')} kimg {k * 4.1:<8.1f} time {k}m {k * 7 % 60:02}s       sec/tick 6{k}.1    sec/kimg 15.2    "
            f"maintenance 0.1    cpumem 5.0{k}   gpumem 9.1{k}   reserved 10.1   augment 0.00{k}"
        )
        yield "Evaluating metrics..." if k % 5 == 0 else "Loss/D: 0.31"


@log("epoch", 6, "progress")
def pix2pix() -> Iterator[str]:
    yield "----------------- Options ---------------\n               batch_size: 1\n                 n_epochs: 6\n----------------- End -------------------"
    for e in range(1, 7):
        for k in range(100, 401, 100):
            mark = n(e) if k == 100 else e
            yield f"(epoch: {mark}, iters: {k}, time: 0.0{k // 9}, data: 0.2) G_GAN: 1.1 G_L1: {falling(k):.3f} D_real: 0.6 D_fake: 0.5 "
        yield f"saving the latest model (epoch {e}, total_iters {e * 400})"
        yield f"End of epoch {e} / 6 \t Time Taken: {60 + e} sec"
        yield "learning rate 0.0002000 -> 0.0002000"


@log("epoch", 12, "progress")
def gan_batches() -> Iterator[str]:
    for e in range(12):
        for b in range(0, 938, 300):
            mark = n(e) if b == 0 else e
            yield f"[Epoch {mark}/12] [Batch {b}/938] [D loss: 0.5{b % 9}] [G loss: {falling(e):.6f}]"


@log("step", 2000, "start")
def ddpm_bar() -> Iterator[str]:
    yield "\r".join(
        tqdm(f"loss: {falling(s):.4f}" if s else "", s, 2000).replace(f"| {s}/", f"| {n(s)}/")
        for s in range(0, 2000, 25)
    )


@log("step", None, "end")
def improved_diffusion() -> Iterator[str]:
    yield "Logging to /tmp/openai-2022-05-01"
    yield "creating model and diffusion..."
    for s in range(0, 1001, 100):
        yield "-" * 31
        yield f"| grad_norm      | {falling(s):<8.3g} |"
        yield f"| loss           | 0.1{s:<5} |"
        yield f"| loss_q{s % 4}        | 0.21     |"
        yield f"| samples        | {s * 16 + 16:<8} |"
        yield f"| step           | {n(s, '<8')} |"
        yield "-" * 31


@log("epoch", None, None)
def recbole() -> Iterator[str]:
    yield "01 May 12:00    INFO  ['python', 'run.py', '--epochs=6']"
    for e in range(6):
        yield "\r".join(tqdm(f"Train     {e}", b, 30) for b in (0, 15, 30)).replace(
            f"Train     {e}", f"Train     {n(e)}", 1
        )
        yield f"01 May 12:0{e}    INFO  epoch {n(e)} training [time: {e}.21s, train loss: {falling(e):.4f}]"
        yield f"01 May 12:0{e}    INFO  epoch {n(e)} evaluating [time: 0.3{e}s, valid_score: 0.0{e}1]"
        yield "01 May 12:00    INFO  valid result: \nrecall@10 : 0.21    mrr@10 : 0.3"


@log("epoch", 10, "start")
def pykeen() -> Iterator[str]:
    for e in range(10):
        yield "\r" + tqdm("Training epochs on cuda:0", e, 10, ", loss=0.3").replace(f"| {e}/", f"| {n(e)}/").replace(
            "it/s", "epoch/s"
        )
        yield "\r".join(tqdm("Training batches on cuda:0", b, 7) for b in range(7)) + "\x1b[A"


@log("epoch", None, "end")
def dgl_example() -> Iterator[str]:
    yield "----Data statistics------'\n      #Edges 10556\n      #Classes 7\n      #Train samples 140\n      #Val samples 500"
    for e in range(20):
        yield f"Epoch {n(e, '05d')} | Time(s) 0.0{e}12 | Loss {falling(e):.4f} | Accuracy 0.{e + 30} | ETputs(KTEPS) {212.31 + e:.2f}"


@log("epoch", None, "end")
def pyg_example() -> Iterator[str]:
    for e in range(1, 21):
        yield f"Epoch: {n(e, '03d')}, Loss: {falling(e):.4f}, Train: 0.9{e % 10}, Val: 0.7{e % 9}, Test: 0.7{e % 7}"


@log("epoch", 4, "start")
def simpletransformers() -> Iterator[str]:
    yield "INFO:simpletransformers.classification.classification_utils: Converting to features started. Cache is not used."
    for e in range(4):
        yield "\r" + tqdm(f"Epoch {n(e + 1)} of 4", e, 4)
        for b in (0, 10, 20):
            yield "\r" + tqdm(f"Epochs {e}/4. Running Loss:    0.{b}31", b, 30)
            yield "\r" + tqdm(f"Running Epoch {e} of 4", b, 30)


@log("epoch", 10, "start")
def kohya() -> Iterator[str]:
    yield "running training / 学習開始\n  num train images * repeats / 学習画像の数×繰り返し回数: 160\n  num epochs / epoch数: 10"
    yield "steps:   0%|          | 0/160 [00:00<?, ?it/s]"
    for e in range(1, 11):
        yield f"epoch {n(e)}/10"
        yield "\r".join(tqdm("steps", (e - 1) * 16 + b, 160, ", avr_loss=0.101") for b in range(1, 17, 3))


@log("step", 7393, None)
def olmo() -> Iterator[str]:
    yield "2024-05-01 12:00:00.123\thost:0\tolmo.util:168\tINFO\tInitialized process group"
    for s in range(1, 30):
        yield f"2024-05-01 12:{s:02}:10.223\thost:0\tolmo.train:967\tINFO\t[step={n(s)}/7393,epoch=0]"
        yield "    optim/total_grad_norm=12.31"
        yield f"    train/CrossEntropyLoss={falling(s):.3f}\n    train/Perplexity={99 - s}\n    throughput/total_tokens={s * 4096:,}\n    System/Peak GPU Memory (MB)=31,{s + 200}"


@log("step", 1000, "end")
def torchtitan() -> Iterator[str]:
    head = "[rank0]:2024-05-01 12:{:02}:00,123 - root - INFO - "
    yield (
        head.format(0)
        + "Training starts at step 1, with local batch size 1, global batch size 8, sequence length 8192, total steps 1000 (warmup 200)"
    )
    for s in range(1, 25):
        yield (
            head.format(s) + f"\x1b[31mstep: {n(s, '2d')}  \x1b[32mloss: {falling(s):7.4f}  "
            f"\x1b[33mmemory: {5 + s / 10:.2f}GiB({5 + s / 9:.2f}%)  \x1b[34mtps: {1000 + s:,}  \x1b[35mmfu: 3{s}.12%\x1b[39m"
        )


@log("epoch", None, None)
def ranks_interleaved() -> Iterator[str]:
    for e in range(8):
        for rank in (0, 2, 1, 3):
            yield f"[rank{rank}]: 2024-05-01 12:0{e}:0{rank} INFO epoch {n(e)} loss={falling(e + rank):.4f} lr=3.0e-4"


@log("epoch", 6, None)
def ranks_that_lag() -> Iterator[str]:
    for e in range(1, 7):
        yield f"[rank0]: epoch {n(e)}/6 begins"
        if e > 1:
            yield f"[rank3]: epoch {e - 1}/6 begins"
        yield f"[rank1]: epoch {e}/6 begins"
        yield f"[rank2]: epoch {e}/6 begins"
