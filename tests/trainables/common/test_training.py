"""Optimizers put back from a checkpoint, with the same settings and with changed ones."""

from __future__ import annotations

import pytest
import torch

from tests.trainables.local import RecordingChannel, make_worker
from trainables.common.training import copy_progress, load_progress


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
    return make_worker(tmp_path, "digits", {}, channel=RecordingChannel())


@pytest.mark.parametrize("lr", [0.1, 0.4])
def test_a_changed_learning_rate_keeps_its_place_in_the_schedule(tmp_path, worker, lr):
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
