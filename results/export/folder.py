"""A model folder for the world outside: whole or not there, with a card that says whence."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from results.checkpoints.commit import MANIFEST, CheckpointError, commit, create_staging, verify
from results.export.formats import FORMATS, Model
from results.export.verify import Verification, verify_export, write_report
from search_spaces.errors import UserError

_WEIGHTS = (".safetensors", ".onnx", ".data", ".pt2", ".gguf")


@dataclass(frozen=True)
class Card:
    """What the model card says.

    Attributes:
        sweep: its name.
        metric: name of the metric.
        value: the model's own value of it; None when it was not judged.
        parents: ids of the trials whose weights are in it.
        params: of the first parent, flat; what varied in the sweep.
        data: lines about what it was trained on, and why it was chosen.
        where: on which data `value` was measured.
    """

    sweep: str
    metric: str
    value: float | None
    parents: tuple[str, ...]
    params: Mapping[str, object] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    where: str = ""


def export(
    source: Path,
    target: Path,
    name: str,
    model: Model,
    card: Card,
    *,
    check: bool = True,
    force: bool = False,
) -> tuple[Verification, ...]:
    """Write a model in a format, and judge it before anybody can find it.

    Args:
        source: the checkpoint or soup that the model is read from; verified first.
        target: the folder; appears complete, with a `README.md` model card, by a rename.
        name: of the format.
        model: see `Model`.
        card: for the README.
        check: run the copy in fresh processes and compare (`export_report.json`).
        force: replace an earlier export at `target`. Other folders are never replaced.

    Returns:
        The verdicts of all runtimes that are there, passed ones; none without `check`.

    Raises:
        UserError: the source is damaged, the target is there already, packages are missing, or
            the copy does not give what the original gives: then nothing is left of it.
        NotImplementedError: the trainable has no such form.
    """
    form = FORMATS[name]
    form.check_installed(name)
    try:
        verify(source)
    except CheckpointError as e:
        raise UserError(f"{e}; it cannot be exported") from e
    _check_target(target, force)
    folder = target.with_name(f".{target.name}.{os.getpid()}.export")
    create_staging(folder)
    try:
        form.write(model, folder)
        (folder / "README.md").write_text(_readme(folder, card, name, form.how(folder)))
        verdicts = _judged(folder, name, model) if check else ()
        commit(folder, target, step=0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return verdicts


def _judged(folder: Path, name: str, model: Model) -> tuple[Verification, ...]:
    """What the runtimes say, written to `export_report.json`; the first that objects ends it."""
    verdicts = []
    for runtime in FORMATS[name].runtimes:
        if not runtime.there:
            continue
        verdicts.append(verify_export(folder, runtime, model.exportable))
        if not verdicts[-1].passed:
            summary = verdicts[-1].summary
            raise UserError(f"--to {name}: not exported, the copy differs: {summary}")
    write_report(folder, verdicts)
    return tuple(verdicts)


def _check_target(target: Path, force: bool) -> None:
    if not target.exists():
        return
    if not force:
        raise UserError(f"{target}: is there already; replace it with --force")
    if not (target / MANIFEST).is_file():
        raise UserError(f"{target}: is no earlier export, so --force does not replace it")


def _readme(folder: Path, card: Card, form: str, how: str) -> str:
    value = "not measured" if card.value is None else f"{card.value:.6g} {card.where}".rstrip()
    files = sorted(p for p in folder.iterdir() if p.suffix in _WEIGHTS)
    weights = [f"- `{p.name}`: `{_sha256(p)}`" for p in files]
    params = [f"- `{name}`: `{json.dumps(v, default=str)}`" for name, v in card.params.items()]
    lines = [
        *(["---", "library_name: transformers", "---", ""] if form == "hf" else []),
        f"# {card.sweep}: {' + '.join(card.parents)}",
        "",
        f"- sweep: `{card.sweep}`",
        f"- trials: {', '.join(f'`{p}`' for p in card.parents)}",
        f"- `{card.metric}`: {value}",
        *(f"- {line}" for line in card.data),
        f"- load: `{how.format(folder='.')}`",
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
