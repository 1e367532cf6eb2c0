"""The loss of `grpo` against a computation token by token, and against the formulas of trl 1.16."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.examples import EXAMPLES
from trainables.causal_lm.model.model import new_model
from trainables.grpo.config import GRPOConfig
from trainables.grpo.loss import PolicyLoss, advantages, policy_loss, token_weights
from trainables.training.task import open_task

LENGTHS = [3, 1, 4, 2]
MOST = 4


def by_trl(loss: str, per_token: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """`GRPOTrainer._compute_loss` of trl 1.16, from the losses of the tokens on."""
    if loss == "grpo":
        return ((per_token * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()
    if loss == "dapo":
        return (per_token * mask).sum() / mask.sum()
    return (per_token * mask).sum() / (per_token.size(0) * MOST)


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo"])
def test_weights_of_tokens_are_those_of_trl(loss: Any) -> None:
    lengths = torch.tensor(LENGTHS)
    per_token = torch.randn(4, MOST, generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(MOST) < lengths[:, None]).float()
    each = token_weights(loss, lengths, 4, float(lengths.sum()), MOST)
    found = (per_token * mask * each[:, None]).sum()
    torch.testing.assert_close(found, by_trl(loss, per_token, mask))


def test_advantages_are_relative_to_the_group() -> None:
    rewards = torch.tensor([[0.0, 1.0, 1.0, 0.0], [2.0, 2.0, 2.0, 2.0]])
    assert advantages(rewards, "none").tolist() == [[-0.5, 0.5, 0.5, -0.5], [0, 0, 0, 0]]
    scale = rewards[0].std() + 1e-4  # trl: nanstd with Bessel's correction
    torch.testing.assert_close(advantages(rewards, "group")[0], (rewards[0] - 0.5) / scale)
    assert advantages(rewards, "group")[1].tolist() == [0, 0, 0, 0]


def test_ratio_is_clipped_on_the_side_that_would_gain() -> None:
    old = torch.zeros(4)
    found = torch.tensor([0.5, 1.5, 0.5, 1.5]).log().requires_grad_()
    advantage = torch.tensor([1.0, 1.0, -1.0, -1.0])
    loss, parts = policy_loss(found, old, None, advantage, 0.2, 0.3, 0.0)
    torch.testing.assert_close(loss.detach(), torch.tensor([-0.5, -1.3, 0.8, 1.5]))
    assert parts["clip_share"].tolist() == [0, 1, 1, 0]
    loss.sum().backward()
    assert found.grad is not None
    torch.testing.assert_close(found.grad, torch.tensor([-0.5, 0.0, 0.0, 1.5]))


def test_loss_and_gradient_of_a_model_are_those_of_a_direct_computation(cache: Path) -> None:
    config = GRPOConfig.model_validate(
        {**EXAMPLES["grpo"].config, "temperature": 0.7, "beta": 0.1, "epsilon_high": 0.3}
    )
    task = open_task(config, cache)
    model: Any = new_model(task.config, task.dataset)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 270, (3, 9), generator=generator)
    old, reference = (torch.randn(3, 8, generator=generator) * 0.3 - 5 for _ in range(2))
    weights = torch.zeros(3, 8)
    weights[0, 4:7], weights[1, 2:8], weights[2, 7:] = 0.2, 0.1, 0.5
    advantage = torch.tensor([1.0, -0.5, 2.0])
    loss = PolicyLoss(model, task.config)(tokens, weights, advantage, old, reference)
    cut = (part[:, 2:] for part in (weights, old, reference))
    last = dict(zip(("weights", "old", "reference"), cut, strict=True))
    some = PolicyLoss(model, task.config)(tokens, advantage=advantage, **last)
    torch.testing.assert_close(some, loss)
    loss.backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    expected = torch.zeros(())
    for row in range(3):
        for i in range(8):
            logits = model(input_ids=tokens[row : row + 1, : i + 1]).logits[0, -1] / 0.7
            log_prob = logits.log_softmax(-1)[tokens[row, i + 1]]
            ratio = (log_prob - old[row, i]).exp()
            gain = torch.min(ratio * advantage[row], ratio.clamp(0.8, 1.3) * advantage[row])
            d = reference[row, i] - log_prob
            expected = expected + weights[row, i] * (0.1 * (d.exp() - d - 1) - gain)
    expected.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(loss, expected)
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(gradient, p.grad, rtol=1e-4, atol=1e-6)
