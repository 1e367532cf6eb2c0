"""`tune average`: what is made of the weights of several trials."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tuning.cli.models import cache_of, config_of, record_of, trainable_of
from tuning.cli.options import StorageDir, Sweep

if TYPE_CHECKING:
    from results.soup import Soup
    from search_spaces.schema import SweepSpec


class Method(StrEnum):
    """How the weights of several trials become one model."""

    GREEDY = "greedy"
    UNIFORM = "uniform"


def average(
    sweep: Sweep,
    top: Annotated[int, typer.Option(min=2, help="How many of the best trials to consider.")] = 5,
    method: Annotated[
        Method, typer.Option(help="greedy keeps only what does no harm; uniform takes all.")
    ] = Method.GREEDY,
    storage: StorageDir = None,
) -> None:
    """Average the weights of the best trials into a soup, judged on data the search never saw.

    Example: tune average llm --top 5
    """
    from results.soup import candidates, greedy, uniform
    from search_spaces.errors import UserError
    from tuning.execution.folder import find, handle, read_spec
    from tuning.held_out import on_test

    paths = find(sweep, storage)
    spec = read_spec(paths)
    trainable = trainable_of(spec, "average")
    picked = candidates(paths, spec.metric, spec.mode, top)
    if len(picked) < 2:
        raise UserError(
            f"{paths.name}: only {picked[0].trial_id} has a finite '{spec.metric}' and a whole "
            f"checkpoint, and an average takes two; export it: tune export {handle(paths)}"
        )
    config = config_of(spec, trainable, record_of(paths, picked[0].trial_id))
    evaluate = on_test(trainable, config, spec.metric, cache_of(paths))
    if method is Method.GREEDY:
        soup = greedy(paths, picked, evaluate, spec.mode)
    else:
        soup = uniform(paths, picked, evaluate)
    _tell(soup, spec, handle(paths), len(picked))


def _tell(soup: Soup, spec: SweepSpec, sweep: str, tried: int) -> None:
    from tuning.cli.format import number

    typer.echo(f"{spec.metric} on the test split, which the search did not see ({spec.mode}):")
    for name, score in soup.scores.items():
        typer.echo(f"  {name:8} {number(score)}")
    sign = 1 if spec.mode == "max" else -1
    if sign * soup.scores[soup.method] <= sign * soup.scores["single"]:
        typer.echo(f"no average was better than {soup.members[0]} alone: tune export {sweep}")
    else:
        typer.echo(f"averaged {len(soup.members)} of {tried}: {', '.join(soup.members)}")
        typer.echo(f"export it: tune export {sweep} --soup {soup.folder.name}")
    typer.echo(f"soup {soup.folder}")
