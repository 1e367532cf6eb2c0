"""`tune monitor`: files with which Prometheus, Alertmanager and Grafana watch sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from search_spaces.errors import UserError
from tuning.cli.formatting import echo
from tuning.cli.options import StorageDir


def _option(metavar: str, help_: str) -> Any:
    return typer.Option(metavar=metavar, help=help_)


def monitor(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", file_okay=False, help="Folder for the files.")
    ],
    temperature: Annotated[
        float, _option("C", "HighGPUTemperature: °C above which it fires.")
    ] = 85,
    temperature_for: Annotated[str, _option("T", "How long it must be above.")] = "5m",
    utilization: Annotated[
        float, _option("PERCENT", "LowGPUUtilization: percent of use below which it fires.")
    ] = 50,
    utilization_for: Annotated[str, _option("T", "How long it must be below.")] = "10m",
    stalled: Annotated[str, _option("T", "TrainingStalled: time without a report.")] = "5m",
    down: Annotated[str, _option("T", "DriverDown: time without an answer.")] = "1m",
    failures: Annotated[int, _option("N", "AllTrialsFailing: failures within 15 minutes.")] = 3,
    budget: Annotated[float, _option("PERCENT", "BudgetNearlySpent: percent that is spent.")] = 90,
    disk: Annotated[float, _option("PERCENT", "DiskFilling: percent that is still free.")] = 10,
    checkpoint: Annotated[str, _option("T", "CheckpointAge: time without a checkpoint.")] = "1h",
    interval: Annotated[str, _option("T", "Time between two scrapes of Prometheus.")] = "15s",
    group_wait: Annotated[str, _option("T", "How long Alertmanager collects alerts.")] = "30s",
    webhook: Annotated[
        str, _option("URL", "Where Alertmanager sends alerts.")
    ] = "http://127.0.0.1:8080/alerts",
    alertmanager: Annotated[
        str, _option("HOST:PORT", "Where Prometheus finds Alertmanager.")
    ] = "127.0.0.1:9093",
    storage: StorageDir = None,
) -> None:
    """Write files for Prometheus, Alertmanager and Grafana.

    They are a configuration, alert rules, an example of routes, and a dashboard.

    Example: tune monitor monitoring --temperature 80 --webhook https://example.org/hook
    """
    from results.paths import Storage
    from results.storage.folder import write_folder
    from results.sweep_folder.folder import resolve_storage
    from tuning.deploy.monitoring import rendered

    targets = Storage(resolve_storage(storage).root.resolve()).targets
    times = {"temperature_for": temperature_for, "utilization_for": utilization_for}
    times |= {"down_for": down, "interval": interval, "group_wait": group_wait}
    values: dict[str, object] = {
        **{name: f"{_seconds(name, text):g}s" for name, text in times.items()},
        **{"stalled": str(_seconds("stalled", stalled)), "failures": failures, "disk": disk},
        **{"checkpoint": str(_seconds("checkpoint", checkpoint)), "temperature": temperature},
        **{"utilization": utilization, "budget": budget, "webhook": webhook},
        **{"alertmanager": alertmanager, "targets": targets},
    }
    list_files(write_folder(directory, rendered(values)))


def list_files(paths: Sequence[Path]) -> None:
    """Print the paths of written files."""
    for path in paths:
        echo(str(path))


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
