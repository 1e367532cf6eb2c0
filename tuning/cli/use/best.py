"""`tune best`: the winner of a sweep, why it won, and its confirmation under fresh seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from search_spaces.errors import UserError
from tuning.cli.damage import AcceptDamage, intact
from tuning.cli.formatting import local_path, number, setting, tell
from tuning.cli.json_output import print_json
from tuning.cli.options import (
    Address,
    Json,
    StorageDir,
    Sweep,
    Trust,
    trusted_sweep,
    with_results,
)

if TYPE_CHECKING:
    from results.analysis.confirmation import Confirmation
    from results.analysis.selection import Selection
    from results.paths import SweepPaths
    from search_spaces.spec.select import SelectSpec
    from search_spaces.spec.sweep import SweepSpec
    from tuning.evaluation.confirm import Confirmer
    from tuning.evaluation.progress import PrintLine


At = Annotated[
    Literal["last", "best", "smoothed"] | None,
    typer.Option(help="The value that counts; default: select.at of the sweep file."),
]
Rule = Annotated[
    Literal["knee", "weighted"] | None,
    typer.Option(help="Of several objectives; default: select.rule of the sweep file."),
]
Confirm = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="K", help="Train the K best again and evaluate them on the test split."
    ),
]
_SEEDS = 3
Seeds = Annotated[
    int | None,
    typer.Option(min=1, metavar="S", help=f"Fresh seeds for each of them; default: {_SEEDS}."),
]
Reevaluate = Annotated[
    bool,
    typer.Option("--reevaluate", help="With --confirm: only evaluate the weights of the search."),
]


def best(
    sweep: Sweep,
    at: At = None,
    rule: Rule = None,
    confirm: Confirm = None,
    seeds: Seeds = None,
    reevaluate: Reevaluate = False,
    address: Address = None,
    trust: Trust = False,
    json_: Json = False,
    accept_damage: AcceptDamage = False,
    storage: StorageDir = None,
) -> None:
    """Print the winner of a sweep, and why it won.

    With its configuration, value and newest checkpoint. The best of many noisy values is biased.
    --confirm trains the best trials again under fresh seeds and evaluates them on a split that the
    search did not use. The winner of that comparison is from then on the winner of the sweep, also
    for tune average and tune export.

    Example: tune best llm --confirm 3 --seeds 3
    """
    from results.analysis.selection import describe_winner, select_winner, winner_by_rule
    from results.records.spec_file import read_spec

    paths = intact(
        trusted_sweep(sweep, storage, trust) if confirm else with_results(sweep, storage),
        accept_damage,
    )
    spec = read_spec(paths)
    select = _select(spec, at, rule)
    spec = spec.model_copy(update={"select": select})
    _check(confirm, {"--reevaluate": reevaluate, "--seeds": seeds, "--address": address})
    if confirm:
        from results.analysis.confirmation import write
        from tuning.evaluation.confirm import Confirmer

        say: PrintLine = (lambda line: None) if json_ else tell
        confirmer = Confirmer(paths, spec, select, address, say)
        made = _confirm(confirmer, confirm, None if reevaluate else seeds or _SEEDS)
        write(paths, made)
        _print_confirmation(made, say, select.at)
    if (at or rule) and not confirm:
        choice = winner_by_rule(paths, spec, select)
    else:
        choice = select_winner(paths, spec)
    if json_:
        print_json(describe_winner(paths, spec, choice))
    else:
        _print(paths, spec, choice)


def _check(confirm: int | None, given: Mapping[str, object]) -> None:
    """Refuse options that have no effect."""
    if not confirm and (option := next((name for name, value in given.items() if value), None)):
        raise UserError(f"{option} needs --confirm K: the number of trials to evaluate")
    if given["--reevaluate"] and given["--seeds"]:
        raise UserError("--seeds: has no effect with --reevaluate, which trains no trial")


def _select(spec: SweepSpec, at: str | None, rule: str | None) -> SelectSpec:
    """The sweep's selection rule, with the changes of the command line."""
    from pydantic import ValidationError

    from results.analysis.selection import selection_objectives
    from search_spaces.spec.select import SelectSpec

    overrides = {"at": at, "rule": rule}
    if rule and len(selection_objectives(spec, spec.select)) < 2:
        raise UserError("--rule: the sweep has one objective; see select.objectives")
    values = spec.select.model_dump() | {k: v for k, v in overrides.items() if v is not None}
    try:
        return SelectSpec.model_validate(values)
    except ValidationError as e:
        texts = (str(error["msg"]).removeprefix("Value error, ") for error in e.errors())
        raise UserError(*(f"select: {text}" for text in texts)) from e


def _confirm(confirmer: Confirmer, top: int, seeds: int | None) -> Confirmation:
    """Measure the best trials again under fresh seeds; None: only evaluate their weights."""
    lines = confirmer.best(top)
    if seeds is None:
        return confirmer.reevaluate(lines)
    for line in lines:
        if line.record.lineage:
            confirmer.print_line(
                f"{line.record.id} inherited weights in the sweep; it now trains from the start"
            )
    return confirmer.retrain(lines, seeds)


def _print_confirmation(made: Confirmation, say: PrintLine, at: str) -> None:
    """Print a line per trial and objective, and the bias of the search; `at` is of `select`."""
    say("")
    split = "test" if made.judged else "again"
    for one in made.trials:
        for name, series in one.series.items():
            half_width = series.half_width
            interval = f" ± {number(half_width)}" if half_width is not None else ""
            prefix = f"{name}  " if len(made.modes) > 1 else ""
            say(
                f"{one.trial}  {prefix}search {number(series.search)}  {split} "
                f"{number(series.mean)}{interval} ({len(series.test)})"
            )
    for line in made.bias_lines:
        say(line)
    if len(made.modes) > 1:
        say(f"on the front: {', '.join(m.trial for m in made.front)}")
    if not made.clear:
        say("the intervals overlap: more --seeds may change the order")
    say("")
    if made.judged and at != "last":
        say(f"search values are the {at} ones, test values those of the last step")


def _print(paths: SweepPaths, spec: SweepSpec, choice: Selection) -> None:
    from results.analysis.selection import describe_winner
    from results.sweep_folder.folder import sweep_argument

    found = describe_winner(paths, spec, choice)
    at = spec.select.at if not choice.confirmed else "last"
    step = f"{'at' if at == 'last' else f'({at}) until'} step {found['step']}"
    tell(f"{found['trial']}  {_in_words(found['values'])} {step}")
    for name, value in found["params"].items():
        tell(f"  {name}: {setting(value)}")
    tell(f"why        {found['why']}")
    for entry in found.get("front", ()):
        tell(f"front      {entry['trial']}  {_in_words(entry['values'])}")
    checkpoint = found["checkpoint"]
    tell(f"checkpoint {local_path(Path(checkpoint)) if checkpoint else '-'}")
    if not choice.confirmed and spec.can_be_confirmed:
        tell(f"confirm    tune best {sweep_argument(paths)} --confirm 3")
        tell("           (the search measured it only once)")


def _in_words(values: Mapping[str, float | None]) -> str:
    return "  ".join(f"{name} {number(value)}" for name, value in values.items())
