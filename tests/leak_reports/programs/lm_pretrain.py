"""Pretrain a small byte language model; collection pauses are moved to fixed step boundaries."""

import argparse
import ctypes
import gc
import time

import torch
from torch import nn

torch.set_num_threads(1)


class Corpus:
    def __init__(self, length=400_000, vocabulary=96, seed=0):
        generator = torch.Generator().manual_seed(seed)
        table = torch.randint(0, vocabulary, (vocabulary, 4), generator=generator)
        choice = torch.randint(0, 4, (length,), generator=generator).tolist()
        rows, state, out = table.tolist(), 0, []
        for pick in choice:
            state = rows[state][pick]
            out.append(state)
        self.tokens = torch.tensor(out)

    def sample(self, batch, context):
        starts = torch.randint(0, len(self.tokens) - context - 1, (batch,))
        rows = starts[:, None] + torch.arange(context + 1)
        return self.tokens[rows]


class StepState:
    """What one step produced; the reporters are bound late so that callers can pick one."""

    def __init__(self, step, tokens, hidden, logits, loss):
        self.step, self.tokens, self.loss = step, tokens, loss
        self.hidden, self.logits = hidden, logits
        self.reporters = {
            "norm": lambda: float(self.hidden.norm(dim=-1).mean()),
            "confidence": lambda: float(self.logits.softmax(-1).amax(-1).mean()),
            "loss": lambda: float(self.loss),
        }

    def report(self, name):
        return self.reporters[name]()


class ByteModel(nn.Module):
    def __init__(self, vocabulary=96, width=128):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return hidden, self.head(hidden)


def train_step(model, optimizer, corpus, step):
    tokens = corpus.sample(batch=96, context=64)
    hidden, logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return StepState(step, tokens, hidden.detach(), logits.detach(), loss.detach())


def collect():
    """Collect cyclic objects and hand free pages back to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--gc-interval", type=int, default=54)
    args = parser.parse_args()

    torch.manual_seed(0)
    corpus, model = Corpus(), ByteModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    collect()
    gc.disable()
    for step in range(1, args.steps + 1):
        state = train_step(model, optimizer, corpus, step)
        if step % args.gc_interval == 0:
            collect()
        if step % 10 == 0:
            print(
                f"step {step:4d}/{args.steps}  loss {state.report('loss'):.4f}  "
                f"norm {state.report('norm'):.3f}  confidence {state.report('confidence'):.3f}",
                flush=True,
            )
        time.sleep(0.33)


if __name__ == "__main__":
    main()
