import pytest
import torch
from torch.nn import functional as F

from trainables.training import cross_entropy
from trainables.training.cross_entropy import IGNORED, linear_cross_entropies, linear_cross_entropy


@pytest.mark.parametrize("tokens_at_once", [1, 7, 30, 1000])
def test_loss_and_gradients_equal_those_of_all_logits_at_once(
    monkeypatch: pytest.MonkeyPatch, tokens_at_once: int
) -> None:
    monkeypatch.setattr(cross_entropy, "LOGITS_BYTES", 4 * 11 * tokens_at_once)
    torch.manual_seed(0)
    hidden = torch.randn(30, 5, requires_grad=True)
    weight = torch.randn(11, 5, requires_grad=True)
    targets = torch.randint(0, 11, (30,))
    targets[3:20:2] = IGNORED
    whole = F.cross_entropy(hidden @ weight.T, targets)
    expected = torch.autograd.grad(3 * whole, (hidden, weight))
    loss = linear_cross_entropy(hidden, weight, targets)
    torch.testing.assert_close(loss, whole)
    torch.testing.assert_close(torch.autograd.grad(3 * loss, (hidden, weight)), expected)
    logits, uneven = hidden @ weight.T / 0.7, torch.rand(30)
    whole = F.cross_entropy(logits, targets, reduction="none")
    expected = torch.autograd.grad(whole, (hidden, weight), uneven)
    each = linear_cross_entropies(hidden, weight, targets, torch.tensor(0.7))
    torch.testing.assert_close(each, whole)
    torch.testing.assert_close(torch.autograd.grad(each, (hidden, weight), uneven), expected)


def test_half_precision_keeps_a_float32_gradient_of_the_weight() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(64, 8, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(19, 8, requires_grad=True)
    targets = torch.randint(0, 19, (64,))
    whole = F.cross_entropy((hidden.float() @ weight.T), targets)
    loss = linear_cross_entropy(hidden, weight, targets)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(whole.item(), rel=0.02)
    (expected,) = torch.autograd.grad(whole, weight)
    (got,) = torch.autograd.grad(loss, weight)
    assert got.dtype == torch.float32
    assert float((got - expected).norm() / expected.norm()) < 0.02
