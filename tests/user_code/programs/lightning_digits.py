"""Lightning under Ray Train: `RayDDPStrategy` and `RayTrainReportCallback`."""

import os

import lightning.pytorch as pl
import ray.train.lightning
import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class Classifier(pl.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.model = torch.nn.Linear(64, 10)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def train_func(config):
    pl.seed_everything(1)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    loader = DataLoader(data, batch_size=128, shuffle=True)
    trainer = pl.Trainer(
        max_epochs=6,
        accelerator="cpu",
        devices="auto",
        strategy=ray.train.lightning.RayDDPStrategy(),
        plugins=[ray.train.lightning.RayLightningEnvironment()],
        callbacks=[ray.train.lightning.RayTrainReportCallback()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
    )
    trainer = ray.train.lightning.prepare_trainer(trainer)
    model = Classifier(config["lr"])
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            path = os.path.join(folder, "checkpoint.ckpt")
            trainer.fit(model, loader, ckpt_path=path, weights_only=False)
    else:
        trainer.fit(model, loader)


if __name__ == "__main__":
    scaling = ScalingConfig(num_workers=2)
    TorchTrainer(train_func, train_loop_config={"lr": 1e-3}, scaling_config=scaling).fit()
