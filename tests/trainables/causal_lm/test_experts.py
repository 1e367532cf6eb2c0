"""A mixture of experts: its loss, its checkpoints and exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer

from results.export.exportable import ModelSource
from results.export.folder import ModelCard, export_model
from tests.trainables.examples import EXAMPLES
from tests.trainables.local import RecordingChannel, newest_checkpoint, run_trial
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.experts import ExpertsConfig
from trainables.causal_lm.model.model import new_model
from trainables.causal_lm.model.objective import (
    NextTokenLoss,
    recompute_activations,
    step_flops,
    to_device,
)
from trainables.causal_lm.model.packing import document_positions
from trainables.causal_lm.trainable import CausalLM
from trainables.data.text.dataset import prepare
from trainables.job import Answer

CONFIG = {**EXAMPLES["causal_lm"].config, "experts": {"count": 4, "balance": 0.5}}


def gradients(loss: torch.Tensor, model: torch.nn.Module) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("documents", [False, True])
def test_balance_is_in_the_gradient_and_not_in_the_loss(cache: Path, documents: bool) -> None:
    config = CausalLMConfig.model_validate(CONFIG)
    dataset = prepare(config, cache)
    model: Any = new_model(config, dataset)
    tokens = to_device(dataset.sequences(Split.TRAIN)[:4], torch.device("cpu"))
    positions = document_positions(tokens, dataset.end) if documents else None
    inputs: dict[str, Any] = {"input_ids": tokens[:, :-1], "output_router_logits": True}
    if positions is not None:
        number = (positions == 0).cumsum(dim=1)
        seen = (number[:, :, None] == number[:, None, :]).tril()[:, None]
        inputs |= {"position_ids": positions, "attention_mask": seen}
    out = model.model(**inputs)
    logits = model.lm_head(out.last_hidden_state)
    text = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
    shares = torch.stack(out.router_logits).softmax(dim=-1)
    chosen = F.one_hot(shares.topk(2, dim=-1).indices, 4).sum(dim=2).double().mean(dim=1)
    balance = 4 * (chosen * shares.mean(dim=1)).sum(dim=-1).mean()  # Fedus et al., equation 4
    expected = gradients(text + 0.5 * balance, model)
    loss = NextTokenLoss(model, config)(tokens, None, positions)
    torch.testing.assert_close(loss, text)
    torch.testing.assert_close(gradients(loss, model), expected)
    recompute_activations(model)
    again = NextTokenLoss(model, config)(tokens, None, positions)
    torch.testing.assert_close(gradients(again, model), expected)


def test_flops_count_the_experts_that_compute_a_token(cache: Path) -> None:
    config = CausalLMConfig.model_validate(CONFIG)
    model = new_model(config, prepare(config, cache))
    assert config.num_parameters == sum(p.numel() for p in model.parameters())
    gains = 3 * config.hidden_size
    active = config.num_parameters - gains - 2 * 3 * config.hidden_size * config.mlp_size
    assert step_flops(model, config) == 6 * active + 12 * 1 * 16 * 16


def test_resumes_bit_for_bit_and_is_read_by_transformers(tmp_path: Path, cache: Path) -> None:
    whole = run_trial(tmp_path / "whole", "causal_lm", CONFIG, cache=cache)
    stopped = RecordingChannel({2: Answer.STOP})
    run_trial(tmp_path / "cut", "causal_lm", CONFIG, channel=stopped, cache=cache)
    rest = run_trial(tmp_path / "cut", "causal_lm", CONFIG, attempt=2, cache=cache)
    assert {**stopped.curve, **rest.curve} == whole.curve
    losses = [metrics["eval_loss"] for metrics in whole.curve.values()]
    assert losses[-1] < losses[0]
    config, weights = CausalLMConfig.model_validate(CONFIG), newest_checkpoint(tmp_path / "cut")
    scores = CausalLM().evaluate(config, weights.folder, Split.SELECTION, cache)
    assert scores["eval_loss"] == losses[-1]
    CausalLM().export_hf(config, weights.folder, tmp_path / "hf", cache)
    auto: Any = AutoModelForCausalLM
    tokenizer: Any = AutoTokenizer
    plain, tokens = auto.from_pretrained(tmp_path / "hf"), torch.arange(20, 36)[None]
    end = tokenizer.from_pretrained(tmp_path / "hf").eos_token_id
    assert end == prepare(config, cache).end
    model = CausalLM().exportable(config, weights.folder, cache).module
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), plain(tokens).logits)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["pt2", "onnx"])
def test_other_runtimes_give_the_same_outputs(tmp_path: Path, cache: Path, form: str) -> None:
    run_trial(tmp_path / "t", "causal_lm", CONFIG, cache=cache)
    config, weights = (
        CausalLMConfig.model_validate(CONFIG),
        newest_checkpoint(tmp_path / "t").folder,
    )
    source = ModelSource(
        weights,
        lambda: CausalLM().exportable(config, weights, cache),
        lambda folder: CausalLM().export_hf(config, weights, folder, cache),
    )
    card = ModelCard("sweep", "loss", 1.0, ("t0000",))
    assert all(one.passed for one in export_model(weights, tmp_path / form, form, source, card))


def test_mistakes_are_named() -> None:
    found = CausalLMConfig.problems({"experts": {"count": 2, "per_token": 3}})
    assert found == [(("experts",), "per_token must be <= count, 2, got 3")]
    assert not CausalLMConfig.problems({"experts": {}, "optimizer": "muon"})
    uneven = CausalLMConfig(experts=ExpertsConfig(), batch_size=9, micro_batch_size=2)
    assert uneven.validate_workers([1, 2]) == (
        "micro_batch_size",
        "with experts, workers must divide batch_size, 9, got 2; remove micro_batch_size, or change"
        " one of them",
    )
    found = CausalLMConfig.problems({"experts": {}, "model_name_or_path": "gpt2"})
    assert found[0][1].startswith("experts: no effect with model_name_or_path")
