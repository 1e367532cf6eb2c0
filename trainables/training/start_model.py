"""The files of models that a trial begins with, learns from or is judged by; no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from results.trial_paths import ADAPTER_CONFIG, TrialPaths
from search_spaces.errors import UserError
from trainables.config import path_in

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
    if model and not description_of(folder):
        return f"{folder}: config.json cannot be read"
    return next(_lost(folder), None)


def _lost(folder: Path) -> Iterator[str]:
    """What a copy of weights has lost, a line each."""
    for file in folder.glob("*.safetensors"):
        if file.stat().st_size < 1024 and file.read_bytes().startswith(b"version https://git-lfs"):
            yield f"{file}: a pointer of Git LFS in place of the file; git lfs pull fetches it"
    index = folder / "model.safetensors.index.json"
    if index.is_file() and not (folder / "model.safetensors").is_file():
        shards = {*json.loads(index.read_text())["weight_map"].values()}
        for name in sorted(shards - {file.name for file in folder.iterdir()}):
            yield f"{folder}: has no {name}, of which {index.name} tells"


def description_of(model: str | Path) -> dict[str, Any]:
    """The `config.json` of a model's folder; empty if it cannot be read, or for one of a hub."""
    file = Path(model).expanduser() / "config.json"
    return _described(str(file), file.stat().st_mtime_ns) if file.is_file() else {}


@lru_cache(maxsize=16)
def _described(file: str, _time: int) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads(Path(file).read_text())
    except ValueError:
        return {}
    return known


def positions_of(model: str | Path | None) -> int | None:
    """Largest number of tokens of a model in a folder, by its `config.json`."""
    told = description_of(model) if model else {}
    return told.get("max_position_embeddings") or told.get("n_positions")


@contextmanager
def loading(name: str) -> Iterator[None]:
    """Load something of `transformers` by a hub id or from a folder in it.

    Raises:
        UserError: the folder holds something else; or it is gone, as if a pipeline was moved.
    """
    if Path(name).is_absolute() and not Path(name).is_dir():
        raise UserError(
            f"{name}: the model to begin with is not there; if its pipeline or sweep was moved, "
            "move it back, or make a link at the old place: ln -s NEW OLD"
        )
    try:
        yield
    except Exception as e:  # of many libraries
        if isinstance(e, UserError | MemoryError) or not Path(name).expanduser().is_dir():
            raise
        raise UserError(f"{name}: cannot be loaded ({' '.join(str(e).split())[:300]})") from e


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


def teacher_problems(folder: Path, sequence_length: int, student: Path | None) -> Iterator[str]:
    """Why a folder cannot be the teacher of a student, if so.

    Args:
        folder: of the teacher.
        sequence_length: tokens of a sequence.
        student: folder of a pretrained student, if there is one on this machine.
    """
    if (missing := missing_of_model(folder)) is not None:
        yield missing
        return
    own = student is not None and (student / "tokenizer.json").is_file()
    try:
        tokens, others = tokens_of(folder), tokens_of(student) if student and own else None
    except ValueError as e:
        yield f"{folder}: a tokenizer.json, its own or the student's, cannot be read ({e})"
        return
    if len(tokens) > (size := description_of(folder).get("vocab_size", len(tokens))):
        yield f"{folder}: its tokenizer has {len(tokens)} tokens, and its model {size}"
    if (most := positions_of(folder)) is not None and most < sequence_length:
        yield f"{folder}: the model has {most} positions, and sequence_length is larger"
    if others is not None and (problem := tokens_problem(tokens, others)):
        yield f"{folder}: {problem}"


def tokens_problem(teacher: Tokens, student: Tokens) -> str | None:
    """Why two tokenizers do not give texts the same numbers, if so."""
    if teacher == student:
        return None
    token = min(t for t in {*teacher, *student} if teacher.get(t) != student.get(t))
    both = (f"token {own[token]}" if token in own else "no token" for own in (teacher, student))
    return (
        f"its tokenizer is not that of model_name_or_path: {token!r} is {' here and '.join(both)}"
        " there; a student needs the tokenizer of its teacher"
    )


def resolve_reward_model(given: Any, folder: Path) -> Any:
    """A reward with its model's absolute path, if it has one; of a trial its newest checkpoint.

    Args:
        given: value of a key of `rewards`.
        folder: of the sweep file.
    """
    path = given.get("path") if isinstance(given, dict) else given
    if not isinstance(path, str) or (found := path_in(folder, path)) is None:
        return given
    whole = str(TrialPaths(Path(found)).newest_checkpoint() or found)
    return {**given, "path": whole} if isinstance(given, dict) else whole


def reward_model_problem(path: str) -> str | None:
    """Why the model in a folder cannot give rewards, if so; None for a hub id."""
    folder = Path(path).expanduser()
    if not path.startswith(("/", ".", "~")) and path.count("/") < 2 and not folder.is_dir():
        return None
    if (missing := missing_of_model(folder)) is not None:
        return missing
    outputs = len(description_of(folder).get("id2label", "ab"))
    if outputs == 1:
        return None
    return (
        f"{folder}: a reward model has one output (num_labels: 1), this model {outputs};"
        " trainable: classifier with task: reward trains one"
    )
