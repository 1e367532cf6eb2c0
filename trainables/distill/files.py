"""Looks at the files of a teacher without loading it: no torch, as `tune plan` does it too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainables.training.start_model import Tokens, missing_of_model, tokens_of


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
    try:
        shape: dict[str, Any] = json.loads((folder / "config.json").read_text())
        tokens = tokens_of(folder)
    except ValueError as e:
        yield f"{folder}: config.json or tokenizer.json cannot be read ({e})"
        return
    if len(tokens) > (size := int(shape.get("vocab_size", len(tokens)))):
        yield f"{folder}: its tokenizer has {len(tokens)} tokens, and its model {size}"
    positions = shape.get("max_position_embeddings") or shape.get("n_positions")
    if positions is not None and positions < sequence_length:
        yield f"{folder}: the model has {positions} positions, and sequence_length is larger"
    if student is not None and (student / "tokenizer.json").is_file():
        try:
            problem = tokens_problem(tokens, tokens_of(student))
        except ValueError as e:
            problem = f"the student's tokenizer.json cannot be read ({e})"
        if problem:
            yield f"{folder}: {problem}"


def tokens_problem(teacher: Tokens, student: Tokens) -> str | None:
    """Why two tokenizers do not give texts the same numbers, if so."""
    if teacher == student:
        return None
    if len(teacher) != len(student):
        return (
            f"its tokenizer has {len(teacher)} tokens, that of model_name_or_path {len(student)};"
            " a student needs the tokenizer of its teacher"
        )
    token = min(t for t in teacher if teacher[t] != student.get(t))
    there = "no token" if token not in student else f"token {student[token]}"
    return (
        f"its tokenizer is not that of model_name_or_path: {token!r} is token {teacher[token]}"
        f" here and {there} there; a student needs the tokenizer of its teacher"
    )
