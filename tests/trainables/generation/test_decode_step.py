"""Steps of fixed shape: the tokens and numbers of other readings, and what waits for a device."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from trainables.generation.generate import decode, generate
from trainables.generation.text_batches import Reading
from trainables.grpo.answers import Completions, noise, sample

SHAPE = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
}


def llama() -> Any:
    torch.manual_seed(0)
    config: Any = LlamaConfig
    return LlamaForCausalLM(config(**SHAPE)).eval()


MODEL = llama()
TOKENS = st.lists(st.integers(0, 39), min_size=1, max_size=12)


def read_by(reading: Reading, model: Any, **given: Any) -> Completions:
    model.text_reading = reading
    return sample(model, **given)


@settings(max_examples=40, deadline=None)
@given(
    prompts=st.lists(TOKENS, min_size=1, max_size=4),
    samples=st.integers(1, 3),
    most=st.integers(1, 20),
    temperature=st.floats(0.2, 2),
    ends=st.frozensets(st.integers(0, 39), max_size=4),
    seed=st.integers(0, 9),
)
def test_completions_are_those_of_padded_texts_to_the_bit(
    prompts: list[list[int]],
    samples: int,
    most: int,
    temperature: float,
    ends: frozenset[int],
    seed: int,
) -> None:
    numbers = noise(seed, 1, range(len(prompts)), samples, most)
    arguments = {"prompts": prompts, "ends": ends, "temperature": temperature, "numbers": numbers}
    padded, stepped = (read_by(way, MODEL, **arguments) for way in (Reading.PADDED, Reading.STEPS))
    for name, expected in vars(padded).items():
        assert torch.equal(getattr(stepped, name), expected), name


@pytest.mark.parametrize("reading", [Reading.STEPS, Reading.PADDED])
def test_half_of_the_texts_go_on_alone_with_the_same_tokens(reading: Reading) -> None:
    model, prompts = llama(), [[3, 4, 5], [8], [9, 10], [6, 6, 7, 7]]
    given: dict[str, Any] = {"ends": frozenset([1, 2]), "temperature": 1.0}
    numbers = noise(3, 1, range(4), 8, 40)
    sizes = []

    def note(_: Any, args: Any, given: Any) -> None:
        sizes.append(len(given["input_ids"]))

    noted = model.register_forward_pre_hook(note, with_kwargs=True)
    together = read_by(reading, model, prompts=prompts, numbers=numbers, **given)
    noted.remove()
    assert set(sizes) == {4, 32, 16, 8}  # 4 prompts
    for text, tokens in enumerate(together.texts()):
        alone = read_by(
            reading, model, prompts=[prompts[text // 8]], numbers=numbers[text : text + 1], **given
        )
        assert alone.texts() == [tokens]


def test_greedy_tokens_are_those_of_transformers() -> None:
    model, prompts = llama(), [[3, 4, 5, 6, 7], [8], [9, 10, 11]]
    added = generate(model, prompts, frozenset(), 24)
    assert model.text_reading is Reading.STEPS
    for prompt, mine in zip(prompts, added, strict=True):
        ids = torch.tensor([prompt])
        mask = torch.ones_like(ids)
        theirs = model.generate(
            ids, attention_mask=mask, max_new_tokens=24, do_sample=False, eos_token_id=None
        )
        assert theirs[0, len(prompt) :].tolist() == mine


def test_texts_longer_than_a_window_are_read_with_it() -> None:
    torch.manual_seed(0)
    config: Any = MistralConfig
    model: Any = MistralForCausalLM(config(**SHAPE, sliding_window=24)).eval()
    for most in (8, 40):
        prompt = [5, 6, 7]
        (added,) = generate(model, [prompt], frozenset(), most)
        ids = torch.tensor([[*prompt, *added]])
        with torch.no_grad():
            best = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].argmax(-1)
        assert best.tolist() == added
    assert model.text_reading is Reading.STEPS


class Waits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what would wait for a device."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += torch.Tag.data_dependent_output in func.tags
        return func(*args, **(kwargs or {}))


def test_a_device_is_waited_for_every_16_tokens() -> None:
    model = llama()
    generate(model, [[1]], frozenset(), 1)  # finds out how the model is read

    def waits(most: int) -> int:
        with Waits() as found:  # type: ignore[no-untyped-call]
            added = decode(model, [[3, 4], [5]], frozenset([99]), most, _best, samples=4, looks=16)
        assert added.shape == (8, most)
        return int(found.count)

    assert waits(49) - waits(17) == 2


def test_tokens_behind_the_last_end_are_dropped() -> None:
    model = llama()
    (free,) = generate(model, [[3, 4]], frozenset(), 12)
    end = free[5]
    added = decode(model, [[3, 4]], frozenset([end]), 12, _best, looks=16)
    assert added.tolist() == [free[: free.index(end) + 1]]


def _best(scores: torch.Tensor) -> torch.Tensor:
    return scores.argmax(dim=-1)
