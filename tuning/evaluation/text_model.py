"""A language model in the form of `transformers`, which writes text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.export.quiet import quiet_transformers
from search_spaces.errors import UserError

AT_ONCE = 8
"""Prompts that are continued together: fixed, so that a file's results depend on its lines only."""


@dataclass(frozen=True)
class TextModel:
    """A model with its tokenizer.

    Attributes:
        name: for messages.
        model, tokenizer: of `transformers`.
    """

    name: str
    model: Any
    tokenizer: Any

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end a text."""
        from trainables.generation.text_ends import text_ends

        return text_ends(self.model, self.tokenizer)

    def encode(self, prompt: str, *, chat: bool) -> list[int]:
        """Token ids of a text, or of a question in the form of the tokenizer's chat template.

        Raises:
            UserError: there is no such template, or the text is empty, too long, or not Unicode.
        """
        from trainables.data.tokenizer import encoder_of

        if any("\ud800" <= character <= "\udfff" for character in prompt):
            raise UserError(f"--prompt: is not text in UTF-8, got {prompt[:60]!a}")
        if chat and not self.tokenizer.chat_template:
            raise UserError(f"--chat: the tokenizer of {self.name} has no chat template; leave out")
        asked = [{"role": "user", "content": prompt}]
        text = (
            self.tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
            if chat
            else prompt
        )
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if not ids:
            raise UserError("--prompt: is empty")
        begin = encoder_of(self.tokenizer, self.name).begin
        if begin not in (None, ids[0]) and not chat:  # as in its training; a template has it itself
            ids = [begin, *ids]
        if len(ids) >= self.positions:
            raise UserError(
                f"--prompt: has {len(ids)} tokens, and {self.name} {self.positions} positions"
            )
        return ids

    @property
    def positions(self) -> int:
        """Largest number of tokens of a text."""
        return int(getattr(self.model.config, "max_position_embeddings", None) or 1 << 30)

    def write(
        self,
        prompts: list[list[int]],
        most: int,
        sampling: Any,
        on_text: Callable[[str], None] | None = None,
    ) -> Iterator[str]:
        """Continue prompts, some at once.

        Args:
            prompts: token ids, of `encode`.
            most: largest number of tokens to add to each.
            sampling: how tokens are chosen, `trainables.generation.generate.Sampling`.
            on_text: called with each piece of the first prompt's text as soon as it is complete,
                which waits for the device at each token.
        """
        from trainables.generation.generate import generate

        for start in range(0, len(prompts), AT_ONCE):
            part = prompts[start : start + AT_ONCE]
            add = _Stream(self, on_text).add if on_text is not None else None
            fit = max(map(len, part)) + most <= self.positions  # else a long one would cut others
            for group in [part] if fit else [[prompt] for prompt in part]:
                room = min(most, self.positions - max(map(len, group)))
                for tokens in generate(self.model, group, self.ends, room, sampling, add):
                    yield self.decode(tokens)

    def decode(self, tokens: list[int]) -> str:
        """The text of tokens."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))


class _Stream:
    """Hands on the text of the first prompt, without characters of which a byte is missing."""

    def __init__(self, model: TextModel, on_text: Callable[[str], None]) -> None:
        self._model, self._on_text = model, on_text
        self._tokens: list[int] = []
        self._shown = 0

    def add(self, tokens: list[int]) -> None:
        """Take the next token of each prompt."""
        self._tokens.append(tokens[0])
        text = self._model.decode(self._tokens)
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):
            self._on_text(text[self._shown :])
            self._shown = len(text)


def load_text_model(folder: Path, name: str) -> TextModel:
    """The model of a folder; no code of the folder is run.

    Raises:
        UserError: the folder has no tokenizer, or no model that `transformers` loads.
    """
    import torch

    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not (folder / "tokenizer.json").is_file():
        raise UserError(f"{name}: writes no text, because it has no tokenizer; see tune predict")
    auto: Any = AutoModelForCausalLM
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with quiet_transformers():
        try:
            model = auto.from_pretrained(
                folder,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
            )
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except (OSError, ValueError) as e:
            line = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
            raise UserError(f"{folder}: no language model that can be loaded ({line})") from e
    return TextModel(name, model.to(device).eval(), tokenizer)
