"""transformers.Trainer on a tiny language model: huggingface.py [--leak: a callback keeps each step's outputs]."""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

KEPT = []


class KeepOutputs(TrainerCallback):
    """What a user writes to look at the outputs later."""

    def on_step_end(self, args, state, control, model=None, **rest):
        with torch.no_grad():
            KEPT.append(model(input_ids=torch.randint(0, 1000, (2, 128))).logits)


data = [{"input_ids": (row := torch.randint(0, 1000, (128,))), "labels": row} for _ in range(400)]
model = GPT2LMHeadModel(GPT2Config(vocab_size=1000, n_positions=128, n_embd=64, n_layer=2, n_head=2))
arguments = TrainingArguments(
    "out", num_train_epochs=24, per_device_train_batch_size=8, report_to="none", save_steps=200
)
callbacks = [KeepOutputs()] if "--leak" in sys.argv else []
Trainer(model, arguments, train_dataset=data, callbacks=callbacks).train()
