from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from trainables.training.precision import LossScaler

CPU = torch.device("cpu")


def test_step_with_an_overflow_is_skipped_and_counted() -> None:
    scaler, weight = LossScaler(torch.float16, CPU), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step(factor: float) -> torch.Tensor:
        optimizer.zero_grad()
        scaler.scale((factor * weight).sum()).backward()
        return scaler.step(optimizer, [weight], math.inf)

    assert float(step(2.0)) == pytest.approx(2 * 3**0.5)
    assert weight.tolist() == pytest.approx([0.8] * 3)
    scale = scaler.state_dict()["scale"]
    step(math.inf)
    assert weight.tolist() == pytest.approx([0.8] * 3)
    assert scaler.skipped == 1
    restored = LossScaler(torch.float16, CPU)
    restored.load_state_dict(scaler.state_dict())
    assert restored.state_dict() == scaler.state_dict()
    assert restored.state_dict()["scale"] == scale / 2


def test_float32_is_stepped_as_without_a_scaler() -> None:
    weights = [nn.Parameter(torch.tensor([3.0, 4.0])) for _ in range(2)]
    optimizers = [torch.optim.SGD([w], lr=0.1) for w in weights]
    scaler, losses = LossScaler(torch.float32, CPU), [(w**2).sum() for w in weights]
    scaler.scale(losses[0]).backward()
    losses[1].backward()
    norm = scaler.step(optimizers[0], [weights[0]], 1.0)
    assert torch.equal(norm, nn.utils.clip_grad_norm_([weights[1]], 1.0))
    optimizers[1].step()
    assert torch.equal(*weights)
    assert scaler.state_dict() == {}
