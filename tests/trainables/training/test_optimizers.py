from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

from tests.trainables.local import make_worker
from trainables.training.checkpoint import copy_progress, load_progress
from trainables.training.optimizers import Lion, make_optimizer

NAMES = ("adamw", "muon", "lion")


def tiny(tied: bool = True, kind: Any = LlamaForCausalLM) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=20,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=tied,
    )
    return kind(config)


def optimizer(model: nn.Module, name: Any, **changes: Any) -> torch.optim.Optimizer:
    return make_optimizer(model, name, 0.01, 0.1, 0.98, **changes)


def train(model: nn.Module, by: torch.optim.Optimizer, steps: int, seed: int = 0) -> None:
    draw = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        tokens = torch.randint(20, (2, 8), generator=draw)
        model(input_ids=tokens, labels=tokens).loss.backward()
        by.step()
        by.zero_grad()


@pytest.mark.parametrize("name", NAMES)
def test_optimizer_goes_on_bit_for_bit_from_its_checkpoint(tmp_path: Path, name: str) -> None:
    worker, whole = make_worker(tmp_path), tiny()
    by = optimizer(whole, name)
    train(whole, by, 3)
    copy_progress(tmp_path, worker, by, None, "init")()
    again = tiny()
    again.load_state_dict(whole.state_dict())
    resumed = optimizer(again, name)
    load_progress(tmp_path, worker, 3, resumed, None)
    train(whole, by, 2, seed=1)
    train(again, resumed, 2, seed=1)
    for name_, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name_])


@pytest.mark.parametrize("tied", [True, False])
def test_muon_trains_hidden_matrices_and_adamw_the_rest(tied: bool) -> None:
    model, reference = tiny(tied), tiny(tied)
    by = optimizer(model, "muon", adamw_learning_rate=0.002)
    hidden = [p for n, p in reference.named_parameters() if "_proj" in n]
    ends = [p for n, p in reference.named_parameters() if "embed" in n or "lm_head" in n]
    norms = [p for n, p in reference.named_parameters() if "norm" in n]
    assert len(hidden) == 7
    muon = torch.optim.Muon(hidden, 0.01, 0.1, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(
        [{"params": ends, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}],
        lr=0.002,
        betas=(0.9, 0.98),
        fused=True,
    )
    for step in range(3):
        train(model, by, 1, seed=step)
        tokens = torch.randint(20, (2, 8), generator=torch.Generator().manual_seed(step))
        reference(input_ids=tokens, labels=tokens).loss.backward()
        for part in (muon, adamw):
            part.step()
            part.zero_grad()
    for name, tensor in reference.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_muon_leaves_the_scores_of_a_classifier_to_adamw() -> None:
    model = tiny(kind=LlamaForSequenceClassification)
    muon, *adamw = optimizer(model, "muon").param_groups
    assert len(muon["params"]) == 7
    assert any(p is model.score.weight for group in adamw for p in group["params"])


def test_lion_is_the_rule_of_its_paper() -> None:
    p = nn.Parameter(torch.tensor([[1.0, -2.0], [3.0, 0.5]]))
    by = Lion([{"params": [p], "weight_decay": 0.1}], 0.01, (0.9, 0.99))
    expected, momentum = p.detach().clone(), torch.zeros(2, 2)
    for step in range(4):
        grad = torch.randn(2, 2, generator=torch.Generator().manual_seed(step))
        p.grad = grad.clone()
        by.step()
        update = (0.9 * momentum + 0.1 * grad).sign()
        expected = expected - 0.01 * (update + 0.1 * expected)
        momentum = 0.99 * momentum + 0.01 * grad
        torch.testing.assert_close(p.detach(), expected)
        assert torch.equal(p.grad, grad)
