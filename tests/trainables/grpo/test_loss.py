"""The loss of `grpo` against a computation token by token, and against the formulas of trl 1.16."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from tests.trainables.examples import EXAMPLES
from trainables.causal_lm.model.fast_path import speed_up
from trainables.causal_lm.model.model import new_model
from trainables.causal_lm.model.packing import packing_of
from trainables.grpo.config import GRPOConfig
from trainables.grpo.loss import PolicyLoss, advantages, policy_loss, token_weights
from trainables.grpo.packing import AnswerPacking
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
    equal = torch.full((1, 5), 123.456)  # float32 has no exact mean of it
    assert advantages(equal, "group").tolist() == advantages(equal, "none").tolist() == [[0] * 5]


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


PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5, 8, 9, 7]]
SIZES = [4, 1, 9, 6, 1, 1, 2, 8, 3]


def packed(model: Any, config: GRPOConfig, packing: AnswerPacking) -> list[Any]:
    """The inputs of `PolicyLoss` for answers of `SIZES` to `PROMPTS`."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 270, (len(SIZES), max(SIZES)), generator=generator)
    rows = packing.pack(PROMPTS, [row[:n] for row, n in zip(ids.tolist(), SIZES, strict=True)])
    old, reference = torch.randn(2, *ids.shape, generator=generator) * 0.3 - 5
    advantage, weights = torch.linspace(-1, 2, len(SIZES)), torch.linspace(0.1, 0.5, len(SIZES))
    inputs = []
    for (tokens, positions), (sources, answer, place) in packing.passes(
        rows, -(-len(rows) // packing.rows)
    ):
        numbers = [weights[answer] * (answer >= 0), advantage[answer], old[answer, place]]
        given = tokens, positions if packing.shared else None, sources, ids[answer, place]
        inputs.append((*given, torch.stack(numbers), reference[answer, place]))
    return inputs


def direct_loss(model: Any) -> torch.Tensor:
    """The loss of the same answers, token by token."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 270, (len(SIZES), max(SIZES)), generator=generator)
    old, reference = torch.randn(2, *ids.shape, generator=generator) * 0.3 - 5
    advantages = torch.linspace(-1, 2, len(SIZES))
    loss = torch.zeros(())
    for row, (size, weight) in enumerate(zip(SIZES, torch.linspace(0.1, 0.5, 9), strict=True)):
        for i in range(size):
            tokens = torch.tensor([[*PROMPTS[row // 3], *ids[row, :i].tolist()]])
            logits = model(input_ids=tokens).logits[0, -1] / 0.7
            log_prob = logits.log_softmax(-1)[ids[row, i]]
            ratio = (log_prob - old[row, i]).exp()
            gain = torch.min(ratio * advantages[row], ratio.clamp(0.8, 1.3) * advantages[row])
            d = reference[row, i] - log_prob
            loss = loss + weight * (0.1 * (d.exp() - d - 1) - gain)
    return loss


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # of torch
@pytest.mark.parametrize(
    ("packing", "passes", "fast"),
    [
        (AnswerPacking(64, True, False, 64), 1, False),  # all in one pass
        (AnswerPacking(64, True, False, 64), 1, True),  # without logits in memory
        (AnswerPacking(16, True, True, 2), 2, True),  # groups are split over rows of one shape
        (AnswerPacking(16, True, False, 1), 5, False),
        (AnswerPacking(16, False, True, 4), 3, False),  # each answer after its question
    ],
)
def test_loss_and_gradient_of_a_model_are_those_of_a_direct_computation(
    cache: Path, packing: AnswerPacking, passes: int, fast: bool
) -> None:
    config = GRPOConfig.model_validate(
        {**EXAMPLES["grpo"].config, "temperature": 0.7, "beta": 0.1, "epsilon_high": 0.3}
    )
    task = open_task(config, cache)
    model: Any = new_model(task.config, task.dataset)
    expected = direct_loss(model)
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    if fast:
        speed_up(model)
    given = packed(model, task.config, packing)
    assert len(given) == passes
    losses, counter = PolicyLoss(model, task.config), CompileCounter()
    if packing.fixed:
        packing_of(model, packing.most)
        losses.compile(backend=counter, dynamic=False)
    loss = torch.stack([losses(*each) for each in given]).sum()
    torch.testing.assert_close(loss, expected)
    assert counter.frame_count == packing.fixed
    assert float(losses.seen["tokens"]) == sum(SIZES)
    for found, gradient in zip(
        torch.autograd.grad(loss, list(model.parameters())), wanted, strict=True
    ):
        torch.testing.assert_close(found, gradient, rtol=1e-4, atol=1e-6)
