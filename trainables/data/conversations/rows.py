"""Rows of questions and answers, or of conversations, in the forms that people have them.

It imports no torch and no pyarrow before it reads, because `tune plan` checks the rows with it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from search_spaces.errors import suggest
from trainables.data.bad_rows import BadRow
from trainables.data.readers import ANYTHING, MESSAGES, TableColumns, read_file

Message = dict[str, Any]
ROLES = ("system", "developer", "user", "assistant", "tool")
_ALIASES = {"human": "user", "gpt": "assistant", "model": "assistant"}
"""Roles of ShareGPT and Gemma."""
_SYSTEM = ("system", "system_prompt")
_PARTS = {
    *("input", "context", "history", "documents", "functions", "function_call"),
    *("reasoning", "reasoning_content", "thinking", "chat_template_kwargs"),
    *("image", "images", "video", "videos", "audio"),
}
"""Columns that hold a part of what a model reads or writes, by the custom of public data sets."""


@dataclass(frozen=True)
class Columns:
    """Names of columns.

    Attributes:
        question: of the prompts, texts or lists of messages; "": answers begin with theirs.
        answer: of the same kinds; messages may begin with the prompt.
        messages: of conversations, in place of both.
        unit: of what must stay in one split; None: all before the first answer to a user.
        label: of whether the answer is desirable.
    """

    question: str
    answer: str
    messages: str | None = None
    unit: str | None = None
    label: str | None = None

    @cached_property
    def names(self) -> list[str]:
        """Those that rows must have."""
        return list(self.of_table.types)

    @cached_property
    def used(self) -> frozenset[str]:
        """Those that have an effect."""
        alpaca = self.messages is None and self.question == "instruction"
        return frozenset((*self.names, "tools", *_SYSTEM, *(["input"] if alpaca else [])))

    @property
    def of_table(self) -> TableColumns:
        """Those that tables must have."""
        wanted = [self.messages] if self.messages else [self.question, self.answer]
        types = dict.fromkeys(filter(None, wanted), MESSAGES)
        for name in filter(None, (self.unit, self.label)):
            types.setdefault(name, ANYTHING)
        return TableColumns(types)


@dataclass(frozen=True)
class Conversation:
    """Messages of which one at least is the assistant's.

    Attributes:
        place: file and line.
        messages: with the keys that the row gives them; `weight: 0` of answers not to learn.
        unit: what must stay in one split.
        tools: that the model may call, as their JSON schemas; None: there are none.
        unread: columns of the row that are not read.
        label: whether the answer is desirable, if a column says it.
        left_out: messages behind the last answer, which nothing is learned of.
    """

    place: str
    messages: tuple[Message, ...]
    unit: str
    tools: list[dict[str, Any]] | None = None
    unread: frozenset[str] = field(default=frozenset(), compare=False)
    label: bool | None = None
    left_out: int = field(default=0, compare=False)

    @property
    def answer(self) -> str:
        """The last answer."""
        return str(next(m["content"] for m in self.messages[::-1] if m["role"] == "assistant"))


Row = Conversation | BadRow


class _BadValueError(ValueError):
    """Why a row is no conversation."""


def read_rows(files: Sequence[Path], columns: Columns) -> Iterator[Row]:
    """All rows of files, in order.

    Raises:
        UserError: a file lacks a column, or has another type there, or an unknown ending.
    """
    for file in files:
        for row in read_file(file, columns.of_table):
            yield row if isinstance(row, BadRow) else _conversation(*row, columns)


def _conversation(place: str, row: Mapping[str, Any], columns: Columns) -> Row:
    try:
        for name in columns.names:
            if name not in row:
                raise _BadValueError(f"no '{name}'{suggest(name, row)}")
        if column := columns.messages:  # OpenAI's, or ShareGPT's
            found = _as_messages(row[column], column, None)
        else:
            found = _question_and_answer(row, columns)
        count = 1 + max((i for i, m in enumerate(found) if m["role"] == "assistant"), default=-1)
        if not count:
            name = columns.messages or columns.answer
            raise _BadValueError(f"'{name}' has no message of the assistant")
        messages = _with_system(row, columns, found[:count])
        tools, unread = _tools(row), _unread_columns(row, columns)
        label = _label(row[columns.label], columns.label) if columns.label else None
    except _BadValueError as e:
        return BadRow(f"{place}: {e}")
    if columns.unit:
        unit = str(row[columns.unit])
    else:
        asked = next((i for i, m in enumerate(messages) if m["role"] == "user"), len(messages))
        rest = itertools.takewhile(lambda m: m["role"] != "assistant", messages[asked:])
        unit = json.dumps([m["content"] for m in (*messages[:asked], *rest)])
    left_out = len(found) - count
    return Conversation(place, tuple(messages), unit, tools, unread, label, left_out)


def _label(value: Any, name: str) -> bool:
    found = {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower())
    if found is None:
        raise _BadValueError(f"'{name}' must be true or false, got {value!r}")
    return found


def _question_and_answer(row: Mapping[str, Any], columns: Columns) -> list[Message]:
    """Two columns of texts or messages, and an `input` of Alpaca's."""
    question = _as_messages(row.get(columns.question, []), columns.question, "user")
    if question and columns.question == "instruction" and row.get("input"):
        question[-1]["content"] += f"\n\n{row['input']}"
    return _join(question, _as_messages(row[columns.answer], columns.answer, "assistant"), columns)


