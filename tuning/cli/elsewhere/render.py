"""`tune render`: files that run a sweep on machines which another program manages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from search_spaces.errors import UserError
from tuning.cli.formatting import echo
from tuning.cli.options import File, Set, StorageDir, with_results
from tuning.cli.setup.monitor import list_files, monitor

if TYPE_CHECKING:
    from search_spaces.loading.sweep_file import LoadedSweep


def render(
    target: Annotated[
        Literal["k8s", "sky"],
        typer.Argument(metavar="k8s|sky", help="For Kubernetes, or for SkyPilot."),
    ],
    file: File,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", file_okay=False, help="Folder for the manifests.")
    ],
    overlays: Annotated[
        list[str],
        typer.Option(
            "--with",
            metavar="OVERLAY",
            help="Switch an overlay on; may be repeated. For SkyPilot: the kind of GPU, like H100.",
        ),
    ] = [],  # noqa: B006 - typer reads the default, it is never changed
    winner: Annotated[
        str | None,
        typer.Option(
            metavar="SWEEP", help="Also jobs that train the winner of this sweep by torchrun."
        ),
    ] = None,
    set_: Set = [],  # noqa: B006 - typer reads the default, it is never changed
    storage: StorageDir = None,
) -> None:
    """Write files that run a sweep on Kubernetes or SkyPilot.

    The file says in `cluster` which machines there are. Overlays are kustomize components, which
    kubectl apply -k DIR puts together.

    Example: tune render k8s llm.yaml k8s --with queue --with spot
    """
    from results.storage.folder import write_folder
    from search_spaces.loading.sweep_file import load_sweep
    from search_spaces.pipeline.loading import is_pipeline_file
    from tuning.controller.preflight.checks import preflight
    from tuning.submit.sky import render_sky

    if is_pipeline_file(file):
        raise UserError(f"{file}: a pipeline cannot be rendered; render the files of its sweeps")
    if target == "sky" and winner is not None:
        raise UserError("--winner: has no effect on sky; leave it out")
    loaded = load_sweep(file, set_)
    preflight(loaded)
    if target == "k8s":
        return _render_k8s(loaded, directory, overlays, winner, storage)
    made = render_sky(loaded, overlays)
    list_files(write_folder(directory, made))
    echo(f"then, as the head of {directory / next(iter(made))} says", err=True)


def _render_k8s(
    loaded: LoadedSweep,
    directory: Path,
    overlays: list[str],
    winner: str | None,
    storage: str | None,
) -> None:
    from results.analysis.selection import select_winner
    from results.records.spec_file import read_spec
    from results.storage.folder import write_folder
    from tuning.submit.manifests import render_k8s

    params = None
    if winner is not None:
        paths = with_results(winner, storage)
        params = select_winner(paths, read_spec(paths)).line.record.params
    made = render_k8s(loaded, overlays, params)
    monitor(directory / "overlays" / "monitoring", alertmanager="alertmanager:9093")
    list_files(write_folder(directory, made))
    echo(
        f"then, with the secrets of {directory / 'README.md'}: kubectl apply -k {directory}",
        err=True,
    )
