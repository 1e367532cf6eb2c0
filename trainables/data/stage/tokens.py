"""The tokenizer of a data stage, and the token files of the models that read its texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from search_spaces.errors import UserError
from search_spaces.pipeline.stages import DataStage, TrainedTokenizer
from trainables.base import Split
from trainables.data.stage.files import TOKENIZER, tokenizer_source
from trainables.data.text.config import DataConfig
from trainables.data.text.dataset import prepare
from trainables.data.tokenizer import (
    load_pretrained,
    pretrained_encoder,
    train_bpe,
    wrap_bpe,
)

_ANY_LENGTH = 10**9
"""The models decide how many tokens they take."""


@dataclass(frozen=True)
class _Settings:
    data: DataConfig
    tokenizer_from: str
    sequence_length: int
    vocab_size: int = 0


def tokenize(stage: DataStage, directory: Path, folder: Path, cache: Path) -> dict[str, int]:
    """Write `tokenizer/`, and with `pack` the token files; returns the tokens of each split.

    Args:
        stage: has a tokenizer.
        directory: of relative paths.
        folder: with the texts.
        cache: of the models that are trained on them.

    Raises:
        UserError: the tokenizer cannot be used, or a split is shorter than a sequence.
    """
    target = folder / TOKENIZER
    _write_tokenizer(stage, directory, folder, target)
    if stage.pack is None:
        encoder = pretrained_encoder(str(target))
        tokens = {s: encoder.encode(_texts(folder, s)) for s in Split}
        return {s.value: sum(len(ids) for ids, _ in found) for s, found in tokens.items()}
    data = DataConfig(source="files", paths=[f"{folder}/text/*.jsonl"], splits="file_names")
    found = prepare(_Settings(data, str(target), stage.pack), cache).meta["sequences"]
    return {split: count * stage.pack for split, count in found.items()}


def _write_tokenizer(stage: DataStage, directory: Path, folder: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    if isinstance(stage.tokenizer, TrainedTokenizer):
        encoder = train_bpe(_texts(folder, Split.TRAIN), stage.tokenizer.vocab_size)
        encoder.tokenizer.save(str(target / "tokenizer.json"))
        tokenizer = wrap_bpe(target / "tokenizer.json", _ANY_LENGTH)
    else:
        assert stage.tokenizer is not None, "the caller looks"
        name = tokenizer_source(stage.tokenizer, directory)
        try:
            tokenizer = load_pretrained(name)
        except (OSError, ValueError) as e:
            raise UserError(f"tokenizer {name}: cannot be read ({str(e).splitlines()[0]})") from e
    tokenizer.save_pretrained(target)


def _texts(folder: Path, split: Split) -> Iterator[str]:
    with open(folder / "text" / f"{split}.jsonl", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)["text"]
