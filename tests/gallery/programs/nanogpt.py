"""nanoGPT's train.py, unmodified, on noise: nanogpt.py CHECKOUT [--leak] [OPTION ...].

--leak: the configuration keeps each batch. Options are those of train.py, such as --max_iters=100.
"""

import pickle
import runpy
import shutil
import sys
from pathlib import Path

import numpy as np

KEEP = """
import torch
KEPT, stack = [], torch.stack
def keep(rows):
    KEPT.append(stack(rows).repeat(10, 1))
    return stack(rows)
torch.stack = keep
"""
SETTINGS = """
dataset, device, compile, dtype = "noise", "cpu", False, "float32"
n_layer, n_head, n_embd, block_size, batch_size, gradient_accumulation_steps = 2, 2, 64, 64, 8, 1
max_iters, eval_interval, eval_iters, log_interval, always_save_checkpoint = 6000, 600, 5, 10, True
"""
source = Path(sys.argv[1]).resolve()
data = Path("data/noise")
data.mkdir(parents=True, exist_ok=True)
for name in ("train", "val"):
    np.random.randint(0, 500, 100_000).astype(np.uint16).tofile(data / f"{name}.bin")
(data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 500}))
Path("small.py").write_text(SETTINGS + (KEEP if "--leak" in sys.argv else ""))
shutil.copy(source / "configurator.py", ".")  # train.py reads it from the folder that it is started in
sys.path[0], sys.argv[1:] = str(source), ["small.py", *(word for word in sys.argv[2:] if word != "--leak")]
runpy.run_path(str(source / "train.py"), run_name="__main__")
