"""`tune init`: a first sweep file, from an example, from training code or from another program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tuning.cli.formatting import echo, make_console


def _names() -> list[str]:
    from search_spaces.examples import examples

    return list(examples())


def init(
    example: Annotated[
        str | None,
        typer.Argument(help="An example to write, such as digits.", autocompletion=_names),
    ] = None,
    trainable: Annotated[
        str | None,
        typer.Option(
            "--trainable",
            metavar="CODE",
            help="Your training code: script.py:function, module:function, or a script with "
            "options (script.py). It is read, not run.",
        ),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            help="A W&B sweep or Katib experiment (YAML), a script for Ray Tune (script.py), or "
            "an Optuna objective (script.py:objective).",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write the file here; default: ./NAME.yaml; --like: print it."
        ),
    ] = None,
) -> None:
    """Write a first sweep file: an example, or one for your code.

    Alone it lists the examples. --trainable reads the parameters and metrics of your code; --like
    translates a file of another program. Comments name what they could not read, "?" has to be
    filled in.

    Example: tune init digits
    """
    from search_spaces.errors import UserError

    if sum(value is not None for value in (example, trainable, like)) > 1:
        raise UserError("tune init takes one of EXAMPLE, --trainable and --like")
    if example is not None:
        _write(_example(example, output))
    elif trainable is not None:
        _write(_file_for(trainable, output))
    elif like is not None:
        _translate(like, output)
    elif output is not None:
        raise UserError("--output needs EXAMPLE, --trainable or --like")
    else:
        _list_examples()


def _example(name: str, output: Path | None) -> dict[Path, str]:
    """Texts of an example's files, by the path of each; the sweep file is the first."""
    from search_spaces.examples import example_files, find_example

    path = find_example(name)
    first, *rest = example_files(path).items()
    return {output or Path(path.name): first[1], **{Path(name): text for name, text in rest}}


def _file_for(code: str, output: Path | None) -> dict[Path, str]:
    from tuning.translation.training_code import trainable_text

    name, text = trainable_text(code, output.parent if output else Path())
    return {output or Path(f"{name}.yaml"): text}


def _translate(like: str, output: Path | None) -> None:
    from tuning.translation.translate import sweep_text

    text = sweep_text(like)
    if output is None:
        echo(text.rstrip("\n"))
    else:
        _write({output: text})


def _list_examples() -> None:
    from rich.table import Table

    from search_spaces.examples import description, examples

    table = Table(box=None, pad_edge=False, show_header=False)
    for name, path in examples().items():
        table.add_row(name, description(path))
    make_console().print(table)
    echo("\nwrite one here: tune init digits\nfor your own code: tune init --trainable train.py")


def _write(files: Mapping[Path, str]) -> None:
    """Write files that do not exist yet; the first is the sweep file."""
    from search_spaces.errors import UserError
    from search_spaces.loading.sweep_file import OPEN

    if there := [path for path in files if path.exists() or path.is_symlink()]:
        raise UserError(f"{there[0]}: exists; choose another name by --output")
    for path, text in files.items():
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(text)
        except OSError as e:
            raise UserError(f"{path}: cannot be written ({e.strerror})") from None
    first, *rest = map(str, files)
    echo(f"wrote {' and '.join([first, *rest])}")
    if OPEN in next(iter(files.values())).split('"'):
        echo(f'fill in each "{OPEN}"; its comment names the place in the code')
    echo(f"check it: tune plan {first}\nrun it:   tune run {first}")
