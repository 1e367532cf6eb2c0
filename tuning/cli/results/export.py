"""`tune export`: write a model in other formats, and verify each copy in a new process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from search_spaces.errors import UserError
from tuning.cli.damage import AcceptDamage, intact
from tuning.cli.formatting import echo
from tuning.cli.options import Soup, StorageDir, Sweep, Trial, Trust, soup_to_use, trusted_sweep

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
        Literal["q8_0", "int8"] | None,
        typer.Option(help="Weights of 8 bits: q8_0 for gguf, int8 for onnx."),
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
    """Export a model: for transformers, ONNX, torch.export, llama.cpp, or MLflow's registry.

    Example: tune export llm --to hf,onnx
    """
    from tuning.evaluation.export_model import check_formats
    from tuning.evaluation.load_model import select_model

    formats = check_formats(to, quant)
    paths = intact(trusted_sweep(sweep, storage, trust), accept_damage)
    soup = soup_to_use(sweep, storage, trial, soup)
    picked = select_model(paths, trial, soup, "export")
    run = _Export(picked, verify, force, layout == "classic")
    if run.classic and (len(formats) > 1 or "mlflow" in formats):
        raise UserError(f"--layout classic: final/ holds one format that is a folder, not {to}")
    for name in formats:
        if name == "mlflow":
            run.register(register_as or picked.spec.name)
        else:
            run.write(name)


@dataclass(frozen=True)
class _Export:
    """Exports one model to several formats."""

    picked: SelectedModel
    verify: bool
    force: bool
    classic: bool

    def write(self, name: str) -> None:
        """Write a folder and print its path."""
        from results.export import make_format
        from tuning.evaluation.export_model import export_classic, export_selected

        write = export_classic if self.classic else export_selected
        target, checks = write(self.picked, name, self.verify, self.force)
        echo(f"exported {self.picked.name} to {target}")
        for check in checks:
            echo(f"verified   {check.summary}")
        form = make_format(name)
        for runtime in form.runtimes if self.verify else ():
            if not runtime.installed:
                needs = runtime.needs
                echo(f"not run    {needs}; to verify with it: pip install {needs}")
        model = target / "final" if self.classic else target
        echo(f"load       {form.load_line(model).format(folder=model)}")

    def register(self, name: str) -> None:
        """Register the verified ONNX file in MLflow."""
        from results.tracking.mlflow.model_registry import CANDIDATE, CHAMPION
        from tuning.evaluation.export_model import register_selected

        picked = self.picked
        made = register_selected(picked, name, self.verify)
        alias = CHAMPION if picked.confirmed else CANDIDATE
        echo(f"registered {picked.name} as {name} version {made.version}, @{alias}")
        echo(f"verified   {made.verification.summary}")
        echo(f'load       mlflow.pyfunc.load_model("{made.uri(alias)}")')
        if not picked.confirmed:
            echo(f"not @champion: {picked.unconfirmed_reason}")
