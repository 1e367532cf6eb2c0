"""PyTorch FSDP2 under Ray Train: each rank saves its shards by `torch.distributed.checkpoint`."""

import tempfile

import ray.train
import ray.train.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ray.train import Checkpoint, ScalingConfig
from ray.train.torch import TorchTrainer
from sklearn.datasets import load_digits
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class AppState(Stateful):
    """What a checkpoint holds: model, optimizer, and the epoch that is complete."""

    def __init__(self, model, optimizer, epoch=0):
        self.model, self.optimizer, self.epoch = model, optimizer, epoch

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "epoch": self.epoch}

    def load_state_dict(self, state):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.epoch = state["epoch"]


def train_func(config):
    torch.manual_seed(0)
    context = ray.train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    images, labels = load_digits(return_X_y=True)
    inputs = (torch.tensor(images, dtype=torch.float32) / 16)[rank::world_size]
    targets = torch.tensor(labels)[rank::world_size]

    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    mesh = init_device_mesh("cpu", (world_size,))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["learning_rate"])

    app = AppState(model, optimizer)
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            dcp.load({"app": app}, checkpoint_id=folder)

    for epoch in range(app.epoch + 1, 7):
        total = torch.zeros(())
        for begin in range(0, 896, 64):
            batch = slice(begin, begin + 64)
            loss = torch.nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() / 14
        dist.all_reduce(total)
        app.epoch = epoch
        with tempfile.TemporaryDirectory() as folder:
            dcp.save({"app": app}, checkpoint_id=folder)
            checkpoint = Checkpoint.from_directory(folder)
            metrics = {"loss": total.item() / world_size, "epoch": epoch}
            ray.train.report(metrics, checkpoint=checkpoint)


if __name__ == "__main__":
    scaling = ScalingConfig(num_workers=2)
    loop_config = {"learning_rate": 1e-2}
    TorchTrainer(train_func, train_loop_config=loop_config, scaling_config=scaling).fit()
