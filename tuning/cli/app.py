"""The commands by name, and how mistakes are shown."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated

import typer

from search_spaces.errors import UserError
from tuning.cli.look import plan, show
from tuning.cli.results import average, best, compare, export, predict, reproduce
from tuning.cli.run import by_hand, fetch, run, sync

app = typer.Typer(
    name="tune",
    help="Hyperparameter sweeps over multi-GPU training: search, resume, compare, average, export.",
    epilog="Start with: tune run search_spaces/llm.yaml",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (
    run.run,
    run.resume,
    by_hand.add,
    by_hand.stop,
    by_hand.pause,
    plan.plan,
    plan.trial,
    show.ls,
    show.show,
    best.best,
    show.ui,
    compare.report,
    compare.compare,
    reproduce.reproduce,
    sync.sync,
    fetch.fetch,
    average.average,
    export.export,
    predict.generate,
    predict.predict,
    plan.schema,
):
    app.command()(command)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"tune-platform {version('tune-platform')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; a mistake of the user is one line each and exit code 2."""
    from search_spaces.redaction import redact

    os.umask(0o077)  # configurations, weights and logs are the user's alone
    try:
        app(prog_name="tune")
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        sys.stderr.write(f"{e.filename or 'disk'}: {e.strerror}; make room, then tune resume\n")
        sys.exit(2)
    except UserError as e:
        for problem in e.problems:
            sys.stderr.write(f"{redact(problem)}\n")
        sys.exit(2)
