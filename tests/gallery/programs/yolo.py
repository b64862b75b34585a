"""Ultralytics' train on 64 images made here: yolo.py [--leak: a callback keeps the images of each batch]."""

import sys
from pathlib import Path

import numpy as np
from PIL import Image
from ultralytics import YOLO

KEPT = []


def keep(trainer):
    """What a user writes to look at the images later."""
    KEPT.append(trainer.model.state_dict())
    KEPT.append(np.random.rand(4, 3, 160, 160))


def pictures(folder, count=64):
    """One square on each."""
    for kind in ("images", "labels"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for index in range(count):
        pixels = np.random.randint(0, 255, (160, 160, 3), dtype=np.uint8)
        pixels[40:80, 40:80] = 255
        Image.fromarray(pixels).save(folder / "images" / f"{index}.png")
        (folder / "labels" / f"{index}.txt").write_text("0 0.375 0.375 0.25 0.25\n")


pictures(Path("data"))
Path("data.yaml").write_text(f"path: {Path('data').resolve()}\ntrain: images\nval: images\nnames: [square]\n")
model = YOLO("yolo11n.yaml")
if "--leak" in sys.argv:
    model.add_callback("on_train_batch_end", keep)
model.train(
    data="data.yaml",
    epochs=20,
    imgsz=160,
    batch=8,
    device="cpu",
    workers=0,
    plots=False,
    pretrained=False,
    project=str(Path.cwd()),
)
