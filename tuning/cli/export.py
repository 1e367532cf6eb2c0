"""`tune export`: a model for the world outside."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuning.cli.models import cache_of, config_of, record_of, trainable_of
from tuning.cli.options import StorageDir, Sweep

if TYPE_CHECKING:
    from results.export import Card
    from results.paths import SweepPaths
    from search_spaces.schema import SweepSpec


class Format(StrEnum):
    """What a model is exported to."""

    HF = "hf"


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
    trainable = trainable_of(spec, "export")
    source, name, card = _from_soup(paths, spec, soup) if soup else _from_trial(paths, spec, trial)
    config = config_of(spec, trainable, record_of(paths, card.parents[0]))

    def write(folder: Path) -> None:
        trainable.export_hf(config, source, folder, cache_of(paths))

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
    first = record_of(paths, made.members[0])
    value = made.scores.get(made.method)
    return folder, soup, Card(spec.name, spec.metric, value, made.members, first.params)
