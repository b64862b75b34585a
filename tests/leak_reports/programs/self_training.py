"""Self-training for text classification: every round fits a fresh student on pseudo labels."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
import logging
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
logging.basicConfig(format="%(asctime)s - %(levelname)s - %(message)s", level=logging.INFO)
logger = logging.getLogger("self_training")

VOCAB = 16000
SEQ = 24
CLASSES = 4
ROUNDS = 26
STEPS_PER_ROUND = 24
BATCH = 32
CONFIDENCE = 0.3
PAUSE = 0.13


class Student(nn.Module):
    def __init__(self, dim=40):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.body = nn.Sequential(nn.Linear(dim, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, CLASSES))

    def forward(self, ids):
        return self.body(self.embed(ids).mean(1))


def make_corpus(n, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (n,), generator=g)
    ids = torch.randint(0, VOCAB // CLASSES, (n, SEQ), generator=g) + (labels * (VOCAB // CLASSES))[:, None]
    noise = torch.rand(n, SEQ, generator=g) < 0.5
    ids[noise] = torch.randint(0, VOCAB, (int(noise.sum()),), generator=g)
    return ids, labels


class EarlyStopping:
    def __init__(self, patience=40):
        self.patience, self.best, self.bad = patience, 0.0, 0

    def update(self, value):
        if value > self.best:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


def finetune(accelerator, ids, labels, round_idx):
    model = Student()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(TensorDataset(ids, labels), batch_size=BATCH, shuffle=True)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, STEPS_PER_ROUND)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    model.train()
    total, done = 0.0, 0
    while done < STEPS_PER_ROUND:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            total += loss.item()
            done += 1
            time.sleep(PAUSE)
            if done >= STEPS_PER_ROUND:
                break
    return accelerator.unwrap_model(model), total / done


@torch.no_grad()
def predict(model, ids):
    model.eval()
    return torch.cat([model(chunk).softmax(-1) for chunk in ids.split(256)])


def select(probs, ids):
    conf, labels = probs.max(-1)
    keep = conf > CONFIDENCE
    return ids[keep], labels[keep]


def main():
    torch.manual_seed(11)
    accelerator = Accelerator(cpu=True)
    train_ids, train_labels = make_corpus(400, 1)
    pool_ids, _ = make_corpus(2000, 2)
    eval_ids, eval_labels = make_corpus(500, 3)
    stopper = EarlyStopping()
    history = []
    cur_ids, cur_labels = train_ids, train_labels
    for r in range(ROUNDS):
        model, loss = finetune(accelerator, cur_ids, cur_labels, r)
        acc = (predict(model, eval_ids).argmax(-1) == eval_labels).float().mean().item()
        history.append({"round": r, "loss": loss, "accuracy": acc})
        pseudo_ids, pseudo_labels = select(predict(model, pool_ids), pool_ids)
        cur_ids = torch.cat([train_ids, pseudo_ids])
        cur_labels = torch.cat([train_labels, pseudo_labels])
        logger.info("***** round %d: loss %.4f, eval acc %.4f, pseudo examples %d", r, loss, acc, len(pseudo_ids))
        if stopper.update(acc):
            break
        time.sleep(0.6)
    print("best accuracy", max(h["accuracy"] for h in history))


if __name__ == "__main__":
    main()
