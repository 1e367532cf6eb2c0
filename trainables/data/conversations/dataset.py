"""Conversations tokenised and packed once, into arrays that all trials and workers map into memory.

<cache>/<key>/{train,selection,test}.npy   [sequences, sequence_length + 1] token ids
<cache>/<key>/<split>.counted.npy          [sequences, sequence_length], is the next token
                                           of an answer
<cache>/<key>/<split>.positions.npy        [sequences, sequence_length], of packed splits
<cache>/<key>/<split>.lengths.npy          [sequences] tokens without padding
<cache>/<key>/<split>.questions.jsonl      prompt (token ids), question, answer; not of train
<cache>/<key>/tokenizer.json, meta.json    as of `causal_lm`
"""

from __future__ import annotations

import itertools
import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.client import Rows
from trainables.common.data_sampler import to_device
from trainables.data.bad_rows import BadRow, BadRows
from trainables.data.conversations.chat import (
    Chat,
    Rendered,
    Tokens,
    encode,
    open_chat,
)
from trainables.data.conversations.config import RowsConfig
from trainables.data.conversations.packing import best_fit
from trainables.data.conversations.rows import Conversation
from trainables.data.corpora.generated import (
    GENERATED,
    GENERATED_VERSION,
    generate_rows,
    write_rows,
)
from trainables.data.corpora.library import MAX_ROWS, write_docstrings
from trainables.data.shared_folder import content_digest, publish, publish_settings, text_digest
from trainables.data.splits import assign_splits, exact_split
from trainables.data.text.config import key_settings
from trainables.data.text.dataset import Dataset
from trainables.data.tokenizer import END, Encoder, TokenSettings, describe, open_encoder, train_bpe

SHAPES = 8
"""Lengths to which compiled batches of separate conversations are cut: each is compiled."""
VERSION = 2
"""Version of the packing; raise it with any change of code that changes the arrays."""
Flags = npt.NDArray[np.bool_]
log = logging.getLogger(__name__)
Talk = tuple[Conversation, Rendered]


