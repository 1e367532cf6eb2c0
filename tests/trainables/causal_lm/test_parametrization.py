"""muP and CompleteP: the rules as the papers have them, folded into weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.coordinates import coordinates
from trainables.causal_lm.task import TextTask

BASE: dict[str, Any] = {
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 2,
    "sequence_length": 32,
    "batch_size": 8,
    "data": {"max_bytes": 60_000},
}
COMPLETE = {**BASE, "parametrization": "completep", "base_hidden_size": 32, "base_num_layers": 2}
MUP = {**BASE, "parametrization": "mup", "base_hidden_size": 32}
LARGE = {"hidden_size": 128, "num_layers": 6}
M, DEPTH = 4, 3


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def task_of(cache: Path, config: dict[str, Any]) -> TextTask:
    return TextTask.open(CausalLMConfig.model_validate(config), cache)


def train(
    task: TextTask, model: nn.Module, by: torch.optim.Optimizer, steps: int = 4
) -> list[float]:
    objective, losses = task.objective(model), []
    for number in range(steps):
        loss = task.loss(
            objective, task.batch(torch.arange(8).numpy() + number, torch.device("cpu"))
        )
        loss.backward()
        by.step()
        by.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def test_at_the_size_of_the_base_nothing_differs(cache: Path) -> None:
    found = []
    for config in (BASE, COMPLETE, MUP):
        task = task_of(cache, config)
        model = task.new_model()
        found.append(train(task, model, task.optimizer(model)))
    assert found[0] == found[1] == found[2]


def test_folded_multipliers_train_as_those_of_the_papers(cache: Path) -> None:
    """The large model with multipliers in its forward pass, and the rates of CompleteP."""
    task = task_of(cache, {**COMPLETE, **LARGE, "weight_decay": 0.2})
    folded, explicit = task.new_model(), task.new_model()
    losses = train(task, folded, task.optimizer(folded))
    model: Any = explicit
    model.config.use_cache = False
    groups = []
    with torch.no_grad():
        model.model.norm.weight.mul_(M)
        for layer in model.model.layers:
            for part in (layer.self_attn.o_proj, layer.mlp.down_proj):
                part.weight.mul_(DEPTH)
                part.register_forward_hook(lambda _m, _i, out: out / DEPTH)
            layer.self_attn.q_proj.weight.mul_(M**0.5)  # heads are as many, so they are wider
            layer.self_attn.scaling /= M**0.5
    model.model.norm.register_forward_hook(lambda _m, _i, out: out / M)
    config = task.config
    for name, p in explicit.named_parameters():
        matrix, inner = p.ndim == 2, "layers" in name and p.ndim == 2
        groups.append(
            {
                "params": [p],
                "lr": config.learning_rate / (M if inner else 1),
                "weight_decay": config.weight_decay * (M if inner else 1) if matrix else 0.0,
                "eps": 1e-8 / (M * DEPTH if inner else M if matrix else 1),
            }
        )
    by = torch.optim.AdamW(groups, betas=(0.9, config.beta2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainables.causal_lm.model.objective.is_fast", lambda _: False)
        assert train(task, explicit, by) == pytest.approx(losses, rel=1e-3)
    standard = task_of(cache, {**BASE, **LARGE, "weight_decay": 0.2})
    other = standard.new_model()
    assert train(standard, other, standard.optimizer(other)) != pytest.approx(losses, rel=1e-2)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_activations_change_alike_at_all_widths(cache: Path, optimizer: str) -> None:
    wide = {**BASE, "num_heads": None, "hidden_size": 128, "optimizer": optimizer}
    mup = {**wide, "parametrization": "mup", "base_hidden_size": 32}
    found = [list(coordinates(CausalLMConfig.model_validate(c), cache)) for c in (wide, mup)]
    assert all(one.is_flat for one in found[1]), found[1]
    grown = {one.name for one in found[0] if not one.is_flat}
    assert {"attention", "mlp", "residual", "logits"} <= grown


def test_depth_is_checked_with_completep(cache: Path) -> None:
    config = CausalLMConfig.model_validate({**COMPLETE, "hidden_size": 64, "num_layers": 8})
    deep = {one.name: one for one in coordinates(config, cache) if one.axis == "num_layers"}
    assert deep["residual"].sizes == (2, 4, 8)
    assert deep["logits"].is_flat


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({**BASE, "base_hidden_size": 32}, "standard"),
        ({**MUP, "base_num_layers": 4}, "base_num_layers"),
        ({**COMPLETE, "experts": {"count": 4}}, "experts"),
        ({"model_name_or_path": "some/model", "parametrization": "mup"}, "scratch"),
    ],
)
def test_what_has_no_rule_is_refused(config: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        CausalLMConfig.model_validate(config)
