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

import hashlib
import itertools
import json
import logging
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import tokenizers
import torch

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.causal_lm.data.corpus import assign_splits, content_digest, split_named
from trainables.causal_lm.data.dataset import Dataset, log_skipped
from trainables.causal_lm.data.tokenizer import Encoder, pretrained_encoder
from trainables.causal_lm.data_config import not_default
from trainables.causal_lm.model.objective import to_device
from trainables.client import Rows
from trainables.common.shared_folder import publish
from trainables.sft.chat import Chat, Rendered, Tokens, encode, open_chat, train_tokenizer
from trainables.sft.data_config import RowsConfig
from trainables.sft.docstrings import MAX_ROWS, write_docstrings
from trainables.sft.generated import GENERATED, GENERATED_VERSION, write_generated
from trainables.sft.packing import best_fit
from trainables.sft.rows import REPAIR, BadRow, Conversation
from trainables.sft.start import StartConfig

SHAPES = 8
"""Lengths to which compiled batches of separate conversations are cut: each is compiled."""
VERSION = 2
"""Version of the packing; raise it with any change of code that changes the arrays."""
Flags = npt.NDArray[np.bool_]
T = TypeVar("T")
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
            compiled: whether the length is one of `SHAPES`.
        """
        tokens, counted, lengths = self._arrays(split)
        step = -(-counted.shape[1] // SHAPES) if compiled else 1
        most = int(lengths[rows].max()) - 1
        width = min(counted.shape[1], -(-most // step) * step)
        shown = tokens[rows, : width + 1]
        return to_device(shown, device), to_device(counted[rows, :width], device)

    def _arrays(self, split: Split) -> tuple[npt.NDArray[Any], Flags, Rows]:
        """Token ids, what counts, and lengths; each step would open the files again."""
        if split not in self._opened:
            found = self.sequences(split), self.counted(split), self.lengths(split)
            self._opened[split] = found
        return self._opened[split]

    @cached_property
    def _opened(self) -> dict[Split, tuple[npt.NDArray[Any], Flags, Rows]]:
        return {}

    def questions(self, split: Split) -> list[dict[str, Any]]:
        """Prompt (token ids), question and answer of each sequence; of train on request."""
        lines = (self.folder / f"{split}.questions.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def prepare(
    config: StartConfig,
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
    data, files = _opened(data, cache)
    chat, name = open_chat(config.tokenizer_from), config.tokenizer_from
    encoder = None if name is None else pretrained_encoder(name)
    # Defaults of later versions are left out: keys from before stay valid.
    without = {"difficulty"} if data.difficulty is None else set()
    settings: dict[str, Any] = {
        "version": VERSION,
        "rows": [content_digest(file, cache) for file in files],
        "data": data.model_dump(exclude={"paths", *not_default(data.splits), *without}),
        "sequence_length": config.sequence_length,
        "packing": config.packing,
        "tokenizer": _described(encoder, config.vocab_size),
        "chat_template": chat.template,
        **({"train_questions": True} if train_questions else {}),
    }
    made = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]
    if key is not None and made != key:
        raise UserError(f"data: the rows are not what the model was trained on ({cache / key})")
    publish(cache / made, lambda folder: _build(folder, settings, data, files, chat, encoder))
    return Conversations(cache / made)


def _opened(data: RowsConfig, cache: Path) -> tuple[RowsConfig, list[Path]]:
    if data.source == "files":
        files = data.files()
        if not files:
            raise UserError(f"data.paths: no file matches {', '.join(data.paths)}")
        return data, files
    limit, columns = data.max_rows or MAX_ROWS, data.made_columns
    if data.source in GENERATED:
        level = data.difficulty or GENERATED[data.source].difficulty
        folder = cache / f"{data.source}-{level}-{limit}-v{GENERATED_VERSION}"
        write = partial(write_generated, data.source, level)
    else:
        made = hashlib.sha256(f"{sys.version} {limit}".encode()).hexdigest()[:16]
        folder = cache / f"docstrings-{made}"
        write = partial(write_docstrings)
        columns = {**columns, "split_by": "module"}
    file = f"{data.source}.parquet"
    publish(folder, lambda new: write(new / file, limit))
    return data.model_copy(update=columns), [folder / file]


def _described(encoder: Encoder | None, vocab_size: int) -> str:
    if encoder is None:
        return f"bpe {vocab_size} by tokenizers {tokenizers.__version__}"
    text = f"{encoder.tokenizer.to_str()} ends with {encoder.end}"
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class _BadRows:
    """Rows that are left out, if the configuration says so."""

    skip: bool
    problems: list[str] = field(default_factory=list)

    def leave_out(self, rows: Iterable[T | BadRow], size: int) -> Iterator[T]:
        """The good ones of rows; of each `size` in turn all, or none.

        Raises:
            UserError: one is bad, and is not to be skipped.
        """
        left = iter(rows)
        while group := list(itertools.islice(left, size)):
            problems = [row.problem for row in group if isinstance(row, BadRow)]
            if problems and not self.skip:
                raise UserError(f"{problems[0]}; {REPAIR}")
            self.problems.extend(problems[:1])
            yield from (row for row in group if not isinstance(row, BadRow) and not problems)


def _build(
    folder: Path,
    settings: dict[str, Any],
    data: RowsConfig,
    files: list[Path],
    chat: Chat,
    encoder: Encoder | None,
) -> None:
    bad, size = _BadRows(data.on_bad_data == "skip"), data.answers_of_row
    most = None if data.max_rows is None else size * data.max_rows
    talks = list(itertools.islice(bad.leave_out(_talks(data, files, chat), size), most))
    unread = sorted({name for talk, _ in talks for name in talk.unread})
    if unread and data.source == "files":
        log.warning("data: columns that are not read: %s", ", ".join(unread))
    parts = _by_split(talks, named=data.splits == "file_names")
    if encoder is None:
        vocab_size = int(settings["tokenizer"].split()[1])
        encoder = train_tokenizer((rendered for _, rendered in parts[Split.TRAIN]), vocab_size)
        encoder.tokenizer.save(str(folder / "tokenizer.json"))
    length, counts = int(settings["sequence_length"]), {}
    for split in Split:
        rows = list(bad.leave_out(encode(parts[split], encoder, length + 1), size))
        if not rows:
            raise UserError(f"data: no row of the {split} split can be used; give more rows")
        packed = settings["packing"] == "documents" and split is Split.TRAIN
        counts[split.value] = _write(folder, split, rows, length, encoder, packed=packed)
        if split is not Split.TRAIN or settings.get("train_questions"):
            _write_questions(folder / f"{split}.questions.jsonl", rows)
    log_skipped(bad.problems)
    meta = {**settings, "vocab_size": encoder.size, "end": encoder.end, "sequences": counts}
    (folder / "meta.json").write_text(json.dumps({**meta, "skipped": bad.problems}, indent=1))


def _talks(data: RowsConfig, files: list[Path], chat: Chat) -> Iterator[Talk | BadRow]:
    for file in files:
        split = split_named(file) if data.splits == "file_names" else None
        for row in data.rows([file]):
            if isinstance(row, BadRow):
                yield row
            elif isinstance(rendered := chat.render(row.messages, row.tools), str):
                yield BadRow(f"{row.place}: {rendered}")
            else:
                yield (row if split is None else replace(row, unit=split)), rendered


def _by_split(talks: list[Talk], *, named: bool) -> dict[Split, list[Talk]]:
    """The conversations of each split, which their units name, or else decide by a digest."""
    units = [talk.unit for talk, _ in talks]
    if not named:
        units = [hashlib.sha256(unit.encode()).hexdigest() for unit in units]
    splits = assign_splits(units)
    return {
        split: [t for t, unit in zip(talks, units, strict=True) if splits[unit] is split]
        for split in Split
    }


def _write(
    folder: Path,
    split: Split,
    rows: list[tuple[Conversation, Tokens]],
    length: int,
    encoder: Encoder,
    *,
    packed: bool,
) -> int:
    """Write the arrays of a split; returns the number of its sequences."""
    sizes = [len(tokens.ids) for _, tokens in rows]
    bins = best_fit(sizes, length + 1) if packed else [[i] for i in range(len(rows))]
    dtype = np.uint16 if encoder.size <= 1 << 16 else np.uint32
    ids = np.full((len(bins), length + 1), encoder.end, dtype=dtype)
    counted = np.zeros((len(bins), length + 1), dtype=np.bool_)
    positions = np.zeros((len(bins), length + 1), dtype=np.int32)
    lengths = np.array([sum(sizes[i] for i in items) for items in bins], dtype=np.int64)
    for row, items in enumerate(bins):
        begin = 0
        for item in items:
            tokens = rows[item][1]
            part = slice(begin, begin + sizes[item])
            ids[row, part], positions[row, part] = tokens.ids, np.arange(sizes[item])
            counted[row, part] = tokens.counted
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
            line = {"question": asked, "answer": talk.answer, "prompt": tokens.prompt}
            lines.write(json.dumps(line) + "\n")
