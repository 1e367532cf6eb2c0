"""`tune doctor`: the pipeline of a sweep with real workers, before one spends money."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.errors import quantity
from tuning.cli.formatting import make_console, number, print_lines
from tuning.cli.json_output import print_json
from tuning.cli.options import Address, Insecure, Json, Set, StorageDir

if TYPE_CHECKING:
    from rich.console import Console

    from tuning.doctor.diagnosis import Diagnosis


def doctor(
    file: Annotated[Path | None, typer.Argument(help="The sweep file (YAML).")] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="Workers to start; default: NUM_WORKERS or FILE's."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0, help="Length of the phase that stands in for training.")
    ] = 1.0,
    set_: Set = [],  # noqa: B006 - typer reads the default, it is never changed
    storage: StorageDir = None,
    address: Address = None,
    insecure: Insecure = False,
    json_: Json = False,
) -> None:
    """Rehearse a sweep with real workers, before it costs money.

    It looks at network, storage, data, model, checkpoints and tracking. The environment goes before
    FILE: MODEL_NAME, PARQUET_PATH, DATA_DIR, CHECKPOINT_DIR, ... Exit code 1: a sweep would fail.

    Example: tune doctor search_spaces/llm.yaml --workers 4
    """
    from results.sweep_folder.folder import resolve_storage
    from search_spaces.errors import UserError
    from search_spaces.loading.sweep_file import load_sweep
    from tuning.cluster.connection import check_cluster_auth
    from tuning.doctor.diagnosis import diagnose

    if set_ and file is None:
        raise UserError("--set changes a sweep file; name one")
    check_cluster_auth(address, insecure)
    loaded = load_sweep(file, set_) if file else None
    root = resolve_storage(storage or (loaded.spec.storage if loaded else None))
    console = make_console()
    console.stderr = json_
    with console.status("starting Ray") as status:
        found = diagnose(loaded, root, address, workers, seconds, status.update)
    if json_:
        print_json(found.record)
    else:
        _print(console, found)
    if not found.record["fine"]:
        raise typer.Exit(1)


def _print(console: Console, found: Diagnosis) -> None:
    from tuning.controller.resources.placement import describe_nodes
    from tuning.doctor.head import RECORD
    from tuning.doctor.summary import HEAD, link_summary

    settings, head, workers = found.settings, found.rehearsal.head, found.rehearsal.workers
    files = int(head.get("parquet_files", 0))
    phases = (f"{name} {head[name]:.3g}" for name in HEAD if name in head)
    each = f"{settings.workers} x {settings.resources.cpus_per_worker:g} CPU"
    print_lines(
        console,
        f"workers   {each}, of {describe_nodes(found.nodes)}",
        f"model     {settings.base_model}",
        f"data      {quantity(files, 'Parquet file')}",
        f"head      {', '.join(phases)} (s)",
        f"links     {link_summary(workers) or 'none: one worker'}",
        *([f"container {settings.container}"] if settings.container else []),
        "",
    )
    console.print(_table(found))
    print_lines(console, "", f"record    {settings.final_model / RECORD}" if workers else "")
    for finding in found.findings:
        print_lines(console, f"{'wrong' if finding.breaks else 'note ':10}{finding}")
    if not found.findings:
        print_lines(console, "fine      nothing is wrong or slow")


def _table(found: Diagnosis) -> object:
    """One line per measurement: seconds, MB, rows."""
    from tuning.cli.table import Table
    from tuning.doctor.summary import statistics_of

    columns = ("min", "mean", "max", "total")
    rows = [
        [name, *(number(values[c]) if c in values else "" for c in columns)]
        for name, values in statistics_of(found.rehearsal.workers).items()
    ]
    return Table.of(["of the workers", *columns], rows, right=columns)