@dataclass(frozen=True)
class Conversations(Dataset):
    """A built cache folder."""

    def counted(self, split: Split) -> Flags:
        """Memory-mapped [sequences, sequence_length]: whether the next token is of an answer."""
        found: Flags = np.load(self.folder / f"{split}.counted.npy", mmap_mode="r")
        return found

    def positions(self, split: Split) -> Rows | None:
        """Memory-mapped [sequences, sequence_length], in a conversation; None: not packed."""
        file = self.folder / f"{split}.positions.npy"
        found: Rows | None = np.load(file, mmap_mode="r") if file.exists() else None
        return found

    def lengths(self, split: Split) -> Rows:
        """Tokens without padding, int64 [sequences]."""
        found: Rows = np.load(self.folder / f"{split}.lengths.npy")
        return found

    def inputs(
        self, split: Split, rows: Rows, device: torch.device, *, compiled: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and which targets count of sequences, without padding that all of them have.

        Args:
            split: of the sequences.
            rows: their numbers.
            device: of the tensors.
            compiled: whether the length is one of `SHAPES`.
        """
        if split not in self._arrays:  # each step would open the files again
            self._arrays[split] = self.sequences(split), self.counted(split), self.lengths(split)
        tokens, counted, lengths = self._arrays[split]
        step = -(-counted.shape[1] // SHAPES) if compiled else 1
        most = int(lengths[rows].max()) - 1
        width = min(counted.shape[1], -(-most // step) * step)
        shown = tokens[rows, : width + 1]
        return to_device(shown, device), to_device(counted[rows, :width], device)

    @cached_property
    def _arrays(self) -> dict[Split, tuple[npt.NDArray[Any], Flags, Rows]]:
        return {}

    def questions(self, split: Split) -> list[dict[str, Any]]:
        """Prompt (token ids), question and answer of each sequence; of train on request."""
        lines = (self.folder / f"{split}.questions.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


class ConversationSettings(TokenSettings, Protocol):
    """What the arrays of a model depend on, beside the rows."""

    @property
    def packing(self) -> str:
        """`documents`: several conversations of the train split share a sequence."""
        ...


def prepare(
    config: ConversationSettings,
    data: RowsConfig,
    cache: Path,
    key: str | None = None,
    *,
    train_questions: bool = False,
) -> Conversations:
    """The data of a configuration, built once in a folder that trials share; other callers wait.

    With a `key`, the data must have that key. If it is cached, the rows are not read.

    Args:
        config: gives the model with its tokenizer, `sequence_length` and `packing`.
        data: the rows.
        cache: folder of prepared data.
        key: the key that the data must have; None: any.
        train_questions: whether the questions of the train split are needed, too.

    Raises:
        UserError: a row is bad, or there are too few, or they are not the rows of `key`.
    """
    if key is not None and (cache / key).is_dir():
        return Conversations(cache / key)
    data, files = _open_rows(data, cache)
    chat, encoder = open_chat(config.tokenizer_from), open_encoder(config)
    settings: dict[str, Any] = {
        "version": VERSION,
        "rows": [content_digest(file, cache) for file in files],
        "data": key_settings(data, "splits", "difficulty"),
        "sequence_length": config.sequence_length,
        "packing": config.packing,
        "tokenizer": describe(encoder, config.vocab_size),
        "chat_template": chat.template,
        **({"train_questions": True} if train_questions else {}),
    }
    build = _RowBuild(config, data, files, chat, settings)
    return Conversations(
        publish_settings(cache, settings, lambda new: build.run(new, encoder), key=key)
    )


def _open_rows(data: RowsConfig, cache: Path) -> tuple[RowsConfig, list[Path]]:
    """The files of rows, which are made if they must be, and their columns."""
    if data.source == "files":
        if not (files := data.files()):
            raise UserError(f"data.paths: no file matches {', '.join(data.paths)}")
        return data, files
    limit, columns = data.max_rows or MAX_ROWS, data.made_columns
    if kind := GENERATED.get(data.source):
        level = data.difficulty or kind.difficulty
        name = f"{data.source}-{level}-{limit}-v{GENERATED_VERSION}"
    else:
        name = f"docstrings-{text_digest(f'{sys.version} {limit}')[:16]}"
        columns = {**columns, "split_by": "module"}
    file = cache / name / f"{data.source}.parquet"

    def write(folder: Path) -> None:
        if kind:
            rows = generate_rows(data.source, level, limit)
            write_rows(("question", "answer", "rejected"), rows, folder / file.name)
        else:
            write_docstrings(folder / file.name, limit)

    publish(file.parent, write)
    return data.model_copy(update=columns), [file]


@dataclass(frozen=True)
class _RowBuild:
    """Writes the arrays of a configuration."""

    config: ConversationSettings
    data: RowsConfig
    files: list[Path]
    chat: Chat
    settings: dict[str, Any]

    def run(self, folder: Path, encoder: Encoder | None) -> None:
        """Write all into a folder."""
        data, config, size = self.data, self.config, self.data.answers_of_row
        bad, most = BadRows(data.on_bad_data), data.max_rows and size * data.max_rows
        talks = list(itertools.islice(bad.leave_out(self._talks(), size), most))
        unread = sorted({name for talk, _ in talks for name in talk.unread})
        if unread and data.source == "files":
            log.warning("data: columns that are not read: %s", ", ".join(unread))
        parts = _by_split(talks, named=data.splits == "file_names")
        if encoder is None:
            texts = (rendered.text.replace(END, "") for _, rendered in parts[Split.TRAIN])
            encoder = train_bpe(texts, config.vocab_size)
            encoder.tokenizer.save(str(folder / "tokenizer.json"))
        counts = {}
        for split, part in parts.items():
            rows = list(bad.leave_out(encode(part, encoder, config.sequence_length + 1), size))
            if not rows:
                raise UserError(f"data: no row of the {split} split can be used; give more rows")
            packed = config.packing == "documents" and split is Split.TRAIN
            tokens = [tokens for _, tokens in rows]
            counts[split.value] = _write(
                folder, split, tokens, config.sequence_length, encoder, packed=packed
            )
            if split is not Split.TRAIN or "train_questions" in self.settings:
                _write_questions(folder / f"{split}.questions.jsonl", rows)
        bad.log()
        meta = {"vocab_size": encoder.size, "end": encoder.end, "sequences": counts}
        meta = {**self.settings, **meta, "skipped": bad.problems}
        (folder / "meta.json").write_text(json.dumps(meta, indent=1))

    def _talks(self) -> Iterator[Talk | BadRow]:
        for file in self.files:
            unit = exact_split(file) if self.data.splits == "file_names" else None
            for row in self.data.rows([file]):
                if isinstance(row, BadRow):
                    yield row
                elif isinstance(rendered := self.chat.render(row.messages, row.tools), str):
                    yield BadRow(f"{row.place}: {rendered}")
                else:
                    yield replace(row, unit=unit or row.unit), rendered


def _by_split(talks: list[Talk], *, named: bool) -> dict[Split, list[Talk]]:
    """The conversations of each split, which their units name, or else decide by a digest."""
    units = [talk.unit for talk, _ in talks]
    if not named:
        units = [text_digest(unit) for unit in units]
    splits = assign_splits(units)
    return {
        split: [t for t, unit in zip(talks, units, strict=True) if splits[unit] is split]
        for split in Split
    }


def _write(
    folder: Path, split: Split, rows: list[Tokens], length: int, encoder: Encoder, *, packed: bool
) -> int:
    """Write the arrays of a split; returns the number of its sequences."""
    sizes = [len(row.ids) for row in rows]
    bins = best_fit(sizes, length + 1) if packed else [[i] for i in range(len(rows))]
    shape = len(bins), length + 1
    ids, counted = np.full(shape, encoder.end, encoder.dtype), np.zeros(shape, np.bool_)
    positions = np.zeros(shape, np.int32)
    lengths = np.array([sum(sizes[i] for i in items) for items in bins], dtype=np.int64)
    for row, items in enumerate(bins):
        begin = 0
        for item in items:
            part = slice(begin, begin + sizes[item])
            ids[row, part], positions[row, part] = rows[item].ids, np.arange(sizes[item])
            counted[row, part] = rows[item].counted
            counted[row, begin] = False  # nothing comes before it
            begin += sizes[item]
        positions[row, begin:] = np.arange(length + 1 - begin)
    np.save(folder / f"{split}.npy", ids)
    np.save(folder / f"{split}.counted.npy", counted[:, 1:])
    np.save(folder / f"{split}.lengths.npy", lengths)
    if packed:
        np.save(folder / f"{split}.positions.npy", positions[:, :-1])
    return len(bins)


def _write_questions(file: Path, rows: list[tuple[Conversation, Tokens]]) -> None:
    with open(file, "w") as lines:
        for talk, tokens in rows:
            asked = next((m["content"] for m in talk.messages[::-1] if m["role"] == "user"), "")
            last = max(i for i, m in enumerate(talk.messages) if m["role"] == "assistant")
            line = {"question": asked, "answer": talk.answer, "prompt": tokens.prompt}
            line |= {"messages": talk.messages[:last], "tools": talk.tools}
            lines.write(json.dumps(line) + "\n")
