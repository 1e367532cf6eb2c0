"""The files of a model that a trial begins with; no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from results.trial_paths import ADAPTER_CONFIG
from search_spaces.errors import UserError
from trainables.data.bad_rows import first_line

Tokens = Mapping[str, int]
"""Numbers of tokens by their text."""
EXPORT = "`tune export TRIAL --format hf` writes such a folder"
_MODEL = (("config.json",), ("*.safetensors", "pytorch_model*.bin"))
_TOKENIZER = ("tokenizer.json", "*.model", "vocab.*", "*.tiktoken")


def missing_of_model(folder: Path, *, model: bool = True, tokenizer: bool = True) -> str | None:
    """Why a folder is no model of transformers with its tokenizer, or one of both, if so."""
    if not (folder := folder.expanduser()).is_dir():
        return f"no such folder: {folder} (from {Path.cwd()})"
    if model and (folder / ADAPTER_CONFIG).is_file():
        return f"{folder}: an adapter without its base; {EXPORT}"
    for patterns in (*_MODEL * model, *(_TOKENIZER,) * tokenizer):
        if not any(next(folder.glob(pattern), None) for pattern in patterns):
            return f"{folder}: has no {patterns[0]}, so it is no model of transformers; {EXPORT}"
    for file in folder.glob("*.safetensors"):
        if file.stat().st_size < 1024 and file.read_bytes().startswith(b"version https://git-lfs"):
            return f"{file}: a pointer of Git LFS in place of the file; git lfs pull fetches it"
    index, whole = (folder / f"model.safetensors{end}" for end in (".index.json", ""))
    shards = json.loads(index.read_text())["weight_map"] if index.is_file() else {}
    lacking = sorted({*shards.values()} - {file.name for file in folder.iterdir()})
    if lacking and not whole.is_file():
        return f"{folder}: has no {lacking[0]}, of which {index.name} tells"
    return None


def positions_of(model: str | None) -> int | None:
    """Largest number of tokens of a model in a folder, by its `config.json`."""
    file = Path(model or "").expanduser() / "config.json"
    if not model or not file.is_file():
        return None
    try:
        told: dict[str, Any] = json.loads(file.read_text())
    except ValueError:
        return None  # whoever loads it says why
    return told.get("max_position_embeddings") or told.get("n_positions")


@contextmanager
def loading(name: str) -> Iterator[None]:
    """Load what `transformers` has of a hub id or folder in it.

    Raises:
        UserError: of `require_folder`, or the folder holds something else.
    """
    require_folder(name)
    try:
        yield
    except Exception as e:  # of many libraries
        if isinstance(e, UserError | MemoryError) or not Path(name).expanduser().is_dir():
            raise
        raise UserError(f"{name}: cannot be loaded ({first_line(e)})") from e


def require_folder(name: str) -> None:
    """Pass for a hub id, and for a folder of a model that is there.

    Raises:
        UserError: it is gone, with all that begins with it: a pipeline that was moved, for example.
    """
    if Path(name).is_absolute() and not Path(name).is_dir():
        raise UserError(
            f"{name}: the model to begin with is not there; if its pipeline or sweep was moved, "
            "move it back, or make a link at the old place: ln -s NEW OLD"
        )


def tokens_of(folder: Path) -> Tokens:
    """The vocabulary of the tokenizer in a folder.

    Raises:
        ValueError: there is none, or it cannot be read.
    """
    file = folder / "tokenizer.json"
    try:
        return _tokens_of(str(file), file.stat().st_mtime_ns)
    except Exception as e:  # tokenizers raises plain Exception
        raise ValueError(str(e)) from e


@lru_cache(maxsize=4)
def _tokens_of(file: str, _time: int) -> Tokens:
    from tokenizers import Tokenizer

    found: Tokens = Tokenizer.from_file(file).get_vocab()
    return found
