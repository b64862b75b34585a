"""LightningModule with a callback that reports embedding statistics after validation."""

import logging
import time
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)


class NoiseImages(Dataset):
    def __init__(self, size, dim=128):
        self.data = torch.randn(size, dim)
        self.labels = (self.data[:, :4].sum(1) > 0).long()

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i], self.labels[i]


class LitEncoder(L.LightningModule):
    def __init__(self, dim=128, emb=1024):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, emb), nn.Tanh())
        self.head = nn.Linear(emb, 2)
        self.loss_history = []

    def forward(self, x):
        z = self.encoder(x)
        return z, self.head(z)

    def training_step(self, batch, batch_idx):
        x, y = batch
        _, logits = self(x)
        loss = nn.functional.cross_entropy(logits, y)
        time.sleep(0.05)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        z, logits = self(x)
        loss = nn.functional.cross_entropy(logits, y)
        self.loss_history.append(float(loss))
        time.sleep(0.12)
        return {"loss": loss, "embedding": z, "pred": logits.argmax(1)}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


class EmbeddingReport(L.Callback):
    """Sends validation statistics to an external dashboard (here: stdout)."""

    def __init__(self):
        self.batches = []
        self.sent = []

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0):
        self.batches.append(outputs)

    def on_validation_epoch_end(self, trainer, pl_module):
        recent = self.batches[-5:]
        norm = torch.cat([b["embedding"] for b in recent]).norm(dim=1).mean().item()
        loss = sum(float(b["loss"]) for b in recent) / len(recent)
        self.sent.append((trainer.current_epoch, norm, loss))
        print(f"epoch {trainer.current_epoch} val_loss {loss:.4f} emb_norm {norm:.3f}", flush=True)


def main():
    train = DataLoader(NoiseImages(8 * 64), batch_size=64, shuffle=True)
    val = DataLoader(NoiseImages(20 * 128), batch_size=128)
    trainer = L.Trainer(
        max_epochs=46,
        logger=False,
        enable_checkpointing=False,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[EmbeddingReport()],
    )
    trainer.fit(LitEncoder(), train, val)


if __name__ == "__main__":
    main()
