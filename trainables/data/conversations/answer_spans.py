"""Where the answers are in a rendered conversation."""

from __future__ import annotations

from collections.abc import Iterator

from trainables.data.conversations.rows import Message
from trainables.data.conversations.template import Template, TemplateError, calls_in
from trainables.data.word_encoder import Span
from trainables.generation.text_ends import MARK


def answer_spans(template: Template) -> list[Span]:
    """The answers that count, with what closes them and without what the model is given.

    Where the template marks what is generated, that is counted, as by `transformers`. Else an
    answer is what stands behind its prompt, if the conversation up to there is rendered as it is
    within the whole. Templates that change earlier turns, as those that leave out thoughts, are
    rendered with another content in the answer's place: what stays the same is around it.

    Args:
        template: with the conversation.

    Raises:
        TemplateError: there is an answer that is not found.
    """
    marked = template.marks
    if marked == []:
        raise TemplateError("the chat template marks nothing that the model writes")
    if marked is not None and all(template.weights):
        return marked
    each = list(_find_answers(template, template.text))
    if marked is None:
        return [span for weight, span in each if weight]
    left_out = [span for weight, span in each if not weight]
    return [(b, e) for b, e in marked if not any(b < end and begin < e for begin, end in left_out)]


def _find_answers(template: Template, text: str) -> Iterator[tuple[int, Span]]:
    """Weight and place of each answer."""
    done = 0
    for i, message in enumerate(template.messages):
        if message["role"] == "assistant":
            span = _span_behind_prompt(template, text, i, done) or _locate(template, text, i, done)
            yield template.weights[i], span
            done = span[1]


def _span_behind_prompt(template: Template, text: str, i: int, done: int) -> Span | None:
    """The span of message `i` if the text up to its end does not depend on what follows."""
    if i == 0:
        return None
    prompt, whole = template.prompt(i), text
    if i + 1 < len(template.messages):
        whole = template.render(template.messages[: i + 1])
    found = done <= len(prompt) < len(whole) and text.startswith(prompt)
    return (len(prompt), len(whole)) if found and text.startswith(whole) else None


def _locate(template: Template, text: str, i: int, done: int) -> Span:
    """The span of message `i` by what is around another content in its place."""
    messages = [*template.messages]
    messages[i] = {**messages[i], "content": MARK}
    shown, alone = template.render(messages), template.render(messages[: i + 1])
    if shown.count(MARK) != 1 or alone.count(MARK) != 1:
        if template.messages[i].get("tool_calls"):
            return _locate_calls(template, text, i, done)
        raise TemplateError(f"the chat template does not show messages[{i}].content")
    first = _shared_length(text, shown)
    last = len(text) - _shared_length(text[::-1], shown[::-1])
    begin = _find_begin(template, text, i, (done, first), alone)
    if i + 1 == len(messages):
        return begin, len(text)
    if template.messages[i].get("tool_calls"):
        return begin, _end_of_calls(template, text, i, begin)
    return begin, _find_end(template, text, max(first, last), alone.rpartition(MARK)[2])


def _locate_calls(template: Template, text: str, i: int, done: int) -> Span:
    """The span of calls of tools, without a content, that are rendered as without what follows."""
    prompt, alone = template.prompt(i), template.render(template.messages[: i + 1])
    turn = alone.removeprefix(prompt)
    begin = text.find(turn, done)
    if turn == alone or begin < 0:
        raise TemplateError(f"the chat template does not show the calls of messages[{i}]")
    return begin, begin + len(turn)


def _find_begin(template: Template, text: str, i: int, before: Span, alone: str) -> int:
    """The first character that the model writes.

    The template may put a thought in between. What the model is given may also begin one, which
    is not there in an earlier turn.

    Args:
        template: of the conversation.
        text: of it.
        i: number of the message.
        before: what is between the answer before and the content.
        alone: the text up to the message, with `MARK` as its content.
    """
    prompt, (done, first) = template.prompt(i), before
    if prompt and text.startswith(prompt) and done <= len(prompt) <= first:
        return len(prompt)
    opening = _opening(template)
    if opening and (place := text.rfind(opening, done, first)) >= 0:
        return place + len(opening)
    lead = alone.removeprefix(prompt).partition(MARK)[0] if alone.startswith(prompt) else ""
    return first - len(lead) if text.endswith(lead, done, first) else first


def _opening(template: Template) -> str:
    """What the template adds to a question for the model to answer."""
    asked: list[Message] = [{"role": "user", "content": "."}]
    plain, prompt = template.render(asked), template.render(asked, prompt=True)
    return prompt[_shared_length(plain, prompt) :]


def _find_end(template: Template, text: str, last: int, closing: str) -> int:
    """The end of an answer whose content ends at `last`: what closes it belongs to it.

    Args:
        template: of the conversation.
        text: of it.
        last: end of the content.
        closing: what closes the answer at the end of a conversation.
    """
    tokens, same = template.chat.added, _shared_length(text[last:], closing)
    for token in tokens:
        place = closing.find(token)
        if 0 <= place < same < place + len(token):
            same = place  # a part of a token is none
    other = max((len(t) for t in tokens if text.startswith(t, last)), default=0)
    return last + (same or other)


def _end_of_calls(template: Template, text: str, i: int, begin: int) -> int:
    """The end of calls of tools: they are as at the end of a conversation, behind any thought.

    Raises:
        TemplateError: they are not.
    """
    prompt, alone = template.prompt(i), template.render(template.messages[: i + 1])
    turn = alone[_shared_length(prompt, alone) :]
    for start in range(len(turn)):
        if text.startswith(turn[start:], begin) and calls_in(template.messages[i], turn[start:]):
            return begin + len(turn) - start
    raise TemplateError(f"the chat template does not show where messages[{i}] ends")


def _shared_length(one: str, other: str) -> int:
    """Number of characters with which two texts begin alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
