"""Conversations tokenised and packed once, into arrays that all trials and workers map into memory.

<cache>/<key>/{train,selection,test}.npy   [sequences, sequence_length + 1] token ids
<cache>/<key>/<split>.counted.npy          [sequences, sequence_length], is the next token
                                           of an answer
<cache>/<key>/<split>.positions.npy        [sequences, sequence_length], of packed splits
<cache>/<key>/<split>.lengths.npy          [sequences] tokens without padding
<cache>/<key>/<split>.labels.npy           [sequences] is the answer desirable; of rows with labels
<cache>/<key>/<split>.questions.jsonl      prompt (token ids), question, answer; not of train
<cache>/<key>/tokenizer.json, meta.json    as of `causal_lm`
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.client import Rows
from trainables.data.bad_rows import BadRow, BadRows
from trainables.data.conversations.chat import Chat, encode, open_chat
from trainables.data.conversations.config import RowsConfig
from trainables.data.conversations.packing import write_sequences
from trainables.data.conversations.talks import (
    Talk,
    TalkFile,
    leave_out_trained,
    write_questions,
)
from trainables.data.corpora.generated import (
    GENERATED,
    GENERATED_VERSION,
    generate_rows,
    write_rows,
)
from trainables.data.corpora.library import MAX_ROWS, write_docstrings
from trainables.data.shared_folder import content_digest, publish, publish_settings, text_digest
from trainables.data.splits import HELD_OUT, exact_split
from trainables.data.text.config import key_settings
from trainables.data.text.dataset import Dataset, trained_texts, with_sets
from trainables.data.tokenizer import END, Encoder, TokenSettings, describe, open_encoder, train_bpe
from trainables.data.word_encoder import Flags
from trainables.training.data_sampler import to_device

SHAPES = 4
"""Lengths to which compiled batches of separate conversations are cut: each is compiled."""
VERSION = 4
"""Version of the packing; raise it with any change of code that changes the arrays."""
log = logging.getLogger(__name__)


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

    def labels(self, split: Split) -> Flags:
        """Whether each answer is desirable, bool [sequences]; of rows with labels."""
        found: Flags = np.load(self.folder / f"{split}.labels.npy")
        return found

    def train_texts(self) -> Iterator[npt.NDArray[Any]]:
        """Token ids of each conversation that is trained on."""
        tokens, _, lengths = self.arrays(Split.TRAIN)
        positions = self.positions(Split.TRAIN)
        for i, row in enumerate(tokens):
            begins: Any = [] if positions is None else np.flatnonzero(positions[i] == 0)[1:]
            yield from np.split(row[: lengths[i]], begins)

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
        tokens, counted, lengths = self.arrays(split)
        step = -(-counted.shape[1] // SHAPES) if compiled else 1
        most = int(lengths[rows].max()) - 1
        width = min(counted.shape[1], -(-most // step) * step)
        shown = tokens[rows, : width + 1]
        return to_device(shown, device), to_device(counted[rows, :width], device)

    def arrays(self, split: Split) -> tuple[npt.NDArray[Any], Flags, Rows]:
        """`sequences`, `counted` and `lengths`, opened once: each step takes some of them."""
        if split not in self._arrays:
            self._arrays[split] = self.sequences(split), self.counted(split), self.lengths(split)
        return self._arrays[split]

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

    With a `key`, the data must have it. If it is cached, the rows are not read.

    Args:
        config: gives the model with its tokenizer, `sequence_length` and `packing`.
        data: the rows.
        cache: folder of prepared data.
        key: that the data must have, as of `Dataset.keys`; None: any.
        train_questions: whether the questions of the train split are needed, too.

    Raises:
        UserError: a row is bad, or there are too few, or they are not the rows of `key`.
    """
    return with_sets(data, key, partial(_prepare, config, cache, train_questions))


