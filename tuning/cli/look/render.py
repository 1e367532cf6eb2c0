"""`tune render` and `tune monitor`, which write files for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from search_spaces.errors import UserError
from tuning.cli.formatting import echo
from tuning.cli.options import File, Set, StorageDir, with_results


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
    """Write files that run the sweep of a file on Kubernetes (kubectl apply -k DIR) or SkyPilot.

    The file says in `cluster` which machines there are. Overlays are kustomize components.

    Example: tune render k8s search_spaces/llm.yaml k8s --with queue --with spot
    """
    from results.analysis.selection import select_winner
    from results.records.spec_file import read_spec
    from results.storage.folder import write_folder
    from search_spaces.loading.sweep_file import load_sweep
    from search_spaces.pipeline.loading import is_pipeline_file
    from tuning.controller.preflight.checks import preflight
    from tuning.submit.manifests import render_k8s
    from tuning.submit.sky import render_sky

    if is_pipeline_file(file):
        raise UserError(f"{file}: a pipeline cannot be rendered; render the files of its sweeps")
    loaded = load_sweep(file, set_)
    preflight(loaded)
    if target == "sky":
        if winner is not None:
            raise UserError("--winner: has no effect on sky; leave it out")
        made = render_sky(loaded, overlays)
        _list(write_folder(directory, made))
        return echo(f"then, as the head of {directory / next(iter(made))} says", err=True)
    params = None
    if winner is not None:
        paths = with_results(winner, storage)
        params = select_winner(paths, read_spec(paths)).line.record.params
    made = render_k8s(loaded, overlays, params)
    monitor(directory / "overlays" / "monitoring", alertmanager="alertmanager:9093")
    _list(write_folder(directory, made))
    echo(
        f"then, with the secrets of {directory / 'README.md'}: kubectl apply -k {directory}",
        err=True,
    )


def _list(paths: Sequence[Path]) -> None:
    for path in paths:
        echo(str(path))


def _option(metavar: str, help_: str) -> Any:
    return typer.Option(metavar=metavar, help=help_)


def monitor(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", file_okay=False, help="Folder for the files.")
    ],
    temperature: Annotated[
        float, _option("C", "HighGPUTemperature: above so many degrees Celsius")
    ] = 85,
    temperature_for: Annotated[str, _option("T", "… for so long.")] = "5m",
    utilization: Annotated[
        float, _option("PERCENT", "LowGPUUtilization: below so many percent")
    ] = 50,
    utilization_for: Annotated[str, _option("T", "… for so long.")] = "10m",
    stalled: Annotated[str, _option("T", "TrainingStalled: no report for so long.")] = "5m",
    down: Annotated[str, _option("T", "DriverDown: no answer for so long.")] = "1m",
    failures: Annotated[int, _option("N", "AllTrialsFailing: so many within 15 minutes.")] = 3,
    budget: Annotated[
        float, _option("PERCENT", "BudgetNearlySpent: more than so many percent.")
    ] = 90,
    disk: Annotated[float, _option("PERCENT", "DiskFilling: less than so many percent free.")] = 10,
    checkpoint: Annotated[str, _option("T", "CheckpointAge: none for so long.")] = "1h",
    interval: Annotated[str, _option("T", "Time between two scrapes of Prometheus.")] = "15s",
    group_wait: Annotated[
        str, _option("T", "Time for which Alertmanager collects alerts.")
    ] = "30s",
    webhook: Annotated[
        str, _option("URL", "Where Alertmanager sends alerts.")
    ] = "http://127.0.0.1:8080/alerts",
    alertmanager: Annotated[
        str, _option("HOST:PORT", "Where Prometheus finds Alertmanager.")
    ] = "127.0.0.1:9093",
    storage: StorageDir = None,
) -> None:
    """Write Prometheus' configuration, alert rules, an Alertmanager example, a Grafana dashboard.

    Example: tune monitor monitoring --temperature 80 --webhook https://example.org/hook
    """
    from results.paths import Storage
    from results.storage.folder import write_folder
    from results.sweep_folder.folder import resolve_storage
    from tuning.deploy.monitoring import rendered

    targets = Storage(resolve_storage(storage).root.resolve()).targets
    times = {
        "temperature_for": temperature_for,
        "utilization_for": utilization_for,
        "down_for": down,
        "interval": interval,
        "group_wait": group_wait,
    }
    values: dict[str, object] = {
        **{name: f"{_seconds(name, text):g}s" for name, text in times.items()},
        **{"stalled": str(_seconds("stalled", stalled)), "failures": failures, "disk": disk},
        **{"checkpoint": str(_seconds("checkpoint", checkpoint)), "temperature": temperature},
        **{"utilization": utilization, "budget": budget, "webhook": webhook},
        **{"alertmanager": alertmanager, "targets": targets},
    }
    _list(write_folder(directory, rendered(values)))


def _seconds(name: str, text: str) -> int:
    """Prometheus takes whole seconds.

    Raises:
        UserError: not a duration.
    """
    from search_spaces.spec.base import parse_duration

    option = "--down" if name == "down_for" else f"--{name.replace('_', '-')}"
    try:
        return max(1, round(parse_duration(text)))
    except ValueError as e:
        raise UserError(f"{option}: {e}") from e
