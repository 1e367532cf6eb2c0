"""`tune export`: write a model in other formats, and verify each copy in a new process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.errors import UserError, suggest
from tuning.cli.damage import AcceptDamage, intact
from tuning.cli.formatting import echo
from tuning.cli.options import Soup, StorageDir, Sweep, Trial, Trust, trusted_sweep

if TYPE_CHECKING:
    from results.export import ModelSource, Verification
    from tuning.evaluation.load_model import SelectedModel


def export(
    sweep: Sweep,
    to: Annotated[
        str, typer.Option("--to", help="Formats, separated by commas: hf, onnx, pt2, gguf, mlflow.")
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
    from tuning.evaluation.load_model import select_model

    formats = _formats(to)
    paths = intact(trusted_sweep(sweep, storage, trust), accept_damage)
    picked = select_model(paths, trial, soup, "export")
    run = _Export(picked, _model(picked), verify, force)
    for name in formats:
        if name == "mlflow":
            run.register(register_as or picked.spec.name)
        else:
            run.write(name)


def _formats(to: str) -> list[str]:
    """The requested formats, without duplicates.

    Raises:
        UserError: unknown format, or its packages are missing.
    """
    from results.export import FORMATS, make_format

    known = [*FORMATS, "mlflow"]
    names = list(dict.fromkeys(name.strip() for name in to.split(",") if name.strip()))
    if not names:
        raise UserError(f"--to: needs one or more of {', '.join(known)}")
    for name in names:
        if name not in known:
            raise UserError(f"--to {name}: no such format{suggest(name, known)}")
        make_format("onnx" if name == "mlflow" else name).check_installed(name)
    return names


def _model(picked: SelectedModel) -> ModelSource:
    from results.export import ModelSource

    cache = picked.paths.storage.cache
    return ModelSource(
        lambda: picked.trainable.exportable(picked.config, picked.source, cache),
        lambda folder: picked.trainable.export_hf(picked.config, picked.source, folder, cache),
    )


@dataclass(frozen=True)
class _Export:
    """Exports one model to several formats."""

    picked: SelectedModel
    model: ModelSource
    verify: bool
    force: bool

    def write(self, name: str) -> None:
        """Write a folder and print its path."""
        from results.export import make_format

        target, checks = self._export(name, self.force)
        echo(f"exported {self.picked.name} to {target}")
        for check in checks:
            echo(f"verified   {check.summary}")
        form = make_format(name)
        for runtime in form.runtimes if self.verify else ():
            if not runtime.installed:
                needs = runtime.needs
                echo(f"not run    {needs}; to verify with it: pip install {needs}")
        echo(f"load       {form.load_line(target).format(folder=target)}")

    def _export(self, name: str, force: bool) -> tuple[Path, tuple[Verification, ...]]:
        from results.export import export_model

        picked = self.picked
        target = picked.paths.exports / f"{picked.name}-{name}"
        try:
            checks = export_model(
                picked.source, target, name, self.model, picked.card, check=self.verify, force=force
            )
        except NotImplementedError as e:
            raise UserError(f"trainable {picked.spec.trainable}: {e}") from e
        return target, checks

    def register(self, name: str) -> None:
        """Register the verified ONNX file in MLflow."""
        from results.tracking.model_registry import CANDIDATE, CHAMPION, register
        from tuning.controller.sweep_dir.folder import read_state
        from tuning.controller.tracking.observer import tracking_uri

        picked = self.picked
        onnx, _ = self._export("onnx", force=True)
        made = register(
            tracking_uri(picked.spec, picked.paths),
            picked.paths.storage.artifacts,
            picked.spec.tracking.experiment or picked.spec.name,
            onnx,
            name,
            self.model.exportable,
            {"tune.export_of": read_state(picked.paths).key, "tune.model": picked.name},
            champion=picked.confirmed,
        )
        alias = CHAMPION if picked.confirmed else CANDIDATE
        echo(f"registered {picked.name} as {name} version {made.version}, @{alias}")
        echo(f"verified   {made.verification.summary}")
        echo(f'load       mlflow.pyfunc.load_model("{made.uri(alias)}")')
        if not picked.confirmed:
            echo(f"not @champion: {picked.unconfirmed_reason}")
