"""Text tokenised and packed once, into arrays that all trials and workers map into memory.

    <cache>/<key>/{train,selection,test}.npy   [sequences, sequence_length + 1] token ids
    <cache>/<key>/<split>.sources.npy          [sequences] number of the file each begins in
    <cache>/<key>/<split>.bytes.npy            [sequences] bytes of the targets' text; not of train
    <cache>/<key>/tokenizer.json               the BPE, unless the tokenizer is pretrained
    <cache>/<key>/meta.json                    the settings that the key is a digest of

A named set has a folder of its own, without train.

The key is a digest of the text and of every setting that changes the arrays. The first process
builds them under a lock and publishes them by one rename; the others wait.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.client import Rows
from trainables.data.bad_rows import BadRow, BadRows
from trainables.data.shared_folder import publish_settings
from trainables.data.splits import HELD_OUT, assign_splits, warn_if_shared
from trainables.data.text.config import DataConfig, NamedSets, key_settings
from trainables.data.text.corpus import Corpus, open_corpus
from trainables.data.tokenizer import Encoder, TokenSettings, describe, open_encoder, train_bpe

VERSION = 2
"""Version of the packing; raise it with any change of code that changes the arrays."""
PACK_AT_ONCE = 4096
Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
D = TypeVar("D", bound="Dataset")


@dataclass(frozen=True)
class Dataset:
    """A built cache folder, and those of the named sets."""

    folder: Path
    sets: Mapping[str, Dataset] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Digest of the text and of the settings."""
        return self.folder.name

    @property
    def keys(self) -> str:
        """The key and those of the named sets, separated by commas."""
        return ",".join((self.key, *(one.key for one in self.sets.values())))

    @property
    def tokenizer_file(self) -> Path:
        """The trained BPE; no such file when the tokenizer is pretrained."""
        return self.folder / "tokenizer.json"

    @property
    def meta(self) -> dict[str, Any]:
        """The settings of the key, with `vocab_size`, `end` and `sequences` per split."""
        return dict(json.loads((self.folder / "meta.json").read_text()))

    @cached_property
    def end(self) -> int:
        """The token that ends each document."""
        return int(self.meta["end"])

    def sequences(self, split: Split) -> Tokens:
        """Memory-mapped token ids, [sequences, sequence_length + 1].

        Adjacent sequences share one token: the last target of one is the first input of the next.
        """
        found: Tokens = np.load(self.folder / f"{split}.npy", mmap_mode="r")
        return found

    def train_texts(self) -> Iterator[Tokens]:
        """Token ids of each text that is trained on."""
        rows = self.sequences(Split.TRAIN)
        rest = rows[:0, 0]
        for start in range(0, len(rows), PACK_AT_ONCE):
            flat = np.concatenate([rest, rows[start : start + PACK_AT_ONCE, :-1].reshape(-1)])
            *whole, rest = np.split(flat, np.flatnonzero(flat == self.end) + 1)
            yield from whole

    def sources(self, split: Split = Split.TRAIN) -> Rows:
        """Number of the source file in which each sequence begins, int64 [sequences]."""
        found: Rows = np.load(self.folder / f"{split}.sources.npy")
        return found

    def bytes(self, split: Split) -> Rows | None:
        """Bytes of the text of each sequence's targets, int64 [sequences]; ends of texts have none.

        None for the train split, and for data that an older version prepared.
        """
        file = self.folder / f"{split}.bytes.npy"
        found: Rows | None = np.load(file) if file.exists() else None
        return found


class TextSettings(TokenSettings, Protocol):
    """The hyperparameters of a model that its arrays depend on."""

    @property
    def data(self) -> DataConfig:
        """The text."""
        ...


def prepare(config: TextSettings, cache: Path, key: str | None = None) -> Dataset:
    """The data of a configuration, built once in a folder that trials share; other callers wait.

    With a `key` (`Dataset.keys`), the data must have it. If it is cached, the text is not read.

    Raises:
        UserError: there is too little text, or it is not the text of `key`.
    """
    return with_sets(config.data, key, partial(_prepare, config, cache))


def with_sets(data: NamedSets, keys: str | None, prepare: Callable[..., D]) -> D:
    """A data set with its named sets, of which `prepare` gives each by its settings and key (of
    `keys`, as of `Dataset.keys`), the named ones beside the first.

    Raises:
        UserError: of `prepare`, with the name of the set.
    """
    key, *others = keys.split(",") if keys else [None]
    own, sets = prepare(data, key, None), dict[str, D]()
    for (name, one), key in zip_longest(data.named_sets().items(), others):
        try:
            sets[name] = prepare(one, key, own)
        except UserError as e:
            raise UserError(f"data.selection.{name}: {str(e).removeprefix('data: ')}") from e
    return replace(own, sets=sets)


