"""`tune average` and `tune export`: what is made of a sweep's weights."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuning.cli.options import StorageDir, Sweep

if TYPE_CHECKING:
    from results.export import Card
    from results.paths import SweepPaths
    from results.records import TrialRecord
    from results.soup import Evaluate, Soup
    from search_spaces.schema import SweepSpec
    from trainables.base import Trainable, TrainableConfig


class Method(StrEnum):
    """How the weights of several trials become one model."""

    GREEDY = "greedy"
    UNIFORM = "uniform"


class Format(StrEnum):
    """What a model is exported to."""

    HF = "hf"


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

    paths = find(sweep, storage)
    spec = read_spec(paths)
    trainable = _trainable(spec, "average")
    picked = candidates(paths, spec.metric, spec.mode, top)
    if len(picked) < 2:
        raise UserError(
            f"{paths.name}: only {picked[0].trial_id} has a finite '{spec.metric}' and a whole "
            f"checkpoint, and an average takes two; export it: tune export {handle(paths)}"
        )
    config = _config(spec, trainable, _record(paths, picked[0].trial_id))
    evaluate = _on_test(trainable, config, spec.metric, _cache(paths))
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


def export(
    sweep: Sweep,
    to: Annotated[Format, typer.Option("--to", help="Format.")] = Format.HF,
    trial: Annotated[str | None, typer.Option(help="Trial to export; default: the winner.")] = None,
    soup: Annotated[str | None, typer.Option(help="Soup to export, by its name.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False,
    storage: StorageDir = None,
) -> None:
    """Export a model: a folder that transformers loads as it is.

    Example: tune export llm --to hf
    """
    from results.export import export_hf
    from search_spaces.errors import UserError
    from tuning.execution.folder import find, read_spec

    if trial and soup:
        raise UserError("--trial and --soup exclude each other: one model is exported")
    paths = find(sweep, storage)
    spec = read_spec(paths)
    trainable = _trainable(spec, "export")
    source, name, card = _from_soup(paths, spec, soup) if soup else _from_trial(paths, spec, trial)
    config = _config(spec, trainable, _record(paths, card.parents[0]))

    def write(folder: Path) -> None:
        trainable.export_hf(config, source, folder, _cache(paths))

    try:
        target = export_hf(source, paths.exports / f"{name}-{to}", write, card, force=force)
    except NotImplementedError as e:
        raise UserError(f"trainable {spec.trainable}: {e}") from e
    typer.echo(f"exported {name} to {target}")
    typer.echo(f'load       AutoModelForCausalLM.from_pretrained("{target}")')


def _from_trial(paths: SweepPaths, spec: SweepSpec, trial: str | None) -> tuple[Path, str, Card]:
    from results.checkpoint import newest_whole
    from results.export import Card
    from results.leaderboard import summaries, winner
    from search_spaces.errors import UserError
    from tuning.execution.folder import find_trial

    if trial is None:
        entry = winner(paths, spec.metric, spec.mode)
    else:
        find_trial(paths, trial)
        entries = summaries(paths, spec.metric, spec.mode)
        entry = next(e for e in entries if e.record.id == trial)
    found = newest_whole(paths.trial(entry.record.id))
    if found is None:
        raise UserError(f"{paths.name}: trial {entry.record.id} has no whole checkpoint to export")
    card = Card(spec.name, spec.metric, entry.value, (entry.record.id,), entry.record.params)
    return found.folder, entry.record.id, card


def _from_soup(paths: SweepPaths, spec: SweepSpec, soup: str) -> tuple[Path, str, Card]:
    from results.export import Card
    from results.soup import read_recipe
    from search_spaces.errors import UserError, suggest
    from tuning.execution.folder import handle

    folder = paths.soup(soup)
    names = [p.name for p in folder.parent.glob("[!.]*")]
    if soup not in names:
        hint = suggest(soup, names) if names else f"; make one with: tune average {handle(paths)}"
        raise UserError(f"{paths.name}: no soup '{soup}'{hint}")
    made = read_recipe(folder)
    first = _record(paths, made.members[0])
    value = made.scores.get(made.method)
    return folder, soup, Card(spec.name, spec.metric, value, made.members, first.params)


def _record(paths: SweepPaths, trial_id: str) -> TrialRecord:
    from results.records import read_trial

    return read_trial(paths.trial(trial_id))


def _trainable(spec: SweepSpec, verb: str) -> Trainable[Any]:
    from search_spaces.errors import UserError
    from trainables.registry import is_foreign, resolve

    if is_foreign(spec.trainable):
        raise UserError(
            f"trainable {spec.trainable}: cannot {verb} the models of a Ray Train loop, whose "
            "checkpoints only it can read; tune best names the newest one"
        )
    return resolve(spec.trainable)


def _config(spec: SweepSpec, trainable: Trainable[Any], record: TrialRecord) -> TrainableConfig:
    """A trial's configuration, for code that may have changed since it was trained."""
    from search_spaces.errors import UserError
    from trainables.registry import check_config

    if problems := check_config(spec.trainable, record.config):
        told = (
            f"{record.id}: no longer fits {spec.trainable}: {'.'.join(p)}: {t}" for p, t in problems
        )
        raise UserError(*told)
    return trainable.Config.model_validate(record.config)


def _on_test(
    trainable: Trainable[Any], config: TrainableConfig, metric: str, cache: Path
) -> Evaluate:
    from trainables.base import Split

    return lambda folder: trainable.evaluate(config, folder, Split.TEST, cache)[metric]


def _cache(paths: SweepPaths) -> Path:
    from results.paths import Storage

    return Storage(paths.root.parent).cache
