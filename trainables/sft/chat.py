"""Conversations as token ids, by the chat template of the tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models

from trainables.causal_lm.data.tokenizer import END, Encoder, load_pretrained, train_bpe
from trainables.client import Rows
from trainables.sft.rows import BadRow, Conversation, Message, no_room

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\\n' + message['content'] }}"
    "{{ eos_token if message['role'] == 'assistant' else '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
"""Of tokenizers that have none: each message behind a line with its role."""
_NO_PREFIX = "the tokenizer's chat template does not put answers behind their prompts"


@dataclass(frozen=True)
class Segment:
    """A part of a rendered conversation; the model learns to write the answers only."""

    text: str
    is_answer: bool


@dataclass(frozen=True)
class Tokens:
    """A conversation.

    Attributes:
        ids: int64 [tokens].
        counted: bool [tokens], whether the token belongs to an answer.
        prompt: number of tokens before the last answer.
    """

    ids: Rows
    counted: Rows
    prompt: int


@dataclass(frozen=True)
class Chat:
    """Renders conversations; `template` is the tokenizer's own, or `TEMPLATE`."""

    tokenizer: Any

    @property
    def template(self) -> str:
        """The chat template in use."""
        return str(self.tokenizer.chat_template)

    def segments(self, messages: Sequence[Message]) -> list[Segment] | str:
        """The text of a conversation in parts, or why it cannot be cut in parts.

        Prompts and answers are rendered as they are when the model answers.
        """
        parts: list[Segment] = []
        done = ""
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            prompt = self._render(messages[:i], add_generation_prompt=True)
            whole = self._render(messages[: i + 1], add_generation_prompt=False)
            if not (prompt.startswith(done) and whole.startswith(prompt)):
                return _NO_PREFIX
            parts.append(Segment(prompt[len(done) :], is_answer=False))
            parts.append(Segment(whole[len(prompt) :], is_answer=True))
            done = whole
        return parts

    def _render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=add_generation_prompt
            )
        )


def open_chat(model: str | None) -> Chat:
    """The chat format of a pretrained model; None: of a tokenizer that is trained from scratch."""
    import transformers

    fast: Any = transformers.PreTrainedTokenizerFast
    if model is None:
        tokenizer = fast(tokenizer_object=Tokenizer(models.BPE()), eos_token=END)
    else:
        tokenizer = load_pretrained(model)
    tokenizer.chat_template = tokenizer.chat_template or TEMPLATE
    return Chat(tokenizer)


def train_tokenizer(talks: Iterable[list[Segment]], vocab_size: int) -> Encoder:
    """A byte-level BPE of rendered conversations."""
    texts = ("".join(s.text for s in segments).replace(END, "") for segments in talks)
    return train_bpe(texts, vocab_size)


def encode(
    talks: Sequence[tuple[Conversation, list[Segment]]], encoder: Encoder, most: int
) -> Iterator[tuple[Conversation, Tokens] | BadRow]:
    """Token ids of conversations; those of more than `most` tokens are bad rows."""
    for talk, segments in talks:
        found = [encoder.tokenizer.encode(s.text, add_special_tokens=False).ids for s in segments]
        for ids, segment in zip(found, segments, strict=True):
            if segment.is_answer and encoder.end not in ids:
                ids.append(encoder.end)
        counts = [np.full(len(ids), s.is_answer) for ids, s in zip(found, segments, strict=True)]
        every = np.array([token for part in found for token in part], dtype=np.int64)
        if len(every) > most:
            yield BadRow(f"{talk.place}: {no_room(str(len(every)), most)}")
        else:
            yield talk, Tokens(every, np.concatenate(counts), len(every) - len(found[-1]))