def _prepare(
    config: TextSettings, cache: Path, data: DataConfig, key: str | None, beside: Dataset | None
) -> Dataset:
    if key is not None and (cache / key).is_dir():
        return Dataset(cache / key)
    corpus = open_corpus(data, cache)
    encoder = open_encoder(config, beside.tokenizer_file if beside else None)
    settings = {
        "version": VERSION,
        "text": corpus.fingerprint(),
        "data": key_settings(data, "on_bad_data", "splits"),
        "sequence_length": config.sequence_length,
        "tokenizer": describe(encoder, config.vocab_size),
        **({"beside": beside.key} if beside else {}),
    }
    build = _TextBuild(config, settings, corpus, BadRows(data.on_bad_data), beside)
    return Dataset(publish_settings(cache, settings, partial(build.run, encoder=encoder), key=key))


def trained_texts(beside: Dataset | None) -> set[int]:
    """Hashes of the token ids of texts that are trained on beside a named set."""
    return {hash(ids.tobytes()) for ids in beside.train_texts()} if beside else set()


@dataclass(frozen=True)
class _TextBuild:
    """Writes the arrays of a configuration."""

    config: TextSettings
    settings: dict[str, Any]
    corpus: Corpus
    bad: BadRows
    beside: Dataset | None

    def run(self, folder: Path, encoder: Encoder | None) -> None:
        """Write all into a folder."""
        corpus, among = self.corpus, HELD_OUT if self.beside else tuple(Split)
        splits = assign_splits((d.unit for d in corpus.documents(self.bad)), among)
        if corpus.data.splits == "file_names":
            warn_if_shared(((d.unit, d.text) for d in corpus.documents()), "texts")
        if encoder is None:
            train = (d.text for d in corpus.documents() if splits[d.unit] is Split.TRAIN)
            encoder = train_bpe(train, self.config.vocab_size)
            encoder.tokenizer.save(str(folder / "tokenizer.json"))
        length, counts, trained = self.config.sequence_length, {}, trained_texts(self.beside)
        for split in among:
            sources, until = self._encode(folder, split, splits, encoder, trained)
            counts[split.value] = count = _pack(folder, split, length, encoder.dtype)
            begun = np.searchsorted(until, np.arange(count) * length, side="right")
            np.save(folder / f"{split}.sources.npy", sources[begun])
            _count_bytes(folder, split, length, count)
        self.bad.log()
        meta = {"vocab_size": encoder.size, "end": encoder.end, "sequences": counts}
        meta = {**self.settings, **meta, "skipped": self.bad.problems}
        (folder / "meta.json").write_text(json.dumps(meta, indent=1))

    def _encode(
        self,
        folder: Path,
        split: Split,
        splits: dict[str, Split],
        encoder: Encoder,
        trained: set[int],
    ) -> tuple[Rows, Rows]:
        """Write one flat stream of a split's token ids, `<split>.tokens`, and of their sizes in
        bytes, `<split>.sizes`, which is empty for the train split; without `trained` texts.

        Returns:
            The source of each document, and the token at which it ends.
        """
        sources, lengths = list[int](), list[int]()

        def texts() -> Iterator[str]:
            for document in self.corpus.documents():
                if splits[document.unit] is split:
                    sources.append(document.source)
                    yield document.text

        with (
            open(folder / f"{split}.tokens", "wb") as file,
            open(folder / f"{split}.sizes", "wb") as measures,
        ):
            for ids, sizes in encoder.encode(texts(), measured=split is not Split.TRAIN):
                tokens = np.array(ids, dtype=encoder.dtype).tobytes()
                if hash(tokens) in trained:
                    path = self.corpus.files[sources[len(lengths)]]
                    self.bad.add(BadRow(f"{path}: a text that is also trained on", "skip"))
                    lengths.append(0)
                    continue
                file.write(tokens)
                measures.write(sizes.tobytes())
                lengths.append(len(ids))
        return np.array(sources, np.int64), np.cumsum(lengths, dtype=np.int64)


def _count_bytes(folder: Path, split: Split, length: int, count: int) -> None:
    """Add up the bytes of the targets of each sequence, if the split's tokens were measured."""
    stream = folder / f"{split}.sizes"
    if stream.stat().st_size:
        targets = np.fromfile(stream, dtype=np.int64)[1 : count * length + 1]
        np.save(folder / f"{split}.bytes.npy", targets.reshape(count, length).sum(axis=1))
    stream.unlink()


def _pack(folder: Path, split: Split, length: int, dtype: np.dtype[Any]) -> int:
    """Cut a split's stream into sequences and count them; an incomplete last one is dropped."""
    stream = folder / f"{split}.tokens"
    size = stream.stat().st_size // dtype.itemsize
    count = max(0, size - 1) // length
    if count == 0:
        raise UserError(
            f"data: the {split} split has {size} tokens, fewer than one sequence of"
            f" {length + 1}; give more text or a smaller sequence_length"
        )
    tokens = np.memmap(stream, dtype=dtype, mode="r")
    packed = np.lib.format.open_memmap(
        folder / f"{split}.npy", mode="w+", dtype=dtype, shape=(count, length + 1)
    )
    windows = np.lib.stride_tricks.sliding_window_view(tokens, length + 1)[::length]
    for start in range(0, count, PACK_AT_ONCE):
        packed[start : start + PACK_AT_ONCE] = windows[start : min(start + PACK_AT_ONCE, count)]
    packed.flush()
    stream.unlink()
    return count
