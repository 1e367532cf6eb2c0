"""Arguments and options that several commands share."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuning.cli.formatting import shown

if TYPE_CHECKING:
    from results.paths import SweepPaths
    from results.sweep_folder.trust import Trust as AskTrust

File = Annotated[Path, typer.Argument(help="The sweep file (YAML).")]


def sweep_names() -> list[str]:
    """Names for the shell's completion: the sweeps and pipelines in the default storage."""
    from results.records.pipeline import pipelines_in
    from results.sweep_folder.folder import named_sweeps, resolve_storage

    root = resolve_storage(None)
    pipelines = [paths.name for paths in pipelines_in(root)]
    return [*pipelines, *(name for name, _ in named_sweeps(root))]


def trial_ids(ctx: typer.Context) -> list[str]:
    """Ids for the shell's completion: the trials of the sweep that the command line names."""
    from results.sweep_folder.folder import find_sweep

    return find_sweep(ctx.params.get("sweep", ""), ctx.params.get("storage")).trial_ids()


def set_keys() -> list[str]:
    """Keys for the shell's completion of `--set`: of the schema, and of the sweep or its file.

    The words come from the shell: an option without its value keeps click from parsing them.
    """
    from results.sweep_folder.folder import find_sweep
    from search_spaces.errors import UserError
    from search_spaces.loading.overrides import known_keys
    from search_spaces.loading.sweep_file import load_sweep

    words = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    given = next((w for w in words.split()[2:] if not w.startswith("-")), "")
    spec = None
    with suppress(UserError):
        file = Path(given) if Path(given).is_file() else find_sweep(given, None).spec
        spec = load_sweep(file, frozen=True).spec
    return [f"{key}=" for key in known_keys(spec)]


Sweep = Annotated[
    str,
    typer.Argument(
        help="The sweep's name in the storage, or its folder; stories/sft: a stage of a pipeline.",
        autocompletion=sweep_names,
    ),
]
ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP",
        help="A sweep or pipeline by its name in the storage, or its folder; or the folder of an "
        "export (hf).",
        autocompletion=sweep_names,
    ),
]
Chat = Annotated[
    bool, typer.Option("--chat", help="Ask in the form of the tokenizer's chat template.")
]
Name = Annotated[
    str | None, typer.Option(metavar="N", help="Name of the sweep; default: the file's.")
]
Set = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the file, e.g. --set budget.trials=4. May be repeated.",
        autocompletion=set_keys,
    ),
]
StorageDir = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="DIR",
        envvar="TUNE_STORAGE",
        help="Folder that holds the sweeps; default: ./sweeps.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="RAY",
        help="Ray cluster to join (host:port or auto); default: start one on this machine.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Join a cluster on another machine without a token."),
]
Detach = Annotated[
    bool,
    typer.Option(
        "--detach", help="Run in the background, also after logout; the output goes to a log."
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Serve metrics to Prometheus at this port (0: a free one): --set monitoring.port=PORT",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Trial = Annotated[
    str | None,
    typer.Option(
        "--trial",
        help="Use the model of this trial; default: the winner.",
        autocompletion=trial_ids,
    ),
]
TrialArgument = Annotated[
    str | None,
    typer.Argument(help="A trial's id, e.g. t0003.", autocompletion=trial_ids),
]
Soup = Annotated[str | None, typer.Option("--soup", help="Use this average (soup), by its name.")]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Use a sweep that another user made: run its code, contact its addresses. Remembered.",
    ),
]


def with_metrics_port(overrides: list[str], port: int | None) -> list[str]:
    """The overrides of `--set`, and that of `--metrics-port`."""
    return [*overrides, *([] if port is None else [f"monitoring.port={port}"])]


def ask_for_trust(question: str) -> bool:
    """Ask the person at the terminal; False if there is none."""
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return typer.confirm(shown(question), err=True)


def with_results(
    sweep: str, storage: str | None, *, writes: bool = False, trust: AskTrust | None = None
) -> SweepPaths:
    """The folder of a sweep, for a command that uses its results; see `SweepFolder.open`.

    The name of a pipeline stands for its last train stage.

    Raises:
        UserError: there is no such sweep, or it is not trusted.
    """
    from results.sweep_folder.sweep_folder import SweepFolder
    from tuning.pipelines.folder import find_pipeline, last_sweep

    if pipeline := find_pipeline(sweep, storage):
        sweep = str(last_sweep(pipeline).root)
    return SweepFolder.open(sweep, storage, writes=writes, trust=trust).paths


def soup_to_use(sweep: str, storage: str | None, trial: str | None, soup: str | None) -> str | None:
    """The `--soup` of a command; of a pipeline, the average of its last train stage, if it has one.

    Raises:
        UserError: the pipeline has not come so far.
    """
    from tuning.pipelines.folder import find_pipeline, last_soup

    if trial or soup or not (pipeline := find_pipeline(sweep, storage)):
        return soup
    return last_soup(pipeline)


def trusted_sweep(sweep: str, storage: str | None, trust: bool) -> SweepPaths:
    """As `with_results`, for a command that runs its code, contacts its addresses, or writes.

    Raises:
        UserError: there is no such sweep, or another user made it and it is not trusted.
    """
    return with_results(sweep, storage, writes=True, trust=trust or ask_for_trust)
