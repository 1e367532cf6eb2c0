"""`tune generate` and `tune predict`: the winner, put to use at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuning.cli.options import Soup, StorageDir, Sweep, Trial
from tuning.evaluation.load_model import Picked, cache_of, pick

if TYPE_CHECKING:
    import torch


def generate(
    sweep: Sweep,
    prompt: Annotated[str, typer.Option(help="How the text begins.")],
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Tokens to add (tokens).")] = 64,
    temperature: Annotated[
        float, typer.Option(min=0, help="0: always the likeliest token; 1: as trained.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the sampling.")] = 0,
    trial: Trial = None,
    soup: Soup = None,
    storage: StorageDir = None,
) -> None:
    """Let a language model of the sweep go on with a text.

    Example: tune generate llm --prompt "def main("
    """
    picked = pick(sweep, trial, soup, storage, "generate with")
    typer.echo(prompt + _continued(picked, prompt, max_new_tokens, temperature, seed))


def _continued(picked: Picked, prompt: str, tokens: int, temperature: float, seed: int) -> str:
    import tempfile

    from search_spaces.errors import UserError

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        try:
            picked.trainable.export_hf(picked.config, picked.source, folder, cache_of(picked.paths))
        except NotImplementedError as e:
            raise UserError(f"trainable {picked.spec.trainable}: {e}; see tune predict") from e
        if not (folder / "tokenizer.json").is_file():
            raise UserError(
                f"trainable {picked.spec.trainable}: writes no text, since it has no tokenizer;"
                " see tune predict"
            )
        return _by_transformers(folder, prompt, tokens, temperature, seed)


def _by_transformers(folder: Path, prompt: str, tokens: int, temperature: float, seed: int) -> str:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    hf: Any = logging
    hf.set_verbosity_error()
    hf.disable_progress_bar()
    torch.manual_seed(seed)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    given = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    how = {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
    out = model.generate(**given, max_new_tokens=tokens, **how)
    return str(tokenizer.decode(out[0, given["input_ids"].shape[1] :], skip_special_tokens=True))


def predict(
    sweep: Sweep,
    data: Annotated[
        Path, typer.Option("--input", help="Rows: .npy, .csv (numbers, no header) or .json.")
    ],
    trial: Trial = None,
    soup: Soup = None,
    storage: StorageDir = None,
) -> None:
    """Run a model of the sweep on your rows; prints one line of JSON per row.

    Example: tune predict digits --input images.npy
    """
    import torch

    from search_spaces.errors import UserError

    picked = pick(sweep, trial, soup, storage, "predict with")
    try:
        form = picked.trainable.exportable(picked.config, picked.source, cache_of(picked.paths))
    except NotImplementedError as e:
        raise UserError(f"trainable {picked.spec.trainable}: {e}") from e
    rows = _rows(data, form.examples[0])
    with torch.no_grad():
        for output in form.module(rows):
            named = {"class": int(output.argmax())} if form.classes else {}
            typer.echo(json.dumps({**named, "output": output.tolist()}))


def _rows(file: Path, like: torch.Tensor) -> torch.Tensor:
    """The rows of a file in the type and shape of the model's input.

    Raises:
        UserError: the file cannot be read, or its rows do not fit.
    """
    import numpy as np
    import torch

    from search_spaces.errors import UserError

    readers: dict[str, Callable[[], Any]] = {
        ".npy": lambda: np.load(file, allow_pickle=False),
        ".csv": lambda: np.loadtxt(file, delimiter=",", ndmin=2),
        ".json": lambda: np.asarray(json.loads(file.read_text()), dtype=float),
    }
    if file.suffix not in readers:
        raise UserError(f"--input {file}: reads .npy, .csv or .json")
    try:
        found = readers[file.suffix]()
    except (OSError, ValueError) as e:
        raise UserError(f"--input {file}: cannot be read ({e})") from e
    wants = tuple(like.shape[1:])
    if found.ndim != like.ndim or (like.is_floating_point() and found.shape[1:] != wants):
        has = " x ".join(map(str, found.shape))
        raise UserError(f"--input {file}: must be rows of {' x '.join(map(str, wants))}, is {has}")
    return torch.from_numpy(found).to(like.dtype)
