"""Write an exported model as a folder that appears whole or not at all, with a model card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from results.checkpoints.commit import MANIFEST, CheckpointError, staged, verify
from results.checkpoints.streaming_hash import hash_file
from results.export.exportable import ModelSource
from results.export.format import Format, make_format
from results.export.verify import Verification, verify_export, write_report
from search_spaces.errors import UserError


@dataclass(frozen=True)
class ModelCard:
    """Content of the model card.

    Attributes:
        value: the model's own value of the metric; None when it was not measured.
        parents: ids of the trials whose weights are in the model.
        params: of the first parent, flat; the parameters that varied in the sweep.
        data: lines about the training data, and why the model was chosen.
        where: the data on which `value` was measured.
    """

    sweep: str
    metric: str
    value: float | None
    parents: tuple[str, ...]
    params: Mapping[str, object] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    where: str = ""


def export_model(
    source: Path,
    target: Path,
    name: str,
    model: ModelSource,
    card: ModelCard,
    *,
    check: bool = True,
    force: bool = False,
) -> tuple[Verification, ...]:
    """Write a model in a format, and verify the copy before it appears at its target.

    Args:
        source: the checkpoint or soup from which the model is read; its hashes are verified first.
        target: the folder; appears complete, with a `README.md` model card, by a rename.
        name: of the format.
        check: run the copy in fresh processes and compare (`export_report.json`).
        force: replace an earlier export at `target`. Other folders are never replaced.

    Returns:
        The passed verifications of all installed runtimes; none without `check`.

    Raises:
        UserError: the source is damaged, the target exists, packages are missing, or the copy's
            outputs differ from the original's; no file is left then.
        NotImplementedError: the trainable does not support the format.
    """
    form = make_format(name)
    form.check_installed(name)
    try:
        verify(source)
    except CheckpointError as e:
        raise UserError(f"{e}; it cannot be exported") from e
    _check_target(target, force)
    with staged(target) as folder:
        form.write(model, folder)
        (folder / "README.md").write_text(_readme(folder, card, name, form))
        return _verify(folder, name, form, model) if check else ()


def _verify(folder: Path, name: str, form: Format, model: ModelSource) -> tuple[Verification, ...]:
    """Verify by each installed runtime; write `export_report.json`; stop at the first failure."""
    found = []
    for runtime in form.runtimes:
        if not runtime.installed:
            continue
        found.append(verify_export(folder, runtime, model.exportable))
        if not found[-1].passed:
            raise UserError(f"--to {name}: not exported, the copy differs: {found[-1].summary}")
    write_report(folder, found)
    return tuple(found)


def _check_target(target: Path, force: bool) -> None:
    if not target.exists():
        return
    if not force:
        raise UserError(f"{target}: exists already; replace it with --force")
    if not (target / MANIFEST).is_file():
        raise UserError(f"{target}: is not an earlier export, so --force does not replace it")


def _readme(folder: Path, card: ModelCard, name: str, form: Format) -> str:
    value = "not measured" if card.value is None else f"{card.value:.6g} {card.where}".rstrip()
    files = sorted(p for p in folder.iterdir() if p.suffix in form.weights)
    weights = [f"- `{p.name}`: `{hash_file(p).sha256}`" for p in files]
    params = [f"- `{key}`: `{json.dumps(v, default=str)}`" for key, v in card.params.items()]
    lines = [
        *(["---", "library_name: transformers", "---", ""] if name == "hf" else []),
        f"# {card.sweep}: {' + '.join(card.parents)}",
        "",
        f"- sweep: `{card.sweep}`",
        f"- trials: {', '.join(f'`{p}`' for p in card.parents)}",
        f"- `{card.metric}`: {value}",
        *(f"- {line}" for line in card.data),
        f"- load: `{form.load_line(folder).format(folder='.')}`",
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
