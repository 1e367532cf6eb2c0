"""The tokens with which a model ends a text: the only place that knows them."""

from __future__ import annotations

from typing import Any

MARK = "\ue000"
"""A character of private use: it stands for a content in a rendered conversation."""


def text_ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """All tokens that end a text: those of the model, of its tokenizer and of its chat template.

    Args:
        model: of `transformers`; its `generation_config` may name several.
        tokenizer: of `transformers`.
    """
    found = [*_declared(model), tokenizer.eos_token_id]
    if (end := turn_end(tokenizer)) is not None:
        found.append(tokenizer.convert_tokens_to_ids(end))
    return frozenset(int(token) for token in found if token is not None)


def declare_ends(model: Any, tokenizer: Any) -> None:
    """Add the ends to the model's `generation_config`, so that others stop at them, too."""
    declared = _declared(model)
    new = sorted(text_ends(model, tokenizer) - set(declared))
    if new:
        model.generation_config.eos_token_id = [*declared, *new]


def turn_end(tokenizer: Any) -> str | None:
    """The token that closes an answer in the tokenizer's chat template; None: there is none."""
    if not tokenizer.chat_template:
        return None
    talk = [{"role": "user", "content": "."}, {"role": "assistant", "content": MARK}]
    try:
        text = str(tokenizer.apply_chat_template(talk, tokenize=False))
    except Exception:  # noqa: BLE001  # a template is a program; its error is shown for a row
        return None
    behind = text.rpartition(MARK)[2]
    places = {token: behind.find(token) for token in tokenizer.get_added_vocab()}
    return min((t for t, at in places.items() if at >= 0), key=places.__getitem__, default=None)


def _declared(model: Any) -> list[int]:
    told = model.generation_config.eos_token_id
    if told is None:
        return []
    return list(told) if isinstance(told, list | tuple) else [int(told)]
