"""Write an exported model as a folder that appears whole or not at all, with a model card.

The card, `README.md`, says what the model is, and what it was made from.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from results.checkpoints.commit import MANIFEST, CheckpointError, staged, verify
from results.checkpoints.streaming_hash import hash_file
from results.export.exportable import ModelSource
from results.export.format import Format, make_format
from results.export.verify import Verification, perplexity_line, verify_export, write_report
from results.models.lineage import Ancestor, DataSet, TrainedModel
from search_spaces.errors import UserError
from search_spaces.redaction import redacted

CARD = "README.md"


@dataclass(frozen=True)
class ModelCard:
    """Content of the model card.

    Attributes:
        value: the model's own value of the metric; None when it was not measured.
        parents: ids of the trials whose weights are in the model.
        params: of the first parent, flat; the parameters that varied in the sweep.
        data: lines about the training data, why the model was chosen, and its scores on tasks.
        where: the data on which `value` was measured.
        lineage: all from which the model comes, the oldest first and the model itself last.
    """

    sweep: str
    metric: str
    value: float | None
    parents: tuple[str, ...]
    params: Mapping[str, object] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    where: str = ""
    lineage: tuple[Ancestor, ...] = ()


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
    check_target(target, force)
    with staged(target) as folder:
        form.write(model, folder)
        checks = _verify(folder, name, form, model) if check else ()
        _write_card(folder, card, name, form, checks)
        return checks


def _verify(folder: Path, name: str, form: Format, model: ModelSource) -> tuple[Verification, ...]:
    """Verify by each installed runtime; write `export_report.json`; stop at the first failure."""
    found = []
    for runtime in form.judges(folder):
        if not runtime.installed:
            continue
        found.append(verify_export(folder, runtime, model.exportable))
        if not found[-1].passed:
            raise UserError(f"--to {name}: not exported, the copy differs: {found[-1].summary}")
    write_report(folder, found, {"perplexity": _perplexities(form, model)} if form.rounds else {})
    return tuple(found)


def _perplexities(form: Format, model: ModelSource) -> dict[str, Any]:
    """Of the model, and with the weights of its copy; the runtime may also round activations."""
    if model.perplexities is None:
        return {"reason": model.measured_on}
    with tempfile.TemporaryDirectory() as scratch:
        form.write_rounded(model, Path(scratch))
        after = model.perplexities(Path(scratch))
    before = model.perplexities(model.weights)
    on = f"{len(after)} sequences {model.measured_on}"
    return {"original": fmean(before), "quantized": fmean(after), "on": on}


def check_target(target: Path, force: bool) -> None:
    """Pass if an export may be written to a folder.

    Raises:
        UserError: it exists, and is not replaced; or it is not an earlier export.
    """
    if not target.exists():
        return
    if not force:
        raise UserError(f"{target}: exists already; replace it with --force")
    if not (target / MANIFEST).is_file():
        raise UserError(f"{target}: is not an earlier export, so --force does not replace it")


def _write_card(
    folder: Path, card: ModelCard, name: str, form: Format, checks: Sequence[Verification]
) -> None:
    """Write the card of an exported model.

    Args:
        folder: of the export, with its files.
        name, form: of the format.
        checks: comparisons of the copy with the original, which it passed.
    """
    value = "not measured" if card.value is None else f"{card.value:.6g} {card.where}".rstrip()
    files = sorted(p for p in folder.iterdir() if p.suffix in form.weights)
    lines = [
        *(["---", "library_name: transformers", "---", ""] if name == "hf" else []),
        f"# {card.sweep}: {' + '.join(card.parents)}",
        "",
        f"- sweep: `{card.sweep}`",
        f"- trials: {', '.join(f'`{p}`' for p in card.parents)}",
        f"- `{card.metric}`: {value}",
        *(f"- {line}" for line in card.data),
        *(f"- verified: {check.summary}" for check in checks),
        *([f"- perplexity: {line}"] if (line := perplexity_line(folder)) else []),
        f"- load: `{form.load_line(folder).format(folder='.')}`",
        "",
        f"## Hyperparameters of `{card.parents[0]}`",
        "",
        *(_settings(card.params) or ["None varied."]),
        "",
        "## SHA-256 of the weights",
        "",
        *(f"- `{p.name}`: `{hash_file(p).sha256}`" for p in files),
        *_lineage(card.lineage),
    ]
    (folder / CARD).write_text("\n".join(lines) + "\n")


def _settings(values: Mapping[str, object]) -> list[str]:
    return [f"- `{key}`: `{json.dumps(v, default=str)}`" for key, v in values.items()]


def _lineage(found: Sequence[Ancestor]) -> Iterator[str]:
    if not found:
        return
    yield from ("", "## Lineage", "", "What the model was made from, the oldest first.")
    for one in found:
        yield from ("", f"### {one.title}{'' if isinstance(one, DataSet) else f' {one.name}'}", "")
        yield from _data_set(one) if isinstance(one, DataSet) else _model(one)


def _data_set(one: DataSet) -> Iterator[str]:
    if one.key:
        yield f"- key of the stage: `{one.key}`"
    if one.texts:
        yield f"- texts: {', '.join(f'{count} {split}' for split, count in one.texts.items())}"
    yield from _settings(one.settings)
    yield from (f"- SHA-256 of `{file}`: `{digest}`" for file, digest in one.digests.items())


def _model(one: TrainedModel) -> Iterator[str]:
    facts = {
        "trainable": one.trainable,
        "key of the stage": one.key,
        "average": one.average and f"{one.average.method} of {', '.join(one.average.members)}",
        "chosen by": one.chosen_by,
        "began with": one.origin,
        **{key: ", ".join(s.title for s in sources) for key, sources in one.sources.items()},
        "fingerprint of the data": one.fingerprint,
    }
    yield from (f"- {name}: `{value}`" for name, value in facts.items() if value)
    at = f" at step {one.step}" if one.step else ""
    yield from (f"- `{name}`{at}: {value:.6g}" for name, value in one.metrics.items())
    yield from (f"- SHA-256 of `{file}`{at}: `{digest}`" for file, digest in one.weights.items())
    for trial in one.trials:
        yield from ("", f"Configuration of `{trial.id}`, seed {trial.seed}:", "", "```json")
        yield json.dumps(redacted(trial.config), indent=1)
        yield "```"
