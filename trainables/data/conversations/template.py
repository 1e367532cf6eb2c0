"""A chat template with the messages of one conversation, in a form that it can render."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

from transformers.utils.chat_template_utils import (
    _alias_reasoning_fields,
    _compile_jinja_template,
    _plain_template_data,
)

from trainables.data.bad_rows import first_line
from trainables.data.conversations.rows import ROLES, Message
from trainables.data.word_encoder import Span
from trainables.generation.text_ends import MARK

REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of one key; `transformers` hands a template all of them."""
_LABELS = {"role", "content", "weight", "name", "tool_call_id"}
"""Keys that templates may leave out: they say whose message it is."""
_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")


class TemplateError(ValueError):
    """A conversation that a template cannot render."""


class ChatTokenizer:
    """What chat templates need of a tokenizer of `transformers`, asked for once."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.special: dict[str, str] = tokenizer.special_tokens_map

    @cached_property
    def added(self) -> frozenset[str]:
        """Tokens that are added to its vocabulary."""
        return frozenset(self.tokenizer.get_added_vocab())


class Template:
    """A template, and a conversation that it renders whole.

    Attributes:
        chat: of the tokenizer.
        messages: as the template reads them.
        weights: of the messages; an answer of weight 0 does not count.
        text: of the conversation.
        marks: what the template marks as generated; None: it never marks anything.
    """

    def __init__(
        self,
        chat: ChatTokenizer,
        source: str,
        messages: Sequence[Message],
        tools: list[dict[str, Any]] | None,
    ) -> None:
        self.chat, self.messages, self._tools = chat, _as_read(messages), tools
        self.weights = [message.get("weight", 1) for message in messages]
        self._compiled, marks = _compile(source)
        self.marks: list[Span] | None = [] if marks else None
        self.text = self.render(self.messages, marks=self.marks)
        self._prompts = {0: ""}

    @classmethod
    def of(
        cls, chat: ChatTokenizer, messages: Sequence[Message], tools: list[dict[str, Any]] | None
    ) -> Template:
        """The template with the messages as it wants them.

        Raises:
            TemplateError: a key, a role or a call of a tool would be left out.
        """
        source = str(chat.tokenizer.get_chat_template(tools=tools))
        for problem in _missing_from(source, messages, tools):
            raise TemplateError(problem)
        plain: Any = _plain_template_data(tools)
        error = TemplateError("the chat template leaves out the calls of tools")
        for form in _forms(messages):
            try:
                template = cls(chat, source, form, plain)
            except TemplateError as e:
                error = e
                continue
            if all(calls_in(message, template.text) for message in form):
                template.require_contents()
                return template
        raise error

    def render(
        self, messages: Sequence[Message], *, prompt: bool = False, marks: list[Span] | None = None
    ) -> str:
        """The text of messages, as `apply_chat_template` of the tokenizer renders it.

        Args:
            messages: as the template reads them.
            prompt: whether it goes on to where the model writes.
            marks: takes what the template marks as generated.

        Raises:
            TemplateError: the template refuses them.
        """
        known = {
            **self._compiled.globals,
            **self.chat.special,
            "messages": messages,
            "tools": self._tools,
        }
        known |= {"documents": None, "add_generation_prompt": prompt}
        try:
            blocks = self._compiled.root_render_func(self._compiled.new_context(known, shared=True))
            if marks is None:
                return "".join(blocks)
            rendered: list[str] = []
            with self._compiled.environment.activate_tracker(rendered, marks):
                for block in blocks:
                    rendered.append(block)  # the tracker looks at it meanwhile
            return "".join(rendered)
        except Exception as e:  # a template is a program
            raise TemplateError(f"the chat template cannot render it ({first_line(e)})") from e

    def require_contents(self) -> None:
        """Raise an error if the text leaves out what is said to the model."""
        for i, message in enumerate(self.messages):
            said = message.get("content", "").strip()
            if message["role"] == "assistant" or said in self.text:
                continue
            other = {**message, "content": MARK}  # another content shows whether it is changed only
            if MARK not in self.render([*self.messages[:i], other, *self.messages[i + 1 :]]):
                raise TemplateError(f"the chat template leaves out messages[{i}].content")

    def prompt(self, count: int) -> str:
        """What the model is given to write the message behind the first `count` ones."""
        if count not in self._prompts:
            self._prompts[count] = self.render(self.messages[:count], prompt=True)
        return self._prompts[count]


@lru_cache
def _compile(source: str) -> tuple[Any, bool]:
    """A template of Jinja, and whether it marks what is generated."""
    compiled: Any = _compile_jinja_template(source)
    compiled.globals = dict(compiled.globals)  # each context goes through them, a slow `ChainMap`
    return compiled, bool(_GENERATION.search(source))


def _as_read(messages: Sequence[Message]) -> list[Message]:
    """Messages as `apply_chat_template` hands them to a template."""
    plain = [{k: v for k, v in m.items() if v is not None and k != "weight"} for m in messages]
    if all(type(v) is str and k in _LABELS for m in plain for k, v in m.items()):
        return plain
    found: list[Message] = _alias_reasoning_fields(_plain_template_data(plain))
    return found


@lru_cache
def _mentions(source: str, name: str) -> bool:
    return bool(re.search(rf"\b{re.escape(name)}\b", source))


def _missing_from(
    source: str, messages: Sequence[Message], tools: list[dict[str, Any]] | None
) -> Iterator[str]:
    """What the source of a template never mentions, and so leaves out."""

    if tools and not _mentions(source, "tools"):
        yield "the chat template has no place for 'tools'"
    for i, message in enumerate(messages):
        if message["role"] not in ROLES and not _mentions(source, message["role"]):
            known = ", ".join(ROLES)
            yield f"messages[{i}].role is {message['role']!r}, and must be one of {known}"
        for key in (key for key in message if key not in _LABELS):
            names = REASONING if key in REASONING else (key,)
            if not any(_mentions(source, name) for name in names):
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
