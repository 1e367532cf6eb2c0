"""Gradients in parts are those of the whole."""

import numpy as np
import pytest
import torch
from torch import nn

from trainables.common.training import backward


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
