"""Rows of questions and answers, or of conversations, read from Parquet and JSONL files.

It imports neither torch nor pyarrow before it reads, because `tune plan` checks the rows with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError, suggest
from trainables.causal_lm.data.corpus import json_lines

Message = dict[str, str]
REPAIR = "repair it, or skip such rows with data.on_bad_data: skip"


@dataclass(frozen=True)
class Conversation:
    """Messages that end with the assistant's; `unit` is what must stay in one split."""

    place: str
    messages: tuple[Message, ...]
    unit: str


@dataclass(frozen=True)
class BadRow:
    """A part of the data that is no conversation: where it is, and why."""

    problem: str


Row = Conversation | BadRow


def read_rows(files: Sequence[Path], columns: list[str], messages: str | None) -> Iterator[Row]:
    """All rows of files, in order.

    Args:
        files: `.jsonl`, else Parquet.
        columns: the messages or the question and the answer; then the unit, if a column has it.
        messages: the column of conversations, if there is one.

    Raises:
        UserError: a Parquet file lacks a column, or has another type there.
    """
    for file in files:
        read = _jsonl if file.suffix in (".jsonl", ".ndjson") else _parquet
        for place, row in read(file, columns, messages):
            yield (
                BadRow(f"{place}: {row}")
                if isinstance(row, str)
                else _checked(place, row, columns, messages)
            )


def problem_of(rows: Iterable[Row], tokenizer: Path, most: int, *, skip: bool) -> list[str]:
    """The first mistake in rows, if there is one that is not skipped.

    Args:
        rows: of `read_rows`.
        tokenizer: file `tokenizer.json` of the model, if it is there.
        most: number of tokens for which there is room.
        skip: whether only mistakes in whole files count.
    """
    too_long = _length_check(tokenizer, most)
    checked = (r.problem if isinstance(r, BadRow) else too_long(r) for r in rows)
    try:
        bad = next((problem for problem in checked if problem and not skip), None)
    except UserError as e:
        return [str(e)]
    return [] if bad is None else [f"{bad}; {REPAIR}"]


def _length_check(file: Path, most: int) -> Callable[[Conversation], str | None]:
    """A function that says why a conversation has no room, by its tokens without the template."""
    if not file.is_file():
        return lambda talk: None
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()

    def problem(talk: Conversation) -> str | None:
        texts = [message["content"] for message in talk.messages]
        if sum(len(text.encode(errors="replace")) for text in texts) <= most:
            return None  # no more tokens than bytes
        found = tokenizer.encode_batch(texts, add_special_tokens=False)
        count = sum(len(tokens.ids) for tokens in found)
        return None if count <= most else f"{talk.place}: {no_room(f'at least {count}', most)}"

    return problem


def no_room(tokens: str, most: int) -> str:
    """The mistake of a conversation with so many tokens."""
    return f"{tokens} tokens, and sequence_length {most - 1} leaves room for {most}"


def _checked(place: str, row: Mapping[str, Any], columns: list[str], messages: str | None) -> Row:
    if messages is None:
        question, answer, *unit = (row.get(name) for name in columns)
        given: Any = [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ]
    else:
        given, *unit = (row.get(name) for name in columns)
    for name in columns:
        if name not in row:
            return BadRow(f"{place}: no '{name}'{suggest(name, row)}")
    if problem := _problem(given, columns, messages):
        return BadRow(f"{place}: {problem}")
    talk = tuple({"role": str(m["role"]), "content": m["content"]} for m in given)
    first = next(i for i, m in enumerate(talk) if m["role"] == "assistant")
    default = json.dumps([m["content"] for m in talk[:first]])
    return Conversation(place, talk, str(unit[0]) if unit else default)


def _problem(given: Any, columns: list[str], messages: str | None) -> str | None:
    if not isinstance(given, list) or not all(
        isinstance(m, dict) and {"role", "content"} <= m.keys() for m in given
    ):
        return f"'{messages}' is no list of {{role, content}}"
    for i, message in enumerate(given):
        name = columns[i] if messages is None else f"{messages}[{i}].content"
        if not isinstance(message["content"], str):
            return f"'{name}' must be text, got {type(message['content']).__name__}"
        if message["role"] == "assistant" and not message["content"].strip():
            return f"'{name}' is empty"
    if not given or given[-1]["role"] != "assistant":
        return f"'{messages}' does not end with a message of the assistant"
    return None


def _jsonl(
    path: Path, columns: list[str], messages: str | None
) -> Iterator[tuple[str, dict[str, Any] | str]]:
    for place, row in json_lines(path):
        error = f"not a JSON object ({row})" if isinstance(row, ValueError) else "not a JSON object"
        yield place, row if isinstance(row, dict) else error


def _parquet(
    path: Path, columns: list[str], messages: str | None
) -> Iterator[tuple[str, dict[str, Any] | str]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as e:
        yield str(path), f"not a Parquet file ({_short(e)})"
        return
    with table:
        _check_schema(path, table.schema_arrow, columns, messages)
        number = 0
        for group in range(table.num_row_groups):
            try:
                for batch in table.iter_batches(row_groups=[group], columns=columns):
                    for row in batch.to_pylist():
                        number += 1
                        yield f"{path}: row {number}", row
            except (pa.ArrowException, OSError, ValueError) as e:
                yield f"{path}: row group {group}", f"cannot be read ({_short(e)})"


def _check_schema(path: Path, schema: Any, columns: list[str], messages: str | None) -> None:
    import pyarrow as pa

    for name in columns:
        if name not in schema.names:
            have = ", ".join(schema.names)
            hint = suggest(name, schema.names)
            raise UserError(f"{path}: no column '{name}'{hint} (set it under data; it has {have})")
        kind = schema.field(name).type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if messages is None and name in columns[:2] and not text:
            raise UserError(f"{path}: column '{name}' must be text, got {kind}")
        if name == messages and not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            raise UserError(f"{path}: column '{name}' must be a list of messages, got {kind}")


def _short(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
