"""Texts with labels, tokenised once into arrays that all trials and workers map into memory.

<cache>/<key>/<split>.npy           token ids of all texts, one behind the other
<cache>/<key>/<split>.types.npy     uint8, 1 for tokens of second texts; only of pairs
<cache>/<key>/<split>.ends.npy      int64 [texts + 1], 0 and where the tokens of each end
<cache>/<key>/<split>.targets.npy   [texts], numbers of the labels, int64, or numbers, float32
<cache>/<key>/tokenizer.json, meta.json    as of `causal_lm`; labels in their order
"""

from __future__ import annotations

import itertools
import json
import logging
import sys
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from transformers import AutoConfig

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.classifier.rows import (
    ClassifierDataConfig,
    LabelledText,
    label_names,
    packages,
    read_labelled,
)
from trainables.client import Rows
from trainables.data.bad_rows import BadRows
from trainables.data.corpora.library import write_docstrings
from trainables.data.shared_folder import content_digest, publish, publish_settings, text_digest
from trainables.data.splits import assign_splits, warn_if_shared
from trainables.data.text.config import key_settings
from trainables.data.text.dataset import Dataset
from trainables.data.tokenizer import describe, load_pretrained, open_encoder, train_bpe, wrap_bpe
from trainables.training.start_model import loading

if TYPE_CHECKING:
    from trainables.classifier.config import ClassifierConfig

VERSION = 1
"""Raise it with any change of code that changes the arrays."""
AT_ONCE = 1000
Array = npt.NDArray[Any]
log = logging.getLogger(__name__)


class LabelledTexts(Dataset):
    """A built cache folder."""

    def targets(self, split: Split) -> Array:
        """Of each text."""
        return self._array(f"{split}.targets")

    def texts(self, split: Split, rows: Rows, name: str = "") -> list[Array] | None:
        """Token ids of texts, or with `name` .types their types; None: they have none."""
        if name and not (self.folder / f"{split}{name}.npy").exists():
            return None
        values, ends = self._array(f"{split}{name}"), self._array(f"{split}.ends")
        return [values[ends[i] : ends[i + 1]] for i in rows]

    def lengths(self, split: Split) -> Rows:
        """Tokens of each text, int64 [texts]."""
        return np.diff(self._array(f"{split}.ends"))

    def _array(self, name: str) -> Array:
        if name not in self._arrays:
            self._arrays[name] = np.load(self.folder / f"{name}.npy", mmap_mode="r")
        return self._arrays[name]

    @cached_property
    def _arrays(self) -> dict[str, Array]:
        return {}


def prepare(config: ClassifierConfig, cache: Path, key: str | None = None) -> LabelledTexts:
    """The data of a configuration, built once in a folder that trials share; other callers wait.

    With a `key`, the data must have that key. If it is cached, the rows are not read.

    Raises:
        UserError: a row is bad, a split lacks rows or labels, or they are not the rows of `key`.
    """
    if key is not None and (cache / key).is_dir():
        return LabelledTexts(cache / key)
    data, files = _open_rows(config.data, cache)
    encoder = open_encoder(config)
    settings = {
        "version": VERSION,
        "rows": [content_digest(file, cache) for file in files],
        "data": key_settings(data),
        "numbers": config.task == "regression",
        "labels": _labels_of_model(config),
        "sequence_length": config.sequence_length,
        "tokenizer": describe(encoder, config.vocab_size),
    }
    build = partial(_build, config=config, data=data, files=files, settings=settings)
    return LabelledTexts(publish_settings(cache, settings, build, key=key))


def _open_rows(data: ClassifierDataConfig, cache: Path) -> tuple[ClassifierDataConfig, list[Path]]:
    if data.source == "files":
        return data, data.files()
    folder = cache / f"docstrings-{text_digest(f'{sys.version} labels')[:16]}"
    publish(folder, lambda new: write_docstrings(new / "docstrings.parquet"))
    columns = {"text": "answer", "label": "module"}
    return data.model_copy(update=columns), [folder / "docstrings.parquet"]


