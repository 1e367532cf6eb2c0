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

import hashlib
import json
import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.data.corpus import Corpus, assign_splits, open_corpus
from trainables.causal_lm.data.tokenizer import Encoder, pretrained_encoder, train_bpe
from trainables.causal_lm.data_config import not_default
from trainables.client import Rows
from trainables.common.shared_folder import publish

log = logging.getLogger(__name__)

VERSION = 2
"""Version of the packing; raise it with any change of code that changes the arrays."""
PACK_AT_ONCE = 4096
MAX_LOGGED = 20
"""Number of unreadable parts that the log names; it counts the others."""

_NO_SIZES: Rows = np.empty(0, dtype=np.int64)
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


def prepare(config: CausalLMConfig, cache: Path, key: str | None = None) -> Dataset:
    """The data of a configuration, built once in a folder that trials share; other callers wait.

    With a `key`, the data must have that key. If it is cached, the text is not read.

    Raises:
        UserError: there is too little text, or it is not the text of `key`.
    """
    if key is not None and (cache / key).is_dir():
        return Dataset(cache / key)
    corpus = open_corpus(config.data, cache)
    pretrained = config.tokenizer_from
    encoder = None if pretrained is None else pretrained_encoder(pretrained)
    settings = _settings(config, corpus, encoder)
    made = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]
    if key is not None and made != key:
        raise UserError(f"data: the text is not what the model was trained on ({cache / key})")
    publish(cache / made, lambda folder: _build(folder, settings, corpus, encoder))
    return Dataset(cache / made)


def _settings(config: CausalLMConfig, corpus: Corpus, encoder: Encoder | None) -> dict[str, Any]:
    if encoder is None:
        tokenizer = f"bpe {config.vocab_size} by tokenizers {tokenizers.__version__}"
    else:
        described = f"{encoder.tokenizer.to_str()} ends with {encoder.end}"
        tokenizer = hashlib.sha256(described.encode()).hexdigest()
    # The default is left out: keys from before the setting existed stay valid.
    fails = {"on_bad_data"} if config.data.on_bad_data == "fail" else set()
    return {
        "version": VERSION,
        "text": corpus.fingerprint(),
        "data": config.data.model_dump(exclude={"paths", *fails, *not_default(config.data.splits)}),
        "sequence_length": config.sequence_length,
        "tokenizer": tokenizer,
    }


def _build(folder: Path, settings: dict[str, Any], corpus: Corpus, encoder: Encoder | None) -> None:
    bad: list[str] = []
    splits = assign_splits(d.unit for d in corpus.documents(bad.append))
    log_skipped(bad)
    if encoder is None:
        vocab_size = int(settings["tokenizer"].split()[1])
        train = (d.text for d in corpus.documents() if splits[d.unit] is Split.TRAIN)
        encoder = train_bpe(train, vocab_size)
        encoder.tokenizer.save(str(folder / "tokenizer.json"))
    dtype = np.dtype(np.uint16 if encoder.size <= 1 << 16 else np.uint32)
    ends = _encode(folder, corpus, splits, encoder, dtype)
    length = int(settings["sequence_length"])
    counts = {split.value: _pack(folder, split, length, dtype) for split in Split}
    for split, count in counts.items():
        sources, until = ends[Split(split)]
        begun = np.searchsorted(until, np.arange(count) * length, side="right")
        np.save(folder / f"{split}.sources.npy", sources[begun])
        _count_bytes(folder, Split(split), length, count)
    meta = {**settings, "vocab_size": encoder.size, "end": encoder.end, "sequences": counts}
    meta["skipped"] = bad
    (folder / "meta.json").write_text(json.dumps(meta, indent=1))


def log_skipped(bad: list[str]) -> None:
    """Warn of parts of the data that are left out."""
    for line in bad[:MAX_LOGGED]:
        log.warning("data skipped: %s", line)
    if bad:
        log.warning("data: %d parts could not be read and are skipped", len(bad))


def _encode(
    folder: Path,
    corpus: Corpus,
    splits: dict[str, Split],
    encoder: Encoder,
    dtype: np.dtype[Any],
) -> dict[Split, tuple[Rows, Rows]]:
    """Write one flat stream of token ids per split, `<split>.tokens`, and of their sizes
    in bytes, `<split>.sizes`, which is empty for the train split.

    Returns:
        For each split: the source of each document, and the token at which it ends.
    """
    found = {}
    for split in Split:
        texts = (d.text for d in corpus.documents() if splits[d.unit] is split)
        lengths = []
        train = split is Split.TRAIN
        plain = ((ids, _NO_SIZES) for ids in encoder.encode(texts))
        with (
            open(folder / f"{split}.tokens", "wb") as file,
            open(folder / f"{split}.sizes", "wb") as sizes,
        ):
            for ids, measured in plain if train else encoder.encode_measured(texts):
                file.write(np.array(ids, dtype=dtype).tobytes())
                sizes.write(measured.tobytes())
                lengths.append(len(ids))
        sources = [d.source for d in corpus.documents() if splits[d.unit] is split]
        found[split] = (np.array(sources, np.int64), np.cumsum(lengths, dtype=np.int64))
    return found


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