def _join(question: list[Message], answer: list[Message], columns: Columns) -> list[Message]:
    """A prompt, of which no answer is learned, and the messages behind it."""
    if answer and answer[0]["role"] != "assistant" and question:
        asked, repeated = (_before_last_answer(m) for m in (question, answer))
        if asked[-1:] != repeated[-1:]:
            raise _BadValueError(
                f"'{columns.answer}' begins with another question than '{columns.question}'"
            )
        question, answer = answer[: len(repeated)], answer[len(repeated) :]
    return [*without_weight(question), *answer]


def _before_last_answer(messages: list[Message]) -> list[Message]:
    last = max((i for i, m in enumerate(messages) if m["role"] == "assistant"), default=None)
    return messages[:last]


def without_weight(messages: Iterable[Message]) -> list[Message]:
    """Messages whose answers are not learned."""
    return [{**m, "weight": 0} if m["role"] == "assistant" else m for m in messages]


def _as_messages(value: Any, name: str, role: str | None) -> list[Message]:
    """The messages of a column; a text is one of `role`."""
    if role is not None and not isinstance(value, list):
        return [_message({"role": role, "content": value}, name, name)]
    if not isinstance(value, list) or not all(isinstance(m, dict) for m in value):
        raise _BadValueError(f"'{name}' is no list of {{role, content}}")
    return [_message(m, name, f"{name}[{i}].content") for i, m in enumerate(value)]


def _message(given: Message, column: str, name: str) -> Message:
    message = {key: value for key, value in given.items() if value is not None}
    if "from" in message and "value" in message and not {"role", "content"} & message.keys():
        message = {"role": message.pop("from"), "content": message.pop("value"), **message}
    says = "content" in given or "content" in message or "tool_calls" in message
    if not isinstance(message.get("role"), str) or not says:
        raise _BadValueError(f"'{column}' is no list of {{role, content}}")
    message["role"] = _ALIASES.get(message["role"], message["role"])
    message["content"] = content = _text(message.get("content"), name)
    if message.get("weight", 1) not in (0, 1):
        raise _BadValueError(f"the weight of '{name}' must be 0 or 1, got {message['weight']}")
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or not all(isinstance(c, dict) for c in calls):
        raise _BadValueError(f"tool_calls of '{name}' is no list of calls")
    if not calls:
        message.pop("tool_calls", None)
        if content is None:
            raise _BadValueError(f"'{name}' must be text, got NoneType")
        if message["role"] == "assistant" and not content.strip():
            raise _BadValueError(f"'{name}' is empty")
    return message


def _text(content: Any, name: str) -> str | None:
    """A content as one text; parts of OpenAI's form are put together."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        kinds = {str(part.get("type")) for part in content} - {"text"}
        if kinds:
            raise _BadValueError(f"'{name}' has parts of type {', '.join(sorted(kinds))}, not text")
        texts = [part.get("text") for part in content]
        if not all(isinstance(text, str) for text in texts):
            raise _BadValueError(f"'{name}' has a part without text")
        return "".join(map(str, texts))
    raise _BadValueError(f"'{name}' must be text, got {type(content).__name__}")


def _with_system(
    row: Mapping[str, Any], columns: Columns, messages: list[Message]
) -> list[Message]:
    """Messages behind that of a column which customarily holds the system's."""
    for name in _SYSTEM:
        if name in columns.names or not row.get(name):
            continue
        first = _message({"role": "system", "content": row[name]}, name, name)
        if messages[0]["role"] != "system":
            messages = [first, *messages]
        elif messages[0] != first:
            raise _BadValueError(f"'{name}' and the messages have a system prompt each")
    return messages


def _tools(row: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    tools = row.get("tools")
    try:
        tools = json.loads(tools) if isinstance(tools, str) and tools.strip() else tools
    except ValueError as e:
        raise _BadValueError(f"'tools' is no JSON ({e})") from e
    if not tools:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise _BadValueError("'tools' is no list of JSON schemas")
    return tools


def _unread_columns(row: Mapping[str, Any], columns: Columns) -> frozenset[str]:
    """Columns that have no effect; those that hold a part of a conversation are refused."""
    unread = frozenset(str(k) for k, value in row.items() if k not in columns.used and value)
    if lost := sorted(unread & _PARTS):
        raise _BadValueError(
            f"'{lost[0]}' would be left out: put it into"
            f" '{columns.messages or columns.question}', or remove it"
        )
    return unread
