"""Rendered conversations on their way into the arrays of a data set."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import msgpack
import numpy as np

from trainables.base import Split
from trainables.data.bad_rows import BadRow
from trainables.data.conversations.chat import Rendered, Tokens
from trainables.data.conversations.rows import Conversation
from trainables.data.shared_folder import text_digest
from trainables.data.splits import assign_splits, warn_if_shared

Talk = tuple[Conversation, Rendered]


def _as_json(value: Any) -> msgpack.ExtType:
    """What msgpack has no type for: a date, for example, or an integer of more than 64 bits."""
    return msgpack.ExtType(0, json.dumps(value, default=str).encode())


def _from_json(_: int, packed: bytes) -> Any:
    return json.loads(packed)


class TalkFile:
    """Rendered conversations in a file, of which there may be more than memory takes.

    Attributes:
        file: of them.
        unread: columns that are not read.
        left_out: how many end with turns that are no answers.
    """

    def __init__(
        self, file: Path, talks: Iterable[Talk], *, named: bool, among: Sequence[Split]
    ) -> None:
        """Write conversations, whose units name their splits, or else decide by a digest."""
        self.file, self.unread, self.left_out = file, set[str](), 0
        self._sizes, units, texts = array("q"), list[str](), array("q")
        pack = msgpack.Packer(default=_as_json).pack
        with open(file, "wb") as rows:
            for talk in talks:
                # more digits than a split is decided by
                units.append(talk[0].unit if named else text_digest(talk[0].unit)[:16])
                texts.append(hash(talk[1].text))
                self.unread |= talk[0].unread
                self.left_out += talk[0].left_out > 0
                told = {**vars(talk[0]), "unread": None}, vars(talk[1])
                self._sizes.append(rows.write(pack([[*each.values()] for each in told])))
        if named:
            warn_if_shared(zip(units, texts, strict=True), "conversations")
        splits = assign_splits(units, among)
        self._splits = [splits[unit] for unit in units]

    def read(self, split: Split) -> Iterator[Talk]:
        """The conversations of a split, in order."""
        with open(self.file, "rb") as file:
            for size, found in zip(self._sizes, self._splits, strict=True):
                packed = file.read(size)
                if found is split:
                    talk, rendered = msgpack.unpackb(packed, ext_hook=_from_json)
                    yield Conversation(*talk), Rendered(*rendered)


def leave_out_trained(
    rows: Iterable[tuple[Conversation, Tokens] | BadRow], trained: set[int], dtype: np.dtype[Any]
) -> Iterator[tuple[Conversation, Tokens] | BadRow]:
    """The rows; those of `trained_texts` are bad."""
    for row in rows:
        if isinstance(row, BadRow) or not trained:
            yield row
        elif hash(row[1].ids.astype(dtype).tobytes()) in trained:
            yield BadRow(f"{row[0].place}: is also trained on", "skip")
        else:
            yield row


def write_questions(
    rows: Iterable[tuple[Conversation, Tokens]], lines: IO[str] | None, labels: list[bool]
) -> Iterator[Tokens]:
    """The tokens of conversations, whose questions and labels go into a file and a list."""
    for talk, tokens in rows:
        if talk.label is not None:
            labels.append(talk.label)
        if lines is not None:
            asked = next((m["content"] for m in talk.messages[::-1] if m["role"] == "user"), "")
            last = max(i for i, m in enumerate(talk.messages) if m["role"] == "assistant")
            line = {"question": asked, "answer": talk.answer, "prompt": tokens.prompt}
            line |= {"messages": talk.messages[:last], "tools": talk.tools}
            lines.write(json.dumps(line) + "\n")
        yield tokens
