"""`tune monitor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuning.cli.formatting import echo
from tuning.cli.options import StorageDir


def monitor(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", file_okay=False, help="Folder for the files.")
    ],
    temperature: Annotated[
        float, typer.Option(metavar="C", help="HighGPUTemperature: above so many degrees Celsius")
    ] = 85,
    temperature_for: Annotated[str, typer.Option(metavar="T", help="… for so long.")] = "5m",
    utilization: Annotated[
        float, typer.Option(metavar="PERCENT", help="LowGPUUtilization: below so many percent")
    ] = 50,
    utilization_for: Annotated[str, typer.Option(metavar="T", help="… for so long.")] = "10m",
    stalled: Annotated[
        str, typer.Option(metavar="T", help="TrainingStalled: no report for so long.")
    ] = "5m",
    down: Annotated[
        str, typer.Option(metavar="T", help="DriverDown: no answer for so long.")
    ] = "1m",
    failures: Annotated[
        int, typer.Option(metavar="N", help="AllTrialsFailing: so many within 15 minutes.")
    ] = 3,
    budget: Annotated[
        float, typer.Option(metavar="PERCENT", help="BudgetNearlySpent: more than so many percent.")
    ] = 90,
    disk: Annotated[
        float, typer.Option(metavar="PERCENT", help="DiskFilling: less than so many percent free.")
    ] = 10,
    checkpoint: Annotated[
        str, typer.Option(metavar="T", help="CheckpointAge: none for so long.")
    ] = "1h",
    interval: Annotated[
        str, typer.Option(metavar="T", help="Time between two scrapes of Prometheus.")
    ] = "15s",
    group_wait: Annotated[
        str, typer.Option(metavar="T", help="Time for which Alertmanager collects alerts.")
    ] = "30s",
    webhook: Annotated[
        str, typer.Option(metavar="URL", help="Where Alertmanager sends alerts.")
    ] = "http://127.0.0.1:8080/alerts",
    alertmanager: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where Prometheus finds Alertmanager.")
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

    times = {
        "temperature_for": temperature_for,
        "utilization_for": utilization_for,
        "down_for": down,
        "interval": interval,
        "group_wait": group_wait,
    }
    values: dict[str, object] = {
        **{name: f"{_seconds(name, text):g}s" for name, text in times.items()},
        "stalled": f"{_seconds('stalled', stalled):g}",
        "checkpoint": f"{_seconds('checkpoint', checkpoint):g}",
        **{"temperature": temperature, "utilization": utilization, "failures": failures},
        **{"budget": budget, "disk": disk, "webhook": webhook, "alertmanager": alertmanager},
        "targets": Storage(resolve_storage(storage).root.resolve()).targets,
    }
    for file in write_folder(directory, rendered(values)):
        echo(str(file))


def _seconds(name: str, text: str) -> int:
    """Prometheus takes whole seconds.

    Raises:
        UserError: not a duration.
    """
    from search_spaces.errors import UserError
    from search_spaces.spec.base import parse_duration

    option = "--down" if name == "down_for" else f"--{name.replace('_', '-')}"
    try:
        return max(1, round(parse_duration(text)))
    except ValueError as e:
        raise UserError(f"{option}: {e}") from e
