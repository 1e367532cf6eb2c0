from __future__ import annotations

from hashlib import sha256
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from search_spaces.errors import UserError
from tests.trainables.local import make_worker
from tests.trainables.training.test_optimizers import tiny
from trainables.training.checkpoint import copy_progress, load_progress
from trainables.training.client import TaskClient, train_step
from trainables.training.gradients import backward
from trainables.training.optimizers import make_optimizer
from trainables.training.run import check_same_data, move_average


def make(lr=0.1, weight_decay=0.0, total=None):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 1 - step / total if total else 1 / (1 + step)
    )
    return model, optimizer, schedule


def step(model, optimizer, schedule):
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    schedule.step()


@pytest.fixture
def worker(tmp_path):
    return make_worker(tmp_path)


@pytest.mark.parametrize("lr", [0.1, 0.4])
def test_load_progress_keeps_a_changed_learning_rate(tmp_path, worker, lr):
    model, optimizer, schedule = make()
    for _ in range(3):
        step(model, optimizer, schedule)
    copy_progress(tmp_path, worker, optimizer, schedule, "init")()
    model, optimizer, schedule = make(lr=lr, weight_decay=0.5)
    load_progress(tmp_path, worker, 3, optimizer, schedule)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(lr / 4)
    assert optimizer.param_groups[0]["weight_decay"] == 0.5
    assert optimizer.state_dict()["state"][0]["step"] == 3
    step(model, optimizer, schedule)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(lr / 5)


def test_load_progress_takes_the_rate_of_another_schedule(tmp_path, worker):
    model, optimizer, schedule = make(total=10)
    for _ in range(3):
        step(model, optimizer, schedule)
    copy_progress(tmp_path, worker, optimizer, schedule, "init")()
    _, longer, schedule = make(total=100)
    load_progress(tmp_path, worker, 3, longer, schedule)
    assert longer.param_groups[0]["lr"] == pytest.approx(0.097)


def test_tied_weights_move_once_towards_a_model():
    average, model = (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for _ in range(2))
    for net, value in ((average, 0.0), (model, 1.0)):
        net[1].weight = net[0].weight
        nn.init.constant_(net[0].weight, value)
    move_average(average, model, 0.9)
    torch.testing.assert_close(average[0].weight, torch.full((2, 2), 0.1))


def test_many_ranks_with_the_same_data_pass():
    def mean(values):
        return {name: sum([value] * 96) / 96 for name, value in values.items()}

    for seed in range(50):
        task = SimpleNamespace(fingerprint=sha256(bytes([seed])).hexdigest())
        check_same_data(task, SimpleNamespace(mean=mean))


def test_clients_train_each_parameter_at_its_own_rate():
    model = tiny()
    optimizer = make_optimizer(model, "muon", 0.01, 0.1, 0.98, adamw_learning_rate=0.002)
    client = SimpleNamespace(
        learning_rate=lambda step, total: 0.005,
        loss=lambda model, rows, device: model(input_ids=rows, labels=rows).loss,
        grad_clip=None,
    )
    train_step(client, model, optimizer, torch.ones(1, 4).long(), 0, 1, torch.device("cpu"))
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.005, 1e-3, 1e-3])


@pytest.mark.parametrize("setting", [{"dtype": "float16"}, {"lora": {}}])
def test_clients_refuse_what_their_steps_leave_out(setting):
    with pytest.raises(UserError, match=next(iter(setting))):
        TaskClient(SimpleNamespace(config=SimpleNamespace(**setting)))


@pytest.mark.parametrize("most", [None, 1, 3, 4, 16, 99])
def test_backward_equals_one_pass(most: int | None) -> None:
    torch.manual_seed(0)
    model, x, y = nn.Linear(5, 1).double(), torch.randn(20, 5).double(), torch.randn(20, 1).double()

    def loss(rows: np.ndarray) -> torch.Tensor:
        seen.append(len(rows))
        at = torch.from_numpy(rows)
        return nn.functional.mse_loss(model(x[at]), y[at])

    seen: list[int] = []
    rows = np.arange(3, 19)
    loss(rows).backward()
    whole = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    seen.clear()
    mean = backward(model, rows, most, loss)
    assert mean.item() == pytest.approx(loss(rows).item(), rel=1e-12)
    assert sum(seen[:-1]) == 16
    assert max(seen[:-1]) <= (most or 16)
    for got, expected in zip(model.parameters(), whole, strict=True):
        torch.testing.assert_close(got.grad, expected, rtol=1e-12, atol=0)
    if most is None:
        assert all(torch.equal(p.grad, w) for p, w in zip(model.parameters(), whole, strict=True))