def _labels_of_model(config: ClassifierConfig) -> list[str] | None:
    """Labels that a pretrained model knows, in its order; None if they have no names."""
    if config.model_name_or_path is None:
        return None
    with loading(config.model_name_or_path):
        told = AutoConfig.from_pretrained(config.model_name_or_path, trust_remote_code=False)
    known: dict[int, str] = told.id2label
    labels = [known[number] for number in sorted(known)]
    return None if all(label.startswith("LABEL_") for label in labels) else labels


def _build(
    folder: Path,
    config: ClassifierConfig,
    data: ClassifierDataConfig,
    files: Sequence[Path],
    settings: dict[str, Any],
) -> None:
    bad, numbers = BadRows(data.on_bad_data), config.task == "regression"
    rows = read_labelled(files, data, numbers=numbers)
    if data.source == "docstrings":
        rows = iter(packages(rows))
    kept = list(itertools.islice(bad.leave_out(rows), data.max_rows))
    units = [r.unit if data.splits == "file_names" else text_digest(r.unit) for r in kept]
    if data.splits == "file_names":
        warn_if_shared(((r.unit, tuple(r.texts)) for r in kept), "texts")
    splits = assign_splits(units)
    parts = {s: [r for r, u in zip(kept, units, strict=True) if splits[u] is s] for s in Split}
    labels = None if numbers else _labels(parts, settings["labels"])
    meta = dict(settings)
    if config.tokenizer_from is None:
        encoder = train_bpe((t for r in parts[Split.TRAIN] for t in r.texts), config.vocab_size)
        encoder.tokenizer.save(str(folder / "tokenizer.json"))
        tokenizer = wrap_bpe(folder / "tokenizer.json", config.sequence_length)
        meta |= {"vocab_size": encoder.size, "end": encoder.end}
    else:
        tokenizer = load_pretrained(config.tokenizer_from)
    places = {} if labels is None else {label: place for place, label in enumerate(labels)}
    cut = 0
    for split, part in parts.items():
        cut += _write(folder, split, part, tokenizer, config.sequence_length)
        values = [r.label if labels is None else places[str(r.label)] for r in part]
        kind = np.float32 if labels is None else np.int64
        np.save(folder / f"{split}.targets.npy", np.array(values, dtype=kind))
    if cut:
        log.warning("data: %d texts are cut to %d tokens", cut, config.sequence_length)
    bad.log()
    meta |= {"labels": labels, "cut": cut, "skipped": bad.problems}
    (folder / "meta.json").write_text(json.dumps(meta, indent=1))


def _labels(parts: dict[Split, list[LabelledText]], known: list[str] | None) -> list[str]:
    """The labels in order: those of a pretrained model if it has the same ones.

    Raises:
        UserError: a label is in no row of the train split, or a split has one label only.
    """
    names = label_names(str(row.label) for row in parts[Split.TRAIN])
    for split in (Split.TRAIN, Split.SELECTION, Split.TEST):
        strange = next((row for row in parts[split] if row.label not in names), None)
        if strange is not None:
            raise UserError(
                f"{strange.place}: label '{strange.label}' is in the {split} split and in no row of"
                " the train split; give more rows of it, or remove it"
            )
        if len({row.label for row in parts[split]}) < 2:
            raise UserError(f"data: all rows of the {split} split have one label; give more rows")
    return known if known is not None and set(known) == set(names) else names


def _write(
    folder: Path, split: Split, part: list[LabelledText], tokenizer: Any, length: int
) -> int:
    """Write the tokens of a split; returns how many texts are cut."""
    ids, types, cut = list[Array](), list[Array](), 0
    for start in range(0, len(part), AT_ONCE):
        texts = zip(*(row.texts for row in part[start : start + AT_ONCE]), strict=True)
        found = tokenizer(*map(list, texts), truncation=True, max_length=length)
        ids += [np.array(each, dtype=np.int32) for each in found["input_ids"]]
        types += [np.array(each, dtype=np.uint8) for each in found.get("token_type_ids", ())]
        cut += sum(bool(each.overflowing) for each in found.encodings)
    np.save(folder / f"{split}.npy", np.concatenate(ids))
    np.save(folder / f"{split}.ends.npy", np.cumsum([0, *map(len, ids)]))
    if types and len(part[0].texts) > 1:
        np.save(folder / f"{split}.types.npy", np.concatenate(types))
    return cut
