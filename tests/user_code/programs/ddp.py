"""Two ranks train together by torchrun; rank 0 reports."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from tune_report import checkpoint_dir, report

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--epochs", type=int, default=4)
options = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
start = 1
if folder := checkpoint_dir():
    state = torch.load(os.path.join(folder, "state.pt"))
    model.load_state_dict(state["model"])
    start = state["epoch"] + 1
for epoch in range(start, options.epochs + 1):
    x = torch.full((4, 2), 1.0 + dist.get_rank())
    loss = ((model(x) - 1) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.all_reduce(value := loss.detach() / dist.get_world_size())
    if dist.get_rank() == 0:
        os.makedirs("checkpoint", exist_ok=True)
        torch.save({"model": model.state_dict(), "epoch": epoch}, "checkpoint/state.pt")
        report(step=epoch, loss=value, ranks=dist.get_world_size(), checkpoint="checkpoint")
    dist.barrier()
dist.destroy_process_group()
