"""Hugging Face Accelerate under Ray Train: `prepare`, `save_state` and `load_state`."""

import os
import tempfile

import ray.train
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from ray.train import Checkpoint, ScalingConfig
from ray.train.torch import TorchTrainer
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


def train_func(config):
    # The order of the samples is the same after a restart.
    order = DataLoaderConfiguration(use_seedable_sampler=True)
    accelerator = Accelerator(cpu=True, dataloader_config=order)
    set_seed(42)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    model = torch.nn.Sequential(torch.nn.Linear(64, 10), torch.nn.Dropout(0.1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    loader = DataLoader(data, shuffle=True, batch_size=64)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    start = 1
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            accelerator.load_state(folder)
            with open(os.path.join(folder, "epoch.txt")) as file:
                start = int(file.read()) + 1

    for epoch in range(start, 7):
        loader.set_epoch(epoch)
        total = torch.zeros(())
        for inputs, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
        metrics = {"loss": accelerator.gather(total).sum().item() / len(loader), "epoch": epoch}

        # Every process saves its own random state, so all of them report the folder.
        with tempfile.TemporaryDirectory() as folder:
            accelerator.save_state(folder)
            if accelerator.is_main_process:
                with open(os.path.join(folder, "epoch.txt"), "w") as file:
                    file.write(str(epoch))
            ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


if __name__ == "__main__":
    scaling = ScalingConfig(num_workers=2)
    TorchTrainer(train_func, train_loop_config={"lr": 1e-2}, scaling_config=scaling).fit()
