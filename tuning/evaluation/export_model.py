"""Export the selected model of a sweep to other formats."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.checkpoints.tensor_layout import read_layout
from results.export.classic import write_classic
from results.export.exportable import ModelSource
from results.export.folder import ModelCard, export_model
from results.export.format import FORMATS, make_format, quantized
from results.export.verify import Verification
from results.models.lineage import ancestors
from results.models.origins import title_of
from results.models.ref import ModelRef
from results.records.evaluations import read_evaluations
from results.records.trial import read_reports, read_trial
from results.trial_paths import DATA_KEY
from search_spaces.errors import UserError, suggest
from trainables.base import Split
from tuning.evaluation.load_model import SelectedModel

MEASURED_TOKENS = 16_384
"""On which the perplexity of quantized weights is measured, at most."""

if TYPE_CHECKING:
    from results.tracking.mlflow.model_registry import RegisteredVersion


def check_formats(to: str, quant: str | None = None) -> list[str]:
    """The formats in a text like `hf,onnx`, without duplicates, as `export_selected` takes them.

    Args:
        to: the text.
        quant: kind of 8-bit weights, for all of them.

    Raises:
        UserError: unknown format, one without this kind of weights, or its packages are missing.
    """
    known = [*(name for name in FORMATS if "-" not in name), "mlflow"]
    names = list(dict.fromkeys(name.strip() for name in to.split(",") if name.strip()))
    if not names:
        raise UserError(f"--to: needs one or more of {', '.join(known)}")
    for name in names:
        if name not in known:
            raise UserError(f"--to {name}: no such format{suggest(name, known)}")
        make_format("onnx" if name == "mlflow" else name).check_installed(name)
    return [quantized(name, quant) for name in names]


def model_source(picked: SelectedModel) -> ModelSource:
    """How a format gets the model."""
    cache = picked.paths.storage.cache
    return ModelSource(
        picked.source,
        lambda: picked.trainable.exportable(picked.config, picked.source, cache),
        lambda folder: picked.trainable.export_hf(picked.config, picked.source, folder, cache),
        *_perplexities(picked),
    )


def _perplexities(picked: SelectedModel) -> tuple[Callable[[Path], list[float]] | None, str]:
    """`perplexities` and `measured_on` of a model's source."""
    if "perplexity" not in picked.trainable.metric_names:
        return None, f"{picked.spec.trainable} measures none on a selection split"
    config: Any = picked.config
    length = config.sequence_length
    count = min(config.eval_sequences, max(1, MEASURED_TOKENS // length))
    changed = {"eval_sequences": count, "dtype": "float32"}
    answers = {"eval_answers": 0} if "eval_answers" in vars(config) else {}
    config = config.model_copy(update={**changed, **answers})

    def perplexities(folder: Path) -> list[float]:
        if (key := picked.source / DATA_KEY).exists() and folder != picked.source:
            shutil.copyfile(key, folder / DATA_KEY)
        split, cache = Split.SELECTION, picked.paths.storage.cache
        return picked.trainable.examples(config, folder, split, cache)["perplexity"]

    return perplexities, f"of at most {length} tokens of the selection split"


def export_ref(picked: SelectedModel, name: str) -> ModelRef:
    """The copy of a model in a format, where `export_selected` writes it."""
    path = str(picked.paths.exports / f"{picked.name}-{name}")
    return replace(picked.ref, kind="export", path=path)


def narrow_types(picked: SelectedModel) -> str:
    """The 16-bit types in which its weights are stored, which `--to hf` makes float32."""
    files = picked.source.glob("model*.safetensors")
    found = {tensor.dtype for file in files for tensor in read_layout(file).tensors.values()}
    return ", ".join(sorted(found & {"BF16", "F16"}))


def export_selected(
    picked: SelectedModel, name: str, verify: bool, force: bool
) -> tuple[Path, tuple[Verification, ...]]:
    """Write the model in one format; returns the folder, and the checks of its outputs.

    Raises:
        UserError: the trainable does not have this format, or the copy differs.
    """
    target = export_ref(picked, name).folder
    return target, _export_to(target, picked, name, verify, force)


def export_classic(
    picked: SelectedModel, name: str, verify: bool, force: bool
) -> tuple[Path, tuple[Verification, ...]]:
    """As `export_selected`, in the layout of `results.export.classic`.

    Raises:
        UserError: the model is an average, which has no training log.
    """
    if picked.name not in picked.paths.trial_ids():
        raise UserError(
            f"--layout classic: {picked.name} is an average, which has no training log; choose one "
            "of its trials with --trial"
        )
    files = picked.paths.trial(picked.name)
    record, target = read_trial(files), picked.paths.exports / f"{picked.name}-classic"
    checks = write_classic(
        target,
        lambda final: _export_to(final, picked, name, verify, force=False),
        picked.spec.trainable,
        record,
        read_reports(files, record.end_step),
        force=force,
    )
    return target, checks


def _export_to(
    target: Path, picked: SelectedModel, name: str, verify: bool, force: bool
) -> tuple[Verification, ...]:
    only = picked.trainable.formats
    if only and name not in only:
        raise UserError(f"--to {name}: {picked.spec.trainable} is exported to {', '.join(only)}")
    model = model_source(picked)
    metric, ref = picked.spec.metric, picked.ref
    card = ModelCard(
        title_of(picked.paths.root),
        metric,
        ref.metrics[metric],
        ref.lineage,
        picked.params,
        (*picked.notes, *_evaluations(picked)),
        picked.where,
        ancestors(picked.paths, picked.name),
    )
    try:
        return export_model(picked.source, target, name, model, card, check=verify, force=force)
    except NotImplementedError as e:
        raise UserError(f"trainable {picked.spec.trainable}: {e}") from e


def _evaluations(picked: SelectedModel) -> list[str]:
    """Lines about the scores of these weights on tasks; of equal settings the newest ones."""
    found: dict[str, str] = {}
    for one in read_evaluations(picked.paths):
        if (one.model, one.digest) == (picked.name, picked.ref.digest):
            found |= one.lines
    return list(found.values())


def register_selected(picked: SelectedModel, name: str, verify: bool) -> RegisteredVersion:
    """Register the model in MLflow, as an ONNX file; it is `champion` only if it is confirmed.

    Args:
        name: of the registered model.
        verify: also compare the file before it is registered; the registered model always is.

    Raises:
        UserError: see `export_selected` and `register`.
    """
    from results.sweep_folder.folder import read_state
    from results.tracking.mlflow.model_registry import register
    from tuning.controller.tracking.observer import artifact_root, experiment_of, tracking_uri

    onnx, _ = export_selected(picked, "onnx", verify, force=True)
    uri = tracking_uri(picked.spec, picked.paths)
    return register(
        uri,
        artifact_root(uri, picked.paths),
        experiment_of(picked.spec, picked.paths),
        onnx,
        name,
        model_source(picked).exportable,
        {"tune.export_of": read_state(picked.paths).key, "tune.model": picked.name},
        champion=picked.confirmed,
    )
