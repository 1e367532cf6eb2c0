from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from tests.trainables.examples import EXAMPLES
from tests.trainables.local import RecordingChannel, newest_checkpoint, run_trial
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.objective import NextTokenLoss, next_token_loss
from trainables.causal_lm.model.packing import document_positions
from trainables.causal_lm.trainable import CausalLM
from trainables.job import Answer

END = 0
PACKED = CausalLMConfig(packing="documents")


def model(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "gpt2":
        gpt2 = GPT2Config(
            vocab_size=20,
            n_positions=16,
            n_embd=8,
            n_layer=2,
            n_head=2,
            bos_token_id=END,
            eos_token_id=END,
        )
        return GPT2LMHeadModel(gpt2).eval()
    llama = LlamaConfig(
        vocab_size=20,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
    )
    return LlamaForCausalLM(llama)


def losses(of: nn.Module, *tokens: int) -> list[float]:
    """Of each token but the first, which is given."""
    rows = torch.tensor([tokens])
    with torch.no_grad():
        places = document_positions(rows, END)
        return next_token_loss(of, PACKED, "none", rows, None, places).tolist()


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_documents_in_one_sequence_are_as_each_alone(kind: str) -> None:
    of = model(kind)
    packed = losses(of, 3, 7, 5, END, 4, 4, 9, 2, END, END, 8)
    alone = [
        *losses(of, 3, 7, 5, END),
        *losses(of, END, 4, 4, 9, 2, END),
        *losses(of, END, END),
        *losses(of, END, 8),
    ]
    assert packed == pytest.approx(alone, rel=1e-5)
    rows = torch.tensor([[3, 7, 5, END, 4, 4, 9, 2, END, END, 8]])
    with torch.no_grad():
        plain = next_token_loss(of, PACKED, "none", rows).tolist()
        training = NextTokenLoss(of, PACKED)(rows, None, document_positions(rows, END))
    assert plain[:3] == pytest.approx(packed[:3], rel=1e-5)
    assert all(abs(a - b) > 1e-5 for a, b in zip(plain[4:], packed[4:], strict=True))
    assert float(training) == pytest.approx(sum(packed) / len(packed), rel=1e-5)


def test_positions_begin_again_at_each_document() -> None:
    tokens = torch.tensor([[5, 6, END, 7, 8, 1], [END, END, 5, 6, 7, 1], [1, 2, 3, 4, 5, END]])
    expected = [[0, 1, 0, 1, 2], [0, 0, 1, 2, 3], [0, 1, 2, 3, 4]]
    assert document_positions(tokens, END).tolist() == expected


def test_packed_documents_train_resume_and_evaluate(tmp_path: Path) -> None:
    config = {**EXAMPLES["causal_lm"].config, "packing": "documents"}
    whole = run_trial(tmp_path / "whole", "causal_lm", config)
    stopped = RecordingChannel({2: Answer.STOP})
    run_trial(tmp_path / "cut", "causal_lm", config, channel=stopped)
    rest = run_trial(tmp_path / "cut", "causal_lm", config, attempt=2)
    assert {**stopped.curve, **rest.curve} == whole.curve
    scores = CausalLM().evaluate(
        CausalLMConfig.model_validate(config),
        newest_checkpoint(tmp_path / "cut").folder,
        Split.SELECTION,
        tmp_path / "cache",
    )
    assert scores == {name: whole.curve[6][name] for name in scores}
