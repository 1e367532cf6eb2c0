"""`tune describe`: the hyperparameters of a trainable; `tune schema`: those of sweep files."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuning.cli.formatting import echo, make_console, print_lines, setting
from tuning.cli.json_output import print_json
from tuning.cli.options import Json

if TYPE_CHECKING:
    from trainables.base import Trainable


def _names() -> list[str]:
    from trainables.registry import TRAINABLES

    return list(TRAINABLES)


def describe(
    trainable: Annotated[
        str, typer.Argument(help="A name, or script.py:function.", autocompletion=_names)
    ],
    json_: Json = False,
) -> None:
    """Describe the hyperparameters of a trainable.

    Of each its rule, default, unit and meaning.

    Example: tune describe causal_lm
    """
    from trainables.hyperparameters import hyperparameters
    from trainables.registry import resolve
    from tuning.cli.table import Table

    found = resolve(trainable)
    rows = hyperparameters(found)
    if json_:
        return print_json({"trainable": trainable, "hyperparameters": rows})
    console = make_console()
    print_lines(console, *_facts(found))
    titles = ("name", "default", "must be", "meaning")
    cells, group = list[list[str]](), list[str]()
    for row in rows:
        default = "required" if row["required"] else setting(row["default"])
        *above, name = row["name"].split(".")
        if above != group:
            group = above
            if above:
                cells.append([".".join(above), "", "", ""])
        cells.append([f"  {name}" if above else name, default, row["rule"], row["meaning"]])
    if rows:
        console.print(Table.of(titles, cells, flexible=titles[1:]))
    else:
        print_lines(console, "its hyperparameters are not declared: any name is accepted")


def _facts(trainable: Trainable[Any]) -> list[str]:
    about = inspect.getdoc(type(trainable)) or ""
    reports = ", ".join(trainable.metric_names) or "not declared"
    can = {
        "pause at a rung": trainable.can_pause,
        "evaluate checkpoints": trainable.can_evaluate,
        "change its number of workers": trainable.elastic,
    }
    able = ", ".join(name for name, yes in can.items() if yes) or "-"
    lines = [about.partition("\n")[0], f"reports  {reports}", f"clock    {trainable.clock}"]
    return [*lines, f"can      {able}", ""]


def schema() -> None:
    """Print the JSON Schema of sweep files, for editors.

    It knows the hyperparameters of every registered trainable.

    Example: tune schema > sweep.schema.json
    """
    from search_spaces.loading.json_schema import to_text
    from trainables.hyperparameters import sweep_schema

    echo(to_text(sweep_schema()))
