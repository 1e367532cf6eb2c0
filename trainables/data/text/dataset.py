"""Text tokenised and packed once, into arrays that all trials and workers map into memory.

    <cache>/<key>/{train,selection,test}.npy   [sequences, sequence_length + 1] token ids
    <cache>/<key>/<split>.sources.npy          [sequences] number of the file each begins in
    <cache>/<key>/<split>.bytes.npy            [sequences] bytes of the targets' text; not of train
    <cache>/<key>/tokenizer.json               the BPE, unless the tokenizer is pretrained
    <cache>/<key>/meta.json                    the settings that the key is a digest of

The key is a digest of the text and of every setting that changes the arrays. The first process
builds them under a lock and publishes them by one rename; the others wait.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.client import Rows
from trainables.data.bad_rows import BadRows
from trainables.data.shared_folder import publish_settings
from trainables.data.splits import assign_splits
from trainables.data.text.config import DataConfig, key_settings
from trainables.data.text.corpus import Corpus, open_corpus
from trainables.data.tokenizer import Encoder, TokenSettings, describe, open_encoder, train_bpe

VERSION = 2
"""Version of the packing; raise it with any change of code that changes the arrays."""
PACK_AT_ONCE = 4096
Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Dataset:
    """A built cache folder."""

    folder: Path

    @property
    def key(self) -> str:
        """Digest of the text and of the settings."""
        return self.folder.name

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

    With a `key`, the data must have that key. If it is cached, the text is not read.

    Raises:
        UserError: there is too little text, or it is not the text of `key`.
    """
    if key is not None and (cache / key).is_dir():
        return Dataset(cache / key)
    corpus, encoder = open_corpus(config.data, cache), open_encoder(config)
    settings = {
        "version": VERSION,
        "text": corpus.fingerprint(),
        "data": key_settings(config.data, "on_bad_data", "splits"),
        "sequence_length": config.sequence_length,
        "tokenizer": describe(encoder, config.vocab_size),
    }
    build = partial(_build, config=config, settings=settings, corpus=corpus, encoder=encoder)
    return Dataset(publish_settings(cache, settings, build, key=key))


def _build(
    folder: Path,
    config: TextSettings,
    settings: dict[str, Any],
    corpus: Corpus,
    encoder: Encoder | None,
) -> None:
    bad = BadRows(config.data.on_bad_data)
    splits = assign_splits(d.unit for d in corpus.documents(bad))
    bad.log()
    if encoder is None:
        train = (d.text for d in corpus.documents() if splits[d.unit] is Split.TRAIN)
        encoder = train_bpe(train, config.vocab_size)
        encoder.tokenizer.save(str(folder / "tokenizer.json"))
    length, counts = config.sequence_length, {}
    for split in Split:
        sources, until = _encode(folder, split, corpus, splits, encoder)
        counts[split.value] = count = _pack(folder, split, length, encoder.dtype)
        begun = np.searchsorted(until, np.arange(count) * length, side="right")
        np.save(folder / f"{split}.sources.npy", sources[begun])
        _count_bytes(folder, split, length, count)
    meta = {**settings, "vocab_size": encoder.size, "end": encoder.end, "sequences": counts}
    meta["skipped"] = bad.problems
    (folder / "meta.json").write_text(json.dumps(meta, indent=1))


def _encode(
    folder: Path, split: Split, corpus: Corpus, splits: dict[str, Split], encoder: Encoder
) -> tuple[Rows, Rows]:
    """Write one flat stream of a split's token ids, `<split>.tokens`, and of their sizes in bytes,
    `<split>.sizes`, which is empty for the train split.

    Returns:
        The source of each document, and the token at which it ends.
    """
    sources, lengths = [], []

    def texts() -> Iterator[str]:
        for document in corpus.documents():
            if splits[document.unit] is split:
                sources.append(document.source)
                yield document.text

    with (
        open(folder / f"{split}.tokens", "wb") as file,
        open(folder / f"{split}.sizes", "wb") as measures,
    ):
        for ids, sizes in encoder.encode(texts(), measured=split is not Split.TRAIN):
            file.write(np.array(ids, dtype=encoder.dtype).tobytes())
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
