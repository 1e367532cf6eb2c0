"""`tune export`: write a model in other formats, and verify each copy in a new process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from search_spaces.errors import UserError
from tuning.cli.damage import AcceptDamage
from tuning.cli.formatting import local_path, tell
from tuning.cli.options import Soup, StorageDir, Sweep, Trial, Trust
from tuning.cli.use.model import ModelOptions

if TYPE_CHECKING:
    from tuning.evaluation.load_model import SelectedModel


def export(
    sweep: Sweep,
    to: Annotated[
        str,
        typer.Option(
            "--to", help="Formats, separated by commas: hf, onnx, pt2, gguf, safetensors, mlflow."
        ),
    ] = "hf",
    quant: Annotated[
        Literal["q8_0", "q4_k_m", "int8"] | None,
        typer.Option(help="Weights of fewer bits: q8_0 or q4_k_m for gguf, int8 for onnx."),
    ] = None,
    layout: Annotated[
        Literal["plain", "classic"],
        typer.Option(
            help="classic: metrics.csv, training_log.json, training_config.json, and the model in "
            "final/."
        ),
    ] = "plain",
    trial: Trial = None,
    soup: Soup = None,
    verify: Annotated[
        bool,
        typer.Option(help="Run each copy in a new process, and delete it if its outputs differ."),
    ] = True,
    register_as: Annotated[
        str | None,
        typer.Option(
            "--name", help="Name of the registered model (mlflow); default: the sweep's name."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False,
    trust: Trust = False,
    accept_damage: AcceptDamage = False,
    storage: StorageDir = None,
) -> None:
    """Export a model to transformers, ONNX, llama.cpp or MLflow.

    Example: tune export llm --to hf,onnx
    """
    from tuning.evaluation.export_model import check_formats

    formats, classic = check_formats(to, quant), layout == "classic"
    picked = ModelOptions(trial, soup, trust, accept_damage, storage).select(sweep, "export")
    _check(formats, register_as, classic)
    for name in formats:
        if name == "mlflow":
            _register(picked, register_as or picked.spec.name, verify)
        else:
            _write(picked, name, verify, force, classic)


def _check(formats: Sequence[str], register_as: str | None, classic: bool) -> None:
    to = ",".join(formats)
    if register_as and "mlflow" not in formats:
        raise UserError(f"--name {register_as}: is of --to mlflow, and has no effect with {to}")
    if classic and (len(formats) > 1 or "mlflow" in formats):
        raise UserError(f"--layout classic: final/ holds one format that is a folder, not {to}")


def _write(picked: SelectedModel, name: str, verify: bool, force: bool, classic: bool) -> None:
    """Write a folder and print its path."""
    from results.export.format import make_format
    from results.export.verify import perplexity_line
    from tuning.evaluation.export_model import export_classic, export_selected, narrow_types

    write = export_classic if classic else export_selected
    target, checks = write(picked, name, verify, force)
    tell(f"exported {picked.name} to {local_path(target)}")
    if name == "hf" and (narrow := narrow_types(picked)):
        tell(f"dtype      float32; stored as {narrow}, which --to safetensors keeps")
    for check in checks:
        tell(f"verified   {check.summary}")
    model = target / "final" if classic else target
    if (line := perplexity_line(model)) is not None:
        tell(f"perplexity {line}")
    form = make_format(name)
    for runtime in form.judges(model) if verify else ():
        if not runtime.installed:
            needs = runtime.needs
            tell(f"not run    {needs}; to verify with it: pip install {needs}")
    tell(f"load       {form.load_line(model).format(folder=local_path(model))}")


def _register(picked: SelectedModel, name: str, verify: bool) -> None:
    """Register the verified ONNX file in MLflow."""
    from results.tracking.mlflow.model_registry import CANDIDATE, CHAMPION
    from tuning.evaluation.export_model import register_selected

    made = register_selected(picked, name, verify)
    alias = CHAMPION if picked.confirmed else CANDIDATE
    tell(f"registered {picked.name} as {name} version {made.version}, @{alias}")
    tell(f"verified   {made.verification.summary}")
    tell(f'load       mlflow.pyfunc.load_model("{made.uri(alias)}")')
    if not picked.confirmed:
        tell(f"not @champion: {picked.unconfirmed_reason}")
