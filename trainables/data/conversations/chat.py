"""Conversations as text, by the chat template of the tokenizer, and as token ids."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models

from trainables.client import Rows
from trainables.data.bad_rows import BadRow, OnLong
from trainables.data.conversations.answer_spans import answer_spans
from trainables.data.conversations.check import long_row
from trainables.data.conversations.rows import Conversation, Message
from trainables.data.conversations.template import ChatTokenizer, Template, TemplateError
from trainables.data.tokenizer import ENCODE_AT_ONCE, END, Encoder, encoder_of, load_pretrained
from trainables.data.word_encoder import Flags, Span
from trainables.generation.text_ends import turn_end

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
    counted: Flags
    prompt: list[int]


class Chat:
    """Renders conversations by the chat template of a tokenizer of `transformers`."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = ChatTokenizer(tokenizer)
        self._end = turn_end(tokenizer)

    @property
    def template(self) -> str:
        """The chat template in use."""
        return str(self._tokenizer.tokenizer.chat_template)

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
            spans = answer_spans(template)
            last = max(i for i, m in enumerate(template.messages) if m["role"] == "assistant")
            prompt = template.prompt(last)
        except TemplateError as e:
            return str(e)
        return Rendered(template.text, spans, prompt, self._end)


def open_chat(model: str | None) -> Chat:
    """The chat format of a pretrained model; None: of a tokenizer that is trained from scratch."""
    import transformers

    fast: Any = transformers.PreTrainedTokenizerFast
    if model is None:
        tokenizer = fast(tokenizer_object=Tokenizer(models.BPE()), eos_token=END)
    else:
        tokenizer = load_pretrained(model)
    begins = model is not None and encoder_of(tokenizer, model).begin is not None
    tokenizer.chat_template = tokenizer.chat_template or "{{ bos_token }}" * begins + TEMPLATE
    return Chat(tokenizer)


def encode(
    talks: Iterable[tuple[Conversation, Rendered]],
    encoder: Encoder,
    most: int,
    on_long: OnLong | None = None,
    *,
    prompts: bool = True,
) -> Iterator[tuple[Conversation, Tokens] | BadRow]:
    """Token ids of conversations, with `prompts` or none; those of more than `most` tokens are bad
    rows, or are cut."""
    cut = 0
    for talk, tokens in _encode(talks, encoder, prompts=prompts):
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


def _encode(
    talks: Iterable[tuple[Conversation, Rendered]], encoder: Encoder, *, prompts: bool
) -> Iterator[tuple[Conversation, Tokens]]:
    """A text is encoded at once, as `transformers` does: its parts alone have other tokens."""
    left = iter(talks)
    while batch := list(itertools.islice(left, ENCODE_AT_ONCE)):
        found = _mark(encoder, [r.text for _, r in batch], [r.answers for _, r in batch])
        asked = [r.prompt for _, r in batch if prompts]
        given = _mark(encoder, asked, [[]] * len(asked))
        end = batch[0][1].end  # of the template
        ends = {encoder.end, encoder.tokenizer.token_to_id(end or "")}
        answers = itertools.zip_longest(batch, found, (ids.tolist() for ids, _ in given))
        for (talk, rendered), (ids, counted), prompt in answers:
            if rendered.answers and rendered.answers[-1][1] == len(rendered.text):
                ids, counted = _end_answer(ids, counted, encoder.end, ends)
            yield talk, Tokens(ids, counted, prompt or [])


def _mark(encoder: Encoder, texts: list[str], spans: list[list[Span]]) -> list[tuple[Rows, Flags]]:
    """Token ids of texts, and which are of their spans."""
    words, found = encoder.words, dict[int, tuple[Rows, Flags]]()
    if words:
        known = enumerate(words.encode(texts, spans))
        found = {i: tokens for i, tokens in known if tokens is not None}
        first = encoder.tokenizer.encode(texts[0], add_special_tokens=False).ids if texts else []
        if 0 in found and found[0][0].tolist() != first:  # a sample: it must never happen
            raise RuntimeError(f"words have other tokens than `tokenizers` gives {texts[0]!r}")
    left = [i for i in range(len(texts)) if i not in found]
    others = encoder.tokenizer.encode_batch([texts[i] for i in left], add_special_tokens=False)
    for i, each in zip(left, others, strict=True):
        found[i] = np.array(each.ids, dtype=np.int64), _mask_answers(each, spans[i])
    return [found[i] for i in range(len(texts))]


def _end_answer(ids: Rows, counted: Flags, end: int, ends: set[int | None]) -> tuple[Rows, Flags]:
    """A last answer without one of the tokens that end it gets the end of a text."""
    if counted[-1:].tolist() == [True] and not ends.isdisjoint(ids[-1:].tolist()):
        return ids, counted
    last = len(ids) - int(np.argmin(counted[::-1])) if not counted.all() else 0
    if ends.isdisjoint(ids[last:].tolist()):
        return np.append(ids, end), np.append(counted, True)
    return ids, counted


def _mask_answers(tokens: Any, answers: list[Span]) -> Flags:
    """Whether each token lies in an answer, also in part."""
    counted = np.zeros(len(tokens), dtype=np.bool_)
    for begin, end in answers:
        first, last = tokens.char_to_token(begin), tokens.char_to_token(end)
        if first is None or (last is None and end < tokens.offsets[-1][1]):  # it is of no token
            places = np.array(tokens.offsets, dtype=np.int64).reshape(-1, 2)
            inside = np.flatnonzero((places[:, 1] > begin) & (places[:, 0] < end))
            first, last = (inside[0], inside[-1]) if len(inside) else (0, -1)
        else:
            last = len(tokens) - 1 if last is None else last
            while last >= first and tokens.token_to_chars(last)[0] >= end:
                last -= 1
            while last + 1 < len(tokens) and tokens.token_to_chars(last + 1)[0] < end:
                last += 1
        counted[first : last + 1] = True
    return counted
