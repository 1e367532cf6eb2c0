"""`tune generate`: continue a text, or answer a question, with a language model of a sweep."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.errors import UserError
from tuning.cli.damage import AcceptDamage
from tuning.cli.formatting import echo
from tuning.cli.options import Chat, ModelArgument, Soup, StorageDir, Trial, Trust
from tuning.cli.use.model import ModelOptions

if TYPE_CHECKING:
    from tuning.evaluation.text_model import TextModel


def generate(
    sweep: ModelArgument,
    prompt: Annotated[
        str | None, typer.Option(help="Beginning of the text; with --chat, a question.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="File with a prompt per line; prints JSON lines.")
    ] = None,
    chat: Chat = False,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, help="Largest number of tokens to add.")
    ] = 64,
    temperature: Annotated[
        float,
        typer.Option(
            min=0, help="0: always the most likely token; 1: the distribution as trained."
        ),
    ] = 0.0,
    top_p: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Nucleus sampling: among the likeliest tokens of this probability."
        ),
    ] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Seed of the sampling; default: 0.")] = None,
    trial: Trial = None,
    soup: Soup = None,
    trust: Trust = False,
    accept_damage: AcceptDamage = False,
    storage: StorageDir = None,
) -> None:
    """Continue a text, or answer a question, with a language model.

    Example: tune generate sft --chat --prompt "What does json.dumps do?"
    """
    texts = _prompts(prompt, prompts)
    for option, given in (("--top-p", top_p < 1), ("--seed", seed is not None)):
        if given and temperature == 0:
            raise UserError(f"{option}: has no effect with temperature 0; add --temperature 1")
    model = _load(sweep, ModelOptions(trial, soup, trust, accept_damage, storage))
    from trainables.generation.generate import Sampling

    sampling = Sampling(temperature, top_p, seed or 0)
    ids = [model.encode(text, chat=chat) for text in texts]
    if prompts is None:
        echo("" if chat else texts[0], nl=False)
        for _ in model.write(ids, max_new_tokens, sampling, lambda text: echo(text, nl=False)):
            echo("")
        return
    for text, added in zip(texts, model.write(ids, max_new_tokens, sampling), strict=True):
        echo(json.dumps({"prompt": text, "text": added}, ensure_ascii=False))


def _prompts(prompt: str | None, file: Path | None) -> list[str]:
    if (prompt is None) == (file is None):
        raise UserError("give either --prompt TEXT, or --prompts FILE with a prompt per line")
    if file is None:
        return [prompt or ""]
    try:
        lines = file.read_text(encoding="utf-8").split("\n")  # splitlines takes others
    except (OSError, UnicodeDecodeError) as e:
        raise UserError(f"--prompts {file}: cannot be read ({e})") from e
    if not (found := [line for line in lines if line.strip()]):
        raise UserError(f"--prompts {file}: has no prompt")
    return found


def _load(sweep: str, options: ModelOptions) -> TextModel:
    from tuning.evaluation.text_model import load_text_model

    folder = Path(sweep)
    if (folder / "config.json").is_file():
        if options.trial or options.soup:
            raise UserError("--trial and --soup: have no effect with the folder of an export")
        return load_text_model(folder, sweep)
    picked = options.select(sweep, "generate with")
    trainable, cache = picked.trainable, picked.paths.storage.cache
    with tempfile.TemporaryDirectory() as scratch:
        try:
            trainable.export_hf(picked.config, picked.source, Path(scratch), cache)
        except NotImplementedError as e:
            raise UserError(f"trainable {picked.spec.trainable}: {e}; see tune predict") from e
        return load_text_model(Path(scratch), f"trainable {picked.spec.trainable}")
