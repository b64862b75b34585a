"""lightning.Trainer.fit: lightning_fit.py [--leak: the module keeps the features of each batch]."""

import sys

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    """A small network."""

    def __init__(self, leak):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
        self.leak, self.features = leak, []

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        if self.leak:  # to draw them later
            self.features.append(self.net[:2](x).detach())
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


data = DataLoader(TensorDataset(torch.randn(64 * 60, 64), torch.randn(64 * 60, 1)), batch_size=64)
lightning.Trainer(max_epochs=600, accelerator="cpu").fit(Regression("--leak" in sys.argv), data)
