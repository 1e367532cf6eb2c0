"""Gradients in parts are those of the whole."""

import numpy as np
import pytest
import torch
from torch import nn

from trainables.base import TrainableConfig
from trainables.causal_lm.config import CausalLMConfig
from trainables.common.training import backward
from trainables.digits.config import DigitsConfig


@pytest.mark.parametrize("most", [None, 1, 3, 4, 16, 99])
def test_gradients_and_loss_are_those_of_one_pass(most: int | None) -> None:
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


@pytest.mark.parametrize("config", [DigitsConfig, CausalLMConfig])
def test_half_the_micro_batch(config: type[TrainableConfig]) -> None:
    assert config(batch_size=12).halve_micro_batch(workers=2) == {"micro_batch_size": 3}
    assert config(batch_size=12, micro_batch_size=3).halve_micro_batch(workers=2) == {
        "micro_batch_size": 1
    }
    assert config(batch_size=12, micro_batch_size=64).halve_micro_batch(workers=2) == {
        "micro_batch_size": 3
    }
    assert config(batch_size=12, micro_batch_size=1).halve_micro_batch(workers=2) is None


def test_a_trainable_without_a_micro_batch_cannot_shrink() -> None:
    class Plain(TrainableConfig):
        batch_size: int = 8

    assert Plain().halve_micro_batch(workers=1) is None
