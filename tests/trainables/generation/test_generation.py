from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from trainables.generation.generate import Sampling, generate

PROMPTS = [[3, 4, 5, 6, 7], [8], [9, 10, 11]]
NONE: frozenset[int] = frozenset()


def llama() -> Any:
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config: Any = LlamaConfig
    return LlamaForCausalLM(
        config(vocab_size=50, intermediate_size=32, initializer_range=0.5, **shape)
    ).eval()


def gpt2() -> Any:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=50,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=32,
        initializer_range=0.5,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config).eval()


@pytest.mark.parametrize("make", [llama, gpt2])
def test_greedy_tokens_are_those_of_each_prompt_alone_without_a_cache(make: Any) -> None:
    model = make()
    together = generate(model, PROMPTS, NONE, 8)
    for prompt, added in zip(PROMPTS, together, strict=True):
        ids = torch.tensor([prompt])
        for _ in range(8):
            with torch.no_grad():
                best = model(input_ids=ids).logits[:, -1].argmax(dim=-1)
            ids = torch.cat([ids, best[:, None]], dim=1)
        assert ids[0, len(prompt) :].tolist() == added


def test_an_end_token_ends_a_text_and_is_left_out() -> None:
    model = llama()
    (free,) = generate(model, PROMPTS[:1], NONE, 8)
    end = free[3]
    (cut,) = generate(model, PROMPTS[:1], frozenset([end]), 8)
    assert cut == free[: free.index(end)]


def test_sampling_follows_its_seed_temperature_and_top_p() -> None:
    model = llama()

    def sample(**how: Any) -> list[list[int]]:
        return generate(model, PROMPTS, NONE, 12, Sampling(**how))

    greedy = sample()
    assert sample(temperature=1.0, seed=1) == sample(temperature=1.0, seed=1)
    assert sample(temperature=1.0, seed=1) != sample(temperature=1.0, seed=2)
    assert sample(temperature=1.0, seed=1) != greedy
    assert sample(temperature=1.0, top_p=0.0, seed=1) == greedy
    assert sample(temperature=1e-6, seed=1) == greedy


def test_tokens_are_handed_on_as_they_are_chosen() -> None:
    seen: list[list[int]] = []
    added = generate(llama(), PROMPTS, NONE, 4, on_tokens=seen.append)
    assert [list(tokens) for tokens in zip(*seen, strict=True)] == added
