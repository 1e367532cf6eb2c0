from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tests.trainables.local import make_worker
from trainables.training.checkpoint import copy_progress, load_progress
from trainables.training.gradients import backward


def make(lr=0.1, weight_decay=0.0):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
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
