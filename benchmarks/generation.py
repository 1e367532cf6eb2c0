"""Generation by this platform and by `transformers.generate`: equal tokens, and seconds.

    python -m benchmarks.generation [--times 9]

On the CPU with one thread: the rollouts of `search_spaces/grpo.yaml`, and texts one at a time. On a
GPU, if there is one, those of `search_spaces/pipelines/stories_gpu.yaml`, too. `padded` is our way
without steps that are recorded as CUDA graphs. Weights are random, and texts do not end but where a
share of the vocabulary ends them: then half of them go on alone, and so on. Greedy
tokens are compared in float32. Seconds are medians, on the CPU those of its time; runs take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from trainables.causal_lm.model.objective import masked_attention, move_model
from trainables.generation.generate import generate
from trainables.generation.text_batches import Reading
from trainables.grpo.answers import noise, sample
from trainables.training.precision import autocast


@dataclass(frozen=True)
class Case:
    """What is generated: `samples` answers of `tokens` to each of some questions."""

    name: str
    device: str
    questions: int
    samples: int
    prompt: int
    tokens: int
    hidden_size: int = 64
    layers: int = 2
    heads: int = 4
    intermediate_size: int = 256
    vocabulary: int = 270
    ends: int = 0
    """Tokens that end a text; drawn at random."""


STORIES = (512, 8, 8, 1024, 32000)
CASES = [
    Case("grpo.yaml", "cpu", 16, 8, 20, 5),
    Case("grpo.yaml, groups of 16", "cpu", 16, 16, 20, 5),
    Case("grpo.yaml, answers of about 32", "cpu", 16, 8, 20, 128, ends=8),
    Case("one text", "cpu", 1, 1, 20, 64),
    Case("stories_gpu.yaml", "cuda", 16, 16, 30, 61, *STORIES),
    Case("stories_gpu.yaml, about 61", "cuda", 16, 16, 30, 244, *STORIES, ends=500),
    Case("stories_gpu.yaml, one text", "cuda", 1, 1, 30, 61, *STORIES),
]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generation", description=__doc__)
    parser.add_argument("--times", type=int, default=9)
    times = parser.parse_args().times
    torch.set_num_threads(1)
    cuda = torch.cuda.is_available()
    print("| | greedy tokens equal | s | padded, s | transformers, s | transformers / ours |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for case in CASES:
        if cuda or case.device == "cpu":
            print(measured(case, times), flush=True)


@torch.no_grad()
def measured(case: Case, times: int) -> str:
    """A row of the table."""
    model, prompts = model_of(case), prompts_of(case)
    width = max(map(len, prompts))
    ids = [[0] * (width - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    given = {
        "inputs": torch.tensor(ids, device=case.device),
        "attention_mask": torch.tensor(mask, device=case.device),
        "max_new_tokens": case.tokens,
        "pad_token_id": 0,
        "eos_token_id": None,
    }
    ends = np.random.default_rng(1).choice(case.vocabulary - 1, case.ends, replace=False) + 1
    stop = {"eos_token_id": ends.tolist() or None}
    numbers = noise(0, 1, range(case.questions), case.samples, case.tokens)
    device = torch.device(case.device)

    def ours(reading: Reading) -> None:
        model.text_reading = reading
        sample(model, prompts, frozenset(ends.tolist()), 1.0, numbers)

    def theirs() -> None:
        more = {"top_k": 0, "num_return_sequences": case.samples, **stop}
        model.generate(**{**given, **more}, do_sample=True)

    runs: dict[str, Callable[[], None]] = {
        "ours": lambda: ours(Reading.STEPS),
        "padded": lambda: ours(Reading.PADDED),
        "theirs": theirs,
    }
    with masked_attention(model):
        mine = np.array(generate(model, prompts, frozenset(), case.tokens))
        equal = (mine == model.generate(**given, do_sample=False)[:, width:].cpu().numpy()).mean()
        with autocast("auto", device):
            found = clocked(runs, device, times)
    row = [f"{equal:.1%}", *(f"{found[name]:.4f}" for name in runs)]
    return f"| {case.name} | {' | '.join(row)} | {found['theirs'] / found['ours']:.2f} |"


def clocked(
    runs: dict[str, Callable[[], None]], device: torch.device, times: int
) -> dict[str, float]:
    """Median seconds of each, after a first run that does not count."""
    now = time.perf_counter if device.type == "cuda" else time.process_time
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(times + 1):
        for name, run in runs.items():
            began = now()
            run()
            if device.type == "cuda":
                torch.cuda.synchronize()
            found[name].append(now() - began)
    return {name: statistics.median(each[1:]) for name, each in found.items()}


def model_of(case: Case) -> Any:
    """A model with random weights that are not small."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config: Any = LlamaConfig
    shape = config(
        vocab_size=case.vocabulary,
        hidden_size=case.hidden_size,
        intermediate_size=case.intermediate_size,
        num_hidden_layers=case.layers,
        num_attention_heads=case.heads,
        initializer_range=case.hidden_size**-0.5,
        tie_word_embeddings=True,
    )
    return move_model(LlamaForCausalLM(shape), torch.device(case.device)).eval()


def prompts_of(case: Case) -> list[list[int]]:
    """Token ids of questions of about `case.prompt` tokens."""
    draw = np.random.default_rng(0)
    sizes = draw.integers(case.prompt - 4, case.prompt + 5, case.questions)
    return [draw.integers(1, case.vocabulary, size).tolist() for size in sizes]


if __name__ == "__main__":
    main()
