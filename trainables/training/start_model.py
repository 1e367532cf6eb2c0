"""The files of a model that a trial begins with; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from search_spaces.errors import UserError

Tokens = Mapping[str, int]
"""Numbers of tokens by their text."""


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
