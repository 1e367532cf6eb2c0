"""`tune generate`: continue a text with a language model of a sweep."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search_spaces.errors import UserError
from tuning.cli.damage import AcceptDamage, intact
from tuning.cli.formatting import echo
from tuning.cli.options import Soup, StorageDir, Sweep, Trial, Trust, trusted_sweep

if TYPE_CHECKING:
    from tuning.evaluation.load_model import SelectedModel


def generate(
    sweep: Sweep,
    prompt: Annotated[str, typer.Option(help="Beginning of the text.")],
    max_new_tokens: Annotated[
        int, typer.Option(min=1, help="Largest number of tokens to add.")
    ] = 64,
    temperature: Annotated[
        float,
        typer.Option(
            min=0, help="0: always the most likely token; 1: the distribution as trained."
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0,
    trial: Trial = None,
    soup: Soup = None,
    trust: Trust = False,
    accept_damage: AcceptDamage = False,
    storage: StorageDir = None,
) -> None:
    """Continue a text with a language model of the sweep.

    Example: tune generate llm --prompt "def main("
    """
    from tuning.evaluation.load_model import select_model

    paths = intact(trusted_sweep(sweep, storage, trust), accept_damage)
    picked = select_model(paths, trial, soup, "generate with")
    echo(prompt + _continue(picked, prompt, max_new_tokens, temperature, seed))


def _continue(
    picked: SelectedModel, prompt: str, tokens: int, temperature: float, seed: int
) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        try:
            cache = picked.paths.storage.cache
            picked.trainable.export_hf(picked.config, picked.source, folder, cache)
        except NotImplementedError as e:
            raise UserError(f"trainable {picked.spec.trainable}: {e}; see tune predict") from e
        if not (folder / "tokenizer.json").is_file():
            raise UserError(
                f"trainable {picked.spec.trainable}: writes no text, because it has no tokenizer;"
                " see tune predict"
            )
        return _generate(folder, prompt, tokens, temperature, seed)


def _generate(folder: Path, prompt: str, tokens: int, temperature: float, seed: int) -> str:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    hf: Any = logging
    hf.set_verbosity_error()
    hf.disable_progress_bar()
    torch.manual_seed(seed)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens_in = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    greedy = {"do_sample": False}
    sampling = {"do_sample": True, "temperature": temperature} if temperature else greedy
    out = model.generate(**tokens_in, max_new_tokens=tokens, **sampling)
    added = out[0, tokens_in["input_ids"].shape[1] :]
    return str(tokenizer.decode(added, skip_special_tokens=True))
