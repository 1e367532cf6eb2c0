"""`tune init`: a first sweep file, from a file of another program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuning.cli.formatting import echo


def init(
    like: Annotated[
        str,
        typer.Option(
            "--like",
            help="A W&B sweep or Katib experiment (YAML), a script for Ray Tune (script.py), or "
            "an Optuna objective (script.py:objective).",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the file here; default: print it.")
    ] = None,
) -> None:
    """Write a sweep file like a file of another program.

    Comments name what it lacks. What could not be read is "?", which has to be filled in. A script
    is not executed. An Optuna objective is called a few times, each time until its first report, to
    see what it asks for.

    Example: tune init --like wandb.yaml -o sweep.yaml
    """
    from search_spaces.errors import UserError
    from tuning.translation.translate import sweep_text

    text = sweep_text(like)
    if output is None:
        echo(text.rstrip("\n"))
        return
    try:
        with open(output, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"--output {output}: exists; choose another name") from None
    except OSError as e:
        raise UserError(f"--output {output}: cannot be written ({e.strerror})") from None
    echo(f"wrote {output}; check it: tune plan {output}")
