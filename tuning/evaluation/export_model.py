"""Export the selected model of a sweep to other formats."""

from __future__ import annotations

from pathlib import Path

from results.export import FORMATS, ModelSource, Verification, export_model, make_format
from search_spaces.errors import UserError, suggest
from tuning.evaluation.load_model import SelectedModel


def check_formats(to: str) -> list[str]:
    """The formats in a text like `hf,onnx`, without duplicates.

    Raises:
        UserError: unknown format, or its packages are missing.
    """
    known = [*FORMATS, "mlflow"]
    names = list(dict.fromkeys(name.strip() for name in to.split(",") if name.strip()))
    if not names:
        raise UserError(f"--to: needs one or more of {', '.join(known)}")
    for name in names:
        if name not in known:
            raise UserError(f"--to {name}: no such format{suggest(name, known)}")
        make_format("onnx" if name == "mlflow" else name).check_installed(name)
    return names


def model_source(picked: SelectedModel) -> ModelSource:
    """How a format gets the model."""
    cache = picked.paths.storage.cache
    return ModelSource(
        picked.source,
        lambda: picked.trainable.exportable(picked.config, picked.source, cache),
        lambda folder: picked.trainable.export_hf(picked.config, picked.source, folder, cache),
    )


def export_selected(
    picked: SelectedModel, name: str, verify: bool, force: bool
) -> tuple[Path, tuple[Verification, ...]]:
    """Write the model in one format; returns the folder, and the checks of its outputs.

    Raises:
        UserError: the trainable does not have this format, or the copy differs.
    """
    target = picked.paths.exports / f"{picked.name}-{name}"
    model = model_source(picked)
    try:
        checks = export_model(
            picked.source, target, name, model, picked.card, check=verify, force=force
        )
    except NotImplementedError as e:
        raise UserError(f"trainable {picked.spec.trainable}: {e}") from e
    return target, checks
