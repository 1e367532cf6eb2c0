"""Conversations as text, by the chat template of the tokenizer, and as token ids."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, models

from trainables.client import Rows
from trainables.common.text_ends import turn_end
from trainables.data.bad_rows import BadRow, OnLong
from trainables.data.conversations.answer_spans import Span, answer_spans
from trainables.data.conversations.check import long_row
from trainables.data.conversations.rows import Conversation, Message
from trainables.data.conversations.template import Template, TemplateError
from trainables.data.tokenizer import END, Encoder, load_pretrained

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\\n' + message['content'] }}"
    "{{ eos_token if message['role'] == 'assistant' else '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
"""Of tokenizers that have none: each message behind a line with its role."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rendered:
    """A conversation as text.

    Attributes:
        text: all of it.
        answers: the parts that the model learns to write, in order.
        prompt: what the model is given when it writes the last answer.
        end: the token that closes an answer; None: the template has none.
    """

    text: str
    answers: list[Span]
    prompt: str
    end: str | None


@dataclass(frozen=True)
class Tokens:
    """A conversation.

    Attributes:
        ids: int64 [tokens].
        counted: bool [tokens], whether the token belongs to an answer.
        prompt: token ids of `Rendered.prompt`.
    """

    ids: Rows
    counted: npt.NDArray[np.bool_]
    prompt: list[int]


class Chat:
    """Renders conversations by the chat template of a tokenizer of `transformers`."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._end = turn_end(tokenizer)

    @property
    def template(self) -> str:
        """The chat template in use."""
        return str(self._tokenizer.chat_template)

    def render(
        self, messages: Sequence[Message], tools: list[dict[str, Any]] | None = None
    ) -> Rendered | str:
        """A conversation as text, or why its template cannot render it.

        Args:
            messages: with `weight: 0` where an answer does not count.
            tools: that the template describes.
        """
        try:
            template = Template.of(self._tokenizer, messages, tools)
            text = template.render(template.messages)
            spans = answer_spans(template, text)
            last = max(i for i, m in enumerate(template.messages) if m["role"] == "assistant")
            prompt = template.prompt(last)
        except TemplateError as e:
            return str(e)
        return Rendered(text, spans, prompt, self._end)


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


def encode(
    talks: Iterable[tuple[Conversation, Rendered]],
    encoder: Encoder,
    most: int,
    on_long: OnLong | None = None,
) -> Iterator[tuple[Conversation, Tokens] | BadRow]:
    """Token ids of conversations; those of more than `most` tokens are bad rows, or are cut."""
    cut = 0
    for talk, rendered in talks:
        tokens = _encode(rendered, encoder)
        if (count := len(tokens.ids)) <= most:
            yield talk, tokens
        elif on_long != "truncate":
            yield long_row(talk, str(count), most, on_long)
        elif tokens.counted[1:most].any():
            cut += 1
            yield talk, Tokens(tokens.ids[:most], tokens.counted[:most], tokens.prompt)
        else:
            yield BadRow(f"{talk.place}: no answer is in its first {most} tokens", "skip")
    if cut:
        log.warning("data: %d rows are cut behind their first %d tokens", cut, most)


def _encode(rendered: Rendered, encoder: Encoder) -> Tokens:
    """The text is encoded at once, as `transformers` does: its parts alone have other tokens.

    A last answer without a token that ends it gets the end of a text.
    """
    found = encoder.tokenizer.encode(rendered.text, add_special_tokens=False)
    ids, counted = list(found.ids), _mask_answers(found.offsets, rendered.answers)
    ends = {encoder.end, encoder.tokenizer.token_to_id(rendered.end or "")}
    last = len(ids) - int(np.argmin(counted[::-1])) if not counted.all() else 0
    is_answer = rendered.answers[-1:] and rendered.answers[-1][1] == len(rendered.text)
    if is_answer and ends.isdisjoint(ids[last:]):
        ids.append(encoder.end)
        counted = np.append(counted, True)
    prompt = encoder.tokenizer.encode(rendered.prompt, add_special_tokens=False).ids
    return Tokens(np.array(ids, dtype=np.int64), counted, list(prompt))


def _mask_answers(offsets: list[Span], answers: list[Span]) -> npt.NDArray[np.bool_]:
    """Whether each token lies in an answer, also in part; offsets are of characters."""
    places = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    counted = np.zeros(len(places), dtype=np.bool_)
    for begin, end in answers:
        inside = np.flatnonzero((places[:, 1] > begin) & (places[:, 0] < end))
        if len(inside):
            counted[inside[0] : inside[-1] + 1] = True
    return counted
