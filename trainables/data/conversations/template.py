"""A chat template with the messages of one conversation, in a form that it can render."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trainables.common.text_ends import MARK
from trainables.data.bad_rows import first_line
from trainables.data.conversations.rows import ROLES, Message

REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of one key; `transformers` hands a template all of them."""
_LABELS = {"role", "content", "weight", "name", "tool_call_id"}
"""Keys that templates may leave out: they say whose message it is."""


class TemplateError(ValueError):
    """A conversation that a template cannot render."""


@dataclass(frozen=True)
class Template:
    """The template of a tokenizer, and a conversation that it renders whole."""

    tokenizer: Any
    source: str
    messages: list[Message]
    tools: list[dict[str, Any]] | None
    _prompts: dict[int, str] = field(default_factory=dict, init=False, compare=False)

    @classmethod
    def of(
        cls, tokenizer: Any, messages: Sequence[Message], tools: list[dict[str, Any]] | None
    ) -> Template:
        """The template with the messages as it wants them.

        Raises:
            TemplateError: a key, a role or a call of a tool would be left out.
        """
        source = str(tokenizer.get_chat_template(tools=tools))
        for problem in _missing_from(source, messages, tools):
            raise TemplateError(problem)
        error = TemplateError("the chat template leaves out the calls of tools")
        for form in _forms(messages):
            template = cls(tokenizer, source, form, tools)
            try:
                text = template.text
            except TemplateError as e:
                error = e
                continue
            if all(calls_in(message, text) for message in form):
                template.require_contents(text)
                return template
        raise error

    def render(self, messages: Sequence[Message], *, prompt: bool = False) -> str:
        """The text of messages; with `prompt`, up to where the model writes.

        Raises:
            TemplateError: the template refuses them.
        """
        options = {"tools": self.tools, "tokenize": False, "add_generation_prompt": prompt}
        try:
            return str(self.tokenizer.apply_chat_template(without_weights(messages), **options))
        except Exception as e:  # a template is a program
            raise TemplateError(f"the chat template cannot render it ({first_line(e)})") from e

    @cached_property
    def text(self) -> str:
        """The conversation as text."""
        return self.render(self.messages)

    def require_contents(self, text: str) -> None:
        """Raise an error if the text leaves out what is said to the model."""
        for i, message in enumerate(self.messages):
            said = (message["content"] or "").strip()
            if message["role"] == "assistant" or said in text:
                continue
            other = {**message, "content": MARK}  # another content shows whether it is changed only
            if MARK not in self.render([*self.messages[:i], other, *self.messages[i + 1 :]]):
                raise TemplateError(f"the chat template leaves out messages[{i}].content")

    def prompt(self, count: int) -> str:
        """What the model is given to write the message behind the first `count` ones."""
        if count and count not in self._prompts:
            self._prompts[count] = self.render(self.messages[:count], prompt=True)
        return self._prompts.get(count, "")


def without_weights(messages: Sequence[Message]) -> list[Message]:
    """Messages as a template reads them."""
    return [{k: v for k, v in m.items() if k != "weight"} for m in messages]


def _missing_from(
    source: str, messages: Sequence[Message], tools: list[dict[str, Any]] | None
) -> Iterator[str]:
    """What the source of a template never mentions, and so leaves out."""

    def mentions(*names: str) -> bool:
        return any(re.search(rf"\b{re.escape(name)}\b", source) for name in names)

    if tools and not mentions("tools"):
        yield "the chat template has no place for 'tools'"
    for i, message in enumerate(messages):
        if message["role"] not in ROLES and not mentions(message["role"]):
            known = ", ".join(ROLES)
            yield f"messages[{i}].role is {message['role']!r}, and must be one of {known}"
        for key in message.keys() - _LABELS:
            if not mentions(*(REASONING if key in REASONING else (key,))):
                yield f"the chat template has no place for messages[{i}].{key}"


def _forms(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Messages as given, or with calls of tools in each form that templates expect.

    Arguments are an object, or its JSON; the content beside calls is null, or empty.
    """
    if not any("tool_calls" in m for m in messages):
        yield list(messages)
        return
    for as_object, empty in itertools.product((True, False), (None, "")):
        form = [dict(message) for message in messages]
        for message in (m for m in form if "tool_calls" in m):
            calls = [_with_arguments(call, as_object) for call in message["tool_calls"]]
            message |= {"content": message["content"] or empty, "tool_calls": calls}
        yield form


def _with_arguments(call: Message, as_object: bool) -> Message:
    """A call with its arguments as an object, or as JSON, which they are in OpenAI's form."""
    function = call.get("function", call)
    arguments = function.get("arguments")
    try:
        if as_object and isinstance(arguments, str):
            arguments = json.loads(arguments)
    except ValueError:
        return call
    if not as_object and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    function = {**function, "arguments": arguments}
    return {**call, "function": function} if "function" in call else function


def calls_in(message: Message, text: str) -> bool:
    """Whether a text names the tools that a message calls."""
    calls = message.get("tool_calls", [])
    return all(str(call.get("function", call).get("name")) in text for call in calls)
