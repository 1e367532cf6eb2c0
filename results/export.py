"""A model folder for the world outside: whole or not there, with a card that says whence."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from results.checkpoint import MANIFEST, CheckpointError, commit, open_staging, verify
from search_spaces.errors import UserError

Writer = Callable[[Path], None]
"""Writes the model into an empty folder; the trainable knows how."""


@dataclass(frozen=True)
class Card:
    """What the model card says.

    Attributes:
        sweep: its name.
        metric: name of the metric.
        value: the model's own value of it; None when it was not judged.
        parents: ids of the trials whose weights are in it.
        params: of the first parent, flat; what varied in the sweep.
    """

    sweep: str
    metric: str
    value: float | None
    parents: tuple[str, ...]
    params: Mapping[str, object] = field(default_factory=dict)


def export_hf(
    source: Path, target: Path, writer: Writer, card: Card, *, force: bool = False
) -> Path:
    """Write a folder that `transformers` loads as it is, a `README.md` model card included.

    Args:
        source: the checkpoint or soup that the writer reads; verified first.
        target: the folder; appears complete, by a rename.
        writer: see `Writer`.
        card: for the README.
        force: replace an earlier export at `target`. Other folders are never replaced.

    Returns:
        `target`.

    Raises:
        UserError: the source is damaged, or the target is there already.
    """
    try:
        verify(source)
    except CheckpointError as e:
        raise UserError(f"{e}; it cannot be exported") from e
    _check_target(target, force)
    folder = target.with_name(f".{target.name}.{os.getpid()}.export")
    open_staging(folder)
    try:
        writer(folder)
        (folder / "README.md").write_text(_readme(folder, card))
        commit(folder, target, step=0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return target


def _check_target(target: Path, force: bool) -> None:
    if not target.exists():
        return
    if not force:
        raise UserError(f"{target}: is there already; replace it with --force")
    if not (target / MANIFEST).is_file():
        raise UserError(f"{target}: is no earlier export, so --force does not replace it")


def _readme(folder: Path, card: Card) -> str:
    value = "not measured" if card.value is None else f"{card.value:.6g}"
    weights = [f"- `{p.name}`: `{_sha256(p)}`" for p in sorted(folder.glob("*.safetensors"))]
    params = [f"- `{name}`: `{json.dumps(v, default=str)}`" for name, v in card.params.items()]
    lines = [
        "---",
        "library_name: transformers",
        "---",
        "",
        f"# {card.sweep}: {' + '.join(card.parents)}",
        "",
        f"- sweep: `{card.sweep}`",
        f"- trials: {', '.join(f'`{p}`' for p in card.parents)}",
        f"- `{card.metric}`: {value}",
        "",
        f"## Hyperparameters of `{card.parents[0]}`",
        "",
        *(params or ["None varied."]),
        "",
        "## SHA-256 of the weights",
        "",
        *weights,
    ]
    return "\n".join(lines) + "\n"


def _sha256(path: Path) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
