"""`tune export`: write a model in other formats, and verify each copy in a new process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tuning.cli.damage import AcceptDamage, intact
from tuning.cli.formatting import echo
from tuning.cli.options import Soup, StorageDir, Sweep, Trial, Trust, trusted_sweep

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

    formats = check_formats(to)
    paths = intact(trusted_sweep(sweep, storage, trust), accept_damage)
    picked = select_model(paths, trial, soup, "export")
    run = _Export(picked, verify, force)
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

    def write(self, name: str) -> None:
        """Write a folder and print its path."""
        from results.export import make_format
        from tuning.evaluation.export_model import export_selected

        target, checks = export_selected(self.picked, name, self.verify, self.force)
        echo(f"exported {self.picked.name} to {target}")
        for check in checks:
            echo(f"verified   {check.summary}")
        form = make_format(name)
        for runtime in form.runtimes if self.verify else ():
            if not runtime.installed:
                needs = runtime.needs
                echo(f"not run    {needs}; to verify with it: pip install {needs}")
        echo(f"load       {form.load_line(target).format(folder=target)}")

    def register(self, name: str) -> None:
        """Register the verified ONNX file in MLflow."""
        from results.tracking.model_registry import CANDIDATE, CHAMPION, register
        from tuning.controller.sweep_dir.folder import read_state
        from tuning.controller.tracking.observer import tracking_uri
        from tuning.evaluation.export_model import export_selected, model_source

        picked = self.picked
        onnx, _ = export_selected(picked, "onnx", self.verify, force=True)
        made = register(
            tracking_uri(picked.spec, picked.paths),
            picked.paths.storage.artifacts,
            picked.spec.tracking.experiment or picked.spec.name,
            onnx,
            name,
            model_source(picked).exportable,
            {"tune.export_of": read_state(picked.paths).key, "tune.model": picked.name},
            champion=picked.confirmed,
        )
        alias = CHAMPION if picked.confirmed else CANDIDATE
        echo(f"registered {picked.name} as {name} version {made.version}, @{alias}")
        echo(f"verified   {made.verification.summary}")
        echo(f'load       mlflow.pyfunc.load_model("{made.uri(alias)}")')
        if not picked.confirmed:
            echo(f"not @champion: {picked.unconfirmed_reason}")
