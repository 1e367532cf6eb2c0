"""`tune evaluate`: the scores of a language model on tasks of lm-evaluation-harness."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuning.cli.damage import AcceptDamage
from tuning.cli.formatting import echo, make_console, number
from tuning.cli.json_output import print_json
from tuning.cli.options import Chat, Json, ModelArgument, Soup, StorageDir, Trial, Trust
from tuning.cli.use.model import ModelOptions, track

if TYPE_CHECKING:
    from results.records.evaluations import Evaluation


def evaluate(
    sweep: ModelArgument,
    tasks: Annotated[
        str,
        typer.Option(
            help="Tasks of lm-eval, separated by commas; a name with a slash, or that ends with "
            ".yaml, is a task file or a folder of them.",
        ),
    ],
    limit: Annotated[
        int | None, typer.Option(min=1, help="Largest number of examples of a task.")
    ] = None,
    few_shot: Annotated[
        int | None, typer.Option(min=0, help="Examples in each prompt; default: the task's.")
    ] = None,
    chat: Chat = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Prompts that are evaluated at once.")] = 8,
    trial: Trial = None,
    soup: Soup = None,
    trust: Trust = False,
    json_: Json = False,
    accept_damage: AcceptDamage = False,
    storage: StorageDir = None,
) -> None:
    """Score a language model on benchmark tasks.

    With lm-evaluation-harness. The scores are also written to the sweep, MLflow and the model cards
    of later exports.

    Example: tune evaluate llm --tasks arc_easy,hellaswag --limit 200
    """
    from results.records.spec_file import read_spec

    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # the harness has no switch for its bars
    from tuning.evaluation.benchmark_tasks import TaskOptions, evaluate_export, evaluate_selected

    names = list(dict.fromkeys(name.strip() for name in tasks.split(",") if name.strip()))
    asked = TaskOptions(names, limit, few_shot, chat, batch_size)
    options = ModelOptions(trial, soup, trust, accept_damage, storage)
    if ((folder := Path(sweep)) / "config.json").is_file():
        paths, model = options.of_export(folder, "evaluate")
        made, file = evaluate_export(folder, paths, model, asked)
    else:
        picked = options.select(sweep, "evaluate")
        paths, (made, file) = picked.paths, evaluate_selected(picked, asked)
    if json_:
        print_json({"sweep": paths.name, **made.model_dump(), "file": file})
    else:
        _print(made, file)
    track(paths, read_spec(paths), err=json_)


def _print(made: Evaluation, file: Path) -> None:
    from tuning.cli.table import Table

    rows = [
        (
            task,
            metric,
            number(value),
            number(score.errors.get(metric)),
            str(score.few_shot or 0),
            str(score.examples or "-"),
        )
        for task, score in made.tasks.items()
        for metric, value in score.metrics.items()
    ]
    titles = ("task", "metric", "value", "error", "few-shot", "examples")
    make_console().print(Table.of(titles, rows, right=titles[2:]))
    if made.cut:
        echo(f"cut        {made.cut} prompts are longer than the model's context")
    echo(f"scores     {file}")