def _prepare(
    config: ConversationSettings,
    cache: Path,
    train_questions: bool,
    data: RowsConfig,
    key: str | None,
    beside: Conversations | None,
) -> Conversations:
    if key is not None and (cache / key).is_dir():
        return Conversations(cache / key)
    data, files = _open_rows(data, cache)
    chat = open_chat(config.tokenizer_from)
    encoder = open_encoder(config, beside.tokenizer_file if beside else None)
    settings: dict[str, Any] = {
        "version": VERSION,
        "rows": [content_digest(file, cache) for file in files],
        "data": key_settings(data, *data.later_fields),
        "sequence_length": config.sequence_length,
        "packing": config.packing,
        "tokenizer": describe(encoder, config.vocab_size),
        "chat_template": chat.template,
        **({"train_questions": True} if train_questions else {}),
        **({"beside": beside.key} if beside else {}),
    }
    build = _RowBuild(config, data, files, chat, settings, beside)
    return Conversations(
        publish_settings(cache, settings, lambda new: build.run(new, encoder), key=key)
    )


def _open_rows(data: RowsConfig, cache: Path) -> tuple[RowsConfig, list[Path]]:
    """The files of rows, which are made if they must be, and their columns."""
    if data.source == "files":
        if not (files := data.files()):
            raise UserError(f"data.paths: no file matches {', '.join(data.paths)}")
        data, form = data.recognised(files)
        log.info("data: %s; files: %d", form, len(files))
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
    beside: Conversations | None

    def run(self, folder: Path, encoder: Encoder | None) -> None:
        """Write all into a folder."""
        data, config, size = self.data, self.config, self.data.answers_of_row
        among = HELD_OUT if self.beside else tuple(Split)
        bad, most = BadRows(data.on_bad_data), data.max_rows and size * data.max_rows
        read = itertools.islice(bad.leave_out(self._talks(), size), most)
        named = data.splits == "file_names"
        talks = TalkFile(folder / "talks", read, named=named, among=among)
        if talks.unread and data.source == "files":
            log.warning("data: columns that are not read: %s", ", ".join(sorted(talks.unread)))
        if talks.left_out:
            said = "data: %d rows end with a turn that is no answer; it is left out"
            log.warning(said, talks.left_out)
        if encoder is None:
            texts = (rendered.text.replace(END, "") for _, rendered in talks.read(Split.TRAIN))
            encoder = train_bpe(texts, config.vocab_size)
            encoder.tokenizer.save(str(folder / "tokenizer.json"))
        counts = {}
        for split in among:
            counts[split.value] = self._write_split(folder, split, talks, encoder, bad)
            if not counts[split.value]:
                raise UserError(f"data: no row of the {split} split can be used; give more rows")
        talks.file.unlink()
        bad.log()
        meta = {"vocab_size": encoder.size, "end": encoder.end, "sequences": counts}
        meta = {**self.settings, **meta, "skipped": bad.problems}
        (folder / "meta.json").write_text(json.dumps(meta, indent=1))

    @cached_property
    def _trained(self) -> set[int]:
        return trained_texts(self.beside)

    def _write_split(
        self, folder: Path, split: Split, talks: TalkFile, encoder: Encoder, bad: BadRows
    ) -> int:
        """Write the arrays, labels and questions of a split; returns its number of sequences."""
        length, size = self.config.sequence_length, self.data.answers_of_row
        packed = self.config.packing == "documents" and split is Split.TRAIN
        asked = split is not Split.TRAIN or "train_questions" in self.settings
        rows = encode(talks.read(split), encoder, length + 1, self.data.on_long, prompts=asked)
        labels: list[bool] = []
        with open(folder / f"{split}.questions.jsonl" if asked else os.devnull, "w") as lines:
            unseen = leave_out_trained(rows, self._trained, encoder.dtype)
            kept = bad.leave_out(unseen, size)
            tokens = write_questions(kept, lines if asked else None, labels)
            count = write_sequences(f"{folder / split}", tokens, length, encoder, packed=packed)
        if labels:
            np.save(folder / f"{split}.labels.npy", labels)
        return count

    def _talks(self) -> Iterator[Talk | BadRow]:
        for file in self.files:
            unit = exact_split(file) if self.data.splits == "file_names" else None
            for row in self.data.rows([file]):
                if isinstance(row, BadRow):
                    yield row
                elif isinstance(rendered := self.chat.render(row.messages, row.tools), str):
                    yield BadRow(f"{row.place}: {rendered}")
                elif not rendered.answers:
                    yield BadRow(f"{row.place}: all its answers have weight 0", "skip")
                else:
                    yield (replace(row, unit=unit) if unit else row), rendered
