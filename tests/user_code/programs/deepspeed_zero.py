"""DeepSpeed under Ray Train: ZeRO stage 2, all ranks save their part of a checkpoint."""

import tempfile

import deepspeed
import ray.train
import torch
from deepspeed.accelerator import get_accelerator
from ray.train import Checkpoint, ScalingConfig
from ray.train.torch import TorchTrainer
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train_func(config):
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    engine, _, _, _ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=config["lr"]),
        config={
            "train_micro_batch_size_per_gpu": 64,
            "zero_optimization": {"stage": 2},
            "zero_allow_untested_optimizer": True,
        },
    )
    device = get_accelerator().device_name(engine.local_rank)

    start = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            _, state = engine.load_checkpoint(folder)
        start = state["epoch"]

    for epoch in range(start + 1, 7):
        sampler.set_epoch(epoch)
        total = 0.0
        for inputs, targets in loader:
            outputs = engine(inputs.to(device))
            loss = torch.nn.functional.cross_entropy(outputs, targets.to(device))
            engine.backward(loss)
            engine.step()
            total += loss.item()
        with tempfile.TemporaryDirectory() as folder:
            engine.save_checkpoint(folder, client_state={"epoch": epoch})
            torch.distributed.barrier()
            ray.train.report(
                {"loss": total / len(loader), "epoch": epoch},
                checkpoint=Checkpoint.from_directory(folder),
            )


if __name__ == "__main__":
    trainer = TorchTrainer(
        train_func,
        train_loop_config={"lr": 1e-3},
        scaling_config=ScalingConfig(num_workers=2),
    )
    print(trainer.fit().metrics)
