"""The forms of rows that people have, recognised by the names of their columns; no torch."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError, nearest
from trainables.data.bad_rows import BadRow
from trainables.data.readers import TableColumns, read_file

AUTO = "auto"
"""A column that is recognised."""
MESSAGES = ("messages", "conversations", "conversation")
QUESTIONS = ("question", "prompt", "instruction", "query", "problem", "input")
ANSWERS = ("answer", "completion", "response", "output", "solution")
_NAMES = {
    ("instruction", "output"): "Alpaca instructions",
    ("prompt", "completion"): "prompts and completions",
}
_OTHERS = {
    "chosen": "preference pairs, of dpo; the preferred answers alone with data.answer: chosen",
    "text": "texts, of causal_lm",
}
"""Columns of other forms."""
_SAMPLED = 20
Sample = Mapping[str, Any]
"""Names of columns, with the first value of each that is not empty."""


def sample_of(files: Sequence[Path]) -> Sample:
    """The columns of the first rows; empty if they cannot be read."""
    found: dict[str, Any] = {}
    columns = TableColumns({}, at_once=_SAMPLED)
    rows = (row for file in files[:1] for row in read_file(file, columns))
    for row in itertools.islice(rows, _SAMPLED):
        if not isinstance(row, BadRow):
            found |= {name: value for name, value in row[1].items() if not found.get(name)}
    return found


def find_columns(
    sample: Sample, question: str, answer: str, messages: str | None
) -> dict[str, str]:
    """The columns of rows by the settings that name them: `question`, `answer` and `messages`.

    Args:
        sample: of the rows.
        question: column of the questions; `auto`: it is recognised.
        answer: the same of the answers.
        messages: column of conversations; None: of question and answer.

    Raises:
        UserError: both are `auto`, and the columns are in no form, or in several.
    """
    options = [{"messages": messages}] if messages else _options(sample, question, answer)
    if len(options) > 1:
        ways = ", or ".join(map(_as_settings, options))
        raise UserError(f"the columns {', '.join(sample)} have several forms; say {ways}")
    if not options and question == answer == AUTO and sample:
        near = _nearest_form(sample)
        raise UserError(f"the columns {', '.join(sample)} are in no known form; nearest: {near}")
    usual = {
        "question": QUESTIONS[0] if question == AUTO else question,
        "answer": ANSWERS[0] if answer == AUTO else answer,
    }
    return usual | (options or [{}])[0]


def form_name(sample: Sample, columns: Mapping[str, str]) -> str:
    """What rows are, in words, by what `find_columns` found."""
    if column := columns.get("messages"):
        first = next(iter(sample.get(column) or ()), ())
        return "ShareGPT conversations" if "from" in first else "OpenAI messages"
    pair = columns["question"], columns["answer"]
    name = _NAMES.get(pair, f"questions and answers ({', '.join(filter(None, pair))})")
    return f"conversational {name}" if _has_messages(sample, pair[1]) else name


def _options(sample: Sample, question: str, answer: str) -> list[dict[str, str]]:
    """The columns that rows may mean."""
    questions, answers = (
        [name for name in known if name in sample] if given == AUTO else [given]
        for given, known in ((question, QUESTIONS), (answer, ANSWERS))
    )
    if "instruction" in questions and "input" in questions:
        questions.remove("input")  # a part of Alpaca's questions
    if not questions and len(answers) == 1 and _has_messages(sample, answers[0]):
        questions = [""]  # the answers begin with them
    options = [{"question": q, "answer": a} for q in questions for a in answers]
    if question == answer == AUTO:
        options += [{"messages": name} for name in MESSAGES if _has_messages(sample, name)]
    return options


def _has_messages(sample: Sample, name: str) -> bool:
    value = sample.get(name)
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _as_settings(columns: Mapping[str, str]) -> str:
    return " with ".join(f"data.{name}: {column}" for name, column in columns.items())


def _nearest_form(sample: Sample) -> str:
    """The form of which there is a part, or similar names."""
    for name, words in _OTHERS.items():
        if name in sample:
            return words
    for name in sample:
        if _has_messages(sample, name):
            return f"conversations, as {_as_settings({'messages': name})}"
    like = {
        setting: next((name for name in sample if name in names or nearest(name, names)), "COLUMN")
        for setting, names in (("question", QUESTIONS), ("answer", ANSWERS))
    }
    return f"questions and answers, as {_as_settings(like)}"
