"""`tune average` and `tune export`: what is made of a sweep's weights."""

from __future__ import annotations

from typing import Annotated

import typer

from tuning.cli.options import StorageDir, Sweep


def average(
    sweep: Sweep,
    top: Annotated[int, typer.Option(min=2, help="How many of the best trials to consider.")] = 5,
    method: Annotated[str, typer.Option(help="greedy or uniform.")] = "greedy",
    storage: StorageDir = None,
) -> None:
    """Average the weights of the best trials into a soup, judged on data the search never saw.

    Example: tune average llm --top 5
    """


def export(
    sweep: Sweep,
    to: Annotated[str, typer.Option("--to", help="Format: hf.")] = "hf",
    trial: Annotated[str | None, typer.Option(help="Trial to export; default: the winner.")] = None,
    soup: Annotated[str | None, typer.Option(help="Soup to export, as tune average named it.")] = None,
    storage: StorageDir = None,
) -> None:
    """Export a model: a folder that transformers loads as it is.

    Example: tune export llm --to hf
    """
