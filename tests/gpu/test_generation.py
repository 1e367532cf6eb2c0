"""Generation by steps that are recorded as CUDA graphs, beside padded texts."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from trainables.generation.generate import generate
from trainables.generation.text_batches import Reading
from trainables.grpo.answers import Completions, noise, sample
from trainables.training.precision import DtypeName, autocast

DEVICE = torch.device("cuda", 0)
PROMPTS = [[3, 4, 5], [6] * 40, [7]]


def llama() -> Any:
    torch.manual_seed(0)
    config: Any = LlamaConfig
    shape = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
    model: Any = LlamaForCausalLM(
        config(vocab_size=500, intermediate_size=512, initializer_range=0.06, **shape)
    )
    return model.to(DEVICE).eval()


def rollout(model: Any, reading: Reading, dtype: DtypeName = "float32") -> Completions:
    model.text_reading = reading
    with autocast(dtype, DEVICE):
        return sample(model, PROMPTS, frozenset([9]), 1.0, noise(0, 1, range(3), 4, 70))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_recorded_steps_give_the_log_probabilities_of_padded_texts(dtype: DtypeName) -> None:
    model = llama()
    for _ in range(2):
        padded, steps = (rollout(model, way, dtype) for way in (Reading.PADDED, Reading.STEPS))
        width = min(padded.ids.shape[1], steps.ids.shape[1])
        same = (padded.ids[:, :width] == steps.ids[:, :width]).long().cumprod(dim=1).bool()
        same &= padded.counted[:, :width]
        assert same.float().sum() > (0.99 if dtype == "float32" else 0.5) * padded.counted.sum()
        apart = (padded.log_probs[:, :width] - steps.log_probs[:, :width])[same].abs().max()
        assert float(apart) < (1e-3 if dtype == "float32" else 0.3)
        with torch.no_grad():  # as an optimizer: the graph must see it
            for weight in model.parameters():
                weight.mul_(1.1)


def test_models_are_checked_recorded_and_freed_with_their_graphs() -> None:
    before = torch.cuda.memory_allocated()
    model = llama()
    first = generate(model, PROMPTS, frozenset(), 40)
    assert model.text_reading is Reading.STEPS
    assert generate(model, PROMPTS, frozenset(), 40) == first
    loss = model.train()(input_ids=torch.tensor([PROMPTS[1]], device=DEVICE)).logits.sum()
    loss.backward()
    assert all(weight.grad is not None for weight in model.parameters())
    del model, loss
    gc.collect()
    assert torch.cuda.memory_allocated() - before < 2**20


def test_a_model_whose_steps_wait_for_the_device_is_read_otherwise() -> None:
    from tests.cases.tiny_models import tiny_model

    model = tiny_model("mixtral").to(DEVICE)
    generate(model, PROMPTS, frozenset(), 3)
    assert model.text_reading is not Reading.STEPS
    assert 0 < int(torch.nn.functional.dropout(torch.ones(99, device=DEVICE)).count_nonzero()) < 99
