from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.trainables.federated.tiny import config
from trainables.federated.config import SERVER_RATES
from trainables.federated.server import Server


def test_server_step_follows_the_published_formulas() -> None:
    weights = np.array([1.0, -2.0])
    average = np.array([1.5, -2.5])
    way = average - weights
    assert Server(config()).step("w", weights, average) is average
    half = Server(config(server_learning_rate=0.5)).step("w", weights, average)
    assert half.tolist() == (weights + 0.5 * way).tolist()
    avgm = Server(config(server="fedavgm"))
    first = avgm.step("w", weights, average)
    second = avgm.step("w", first, first + way)
    assert second.tolist() == pytest.approx((first + 1.9 * way).tolist())
    tau, b1, b2 = 1e-3, 0.9, 0.99
    for name, squares in (
        ("fedadagrad", tau**2 + way**2),
        ("fedadam", b2 * tau**2 + (1 - b2) * way**2),
        ("fedyogi", tau**2 - (1 - b2) * way**2 * np.sign(tau**2 - way**2)),
    ):
        found = Server(config(server=name)).step("w", weights, average)
        expected = weights + SERVER_RATES[name] * (1 - b1) * way / (np.sqrt(squares) + tau)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_diloco_server_equals_nesterov_of_torch() -> None:
    server = Server(config(server="diloco"))
    ours = np.array([1.0, -2.0])
    theirs = torch.nn.Parameter(torch.tensor(ours))
    sgd = torch.optim.SGD([theirs], lr=0.7, momentum=0.9, nesterov=True)
    for average in np.random.default_rng(0).normal(size=(4, 2)):
        theirs.grad = theirs.detach() - torch.from_numpy(average)
        sgd.step()
        ours = server.step("w", ours, average)
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-12)
