"""`tune transfer`: the settings of a large model, from a sweep over small ones."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search_spaces.errors import UserError
from tuning.cli.damage import AcceptDamage, intact
from tuning.cli.formatting import echo, make_console
from tuning.cli.json_output import print_json
from tuning.cli.look.report import Html, print_pages, write_page
from tuning.cli.options import Address, Json, Set, StorageDir, Sweep, with_results

if TYPE_CHECKING:
    from results.analysis.scaling import Rule, Transfer
    from results.paths import SweepPaths
    from search_spaces.spec.sweep import SweepSpec
    from tuning.controller.sweep import SweepController


def transfer(
    sweep: Sweep,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="Sweep file of the target.")],
    set_: Set = [],  # noqa: B006 - typer reads the default, it is never changed
    verify: Annotated[
        int | None,
        typer.Option(min=2, max=9, help="Number of trials to train around the prediction."),
    ] = None,
    beyond: Annotated[
        bool, typer.Option("--beyond", help="Go beyond 10 times the largest size and compute.")
    ] = False,
    html: Html = None,
    json_: Json = False,
    accept_damage: AcceptDamage = False,
    storage: StorageDir = None,
    address: Address = None,
) -> None:
    """Predict the settings of a large model from small ones.

    Parameters of the sweep with listed numbers which FILE does not search are its sizes, such as
    hidden_size and max_steps. Each other one gets the rule that its best values follow, and its
    value at FILE's size with a 90 % band. With --verify, the exit code is 1 if the order of trials
    at the target contradicts the prediction; they are no longer than the sweep's.

    Example: tune transfer llm --to big.yaml --verify 3
    """
    from results.report.transfer_page import write_transfer
    from tuning import api

    paths = intact(with_results(sweep, storage), accept_damage)
    target, _, found = predicted = _predict(paths, to, set_, beyond)
    if verify:
        _values_around(target, found, verify)  # what it refuses is refused before it trains
    changes = [_change(target, *one) for one in _best(target, found).items()]
    title, checked = f"{paths.name}: transfer to {target.name}", None
    write = partial(write_transfer, title, target.metric, found)
    pages = [] if html is None else [write_page(html, write)]
    if not json_:
        _print_evidence(target.metric, found, to, [*set_, *changes])
        print_pages(*pages)
    if verify:
        if shorter := _shorter(found):
            predicted = _predict(paths, to, set_ + shorter, beyond)
        start = partial(api.run, to, storage=storage, address=address)
        checked = _verify(*predicted, set_ + shorter, verify, start, quiet=json_)
    if json_:
        loss, rules = found.loss and asdict(found.loss), list(map(asdict, found.rules))
        facts = {"target": found.target, "rules": rules, "loss": loss, "notes": found.notes}
        print_json({**facts, "set": changes, "verified": checked, "pages": pages})
    if checked and not checked["agrees"]:
        raise typer.Exit(1)


def _print_evidence(metric: str, found: Transfer, to: Path, changes: list[str]) -> None:
    from results.report.transfer_page import evidence
    from tuning.cli.table import Table

    header, rows = evidence(metric, found)
    make_console().print(Table.of(header, rows, right=header))
    run = shlex.join(["tune", "run", str(to), *(f"--set={change}" for change in changes)])
    echo("\n".join([*found.lines(metric), f"run it: {run}"]))


def _predict(
    paths: SweepPaths, to: Path, set_: list[str], beyond: bool
) -> tuple[SweepSpec, dict[str, Any], Transfer]:
    """The sweep of the target, the parameters of a trial of it, and what is predicted for it."""
    from results.records.spec_file import read_spec
    from search_spaces.loading.sweep_file import load_sweep
    from tuning.controller.preflight.checks import preflight
    from tuning.controller.sweep_dir.create import frozen_spec
    from tuning.search.transfer import read_transfer

    loaded = load_sweep(to, set_)
    params, target = preflight(loaded)[0], frozen_spec(loaded)
    return target, params, read_transfer(paths, read_spec(paths), target, params, beyond)


def _fitting(target: SweepSpec, name: str, value: float) -> float:
    """A predicted value with five digits, or whole if all values of the parameter are."""
    domain = target.domains().get(name)
    whole = domain and all(isinstance(v, int) for v in domain.categories or (domain.lower,))
    return round(value) if whole else float(f"{value:.5g}")


def _best(target: SweepSpec, found: Transfer) -> dict[str, float]:
    """The predicted values, by parameter."""
    return {rule.name: _fitting(target, rule.name, rule.value.value) for rule in found.rules}


def _change(target: SweepSpec, name: str, value: object) -> str:
    """What `--set` takes for a value."""
    return f"{'space' if name in target.domains() else 'fixed'}.{name}={json.dumps(value)}"


def _shorter(found: Transfer) -> list[str]:
    """What keeps trials of the target from being longer than the sweep's."""
    longest = max(size.size.get("max_steps", math.inf) for size in found.optima.sizes)
    is_longer = found.target.get("max_steps", 0) > longest
    return [f"fixed.max_steps={longest:.0f}"] if is_longer else []


def _values_around(target: SweepSpec, found: Transfer, count: int) -> tuple[Rule, dict[float, int]]:
    """A predicted parameter, and values of it around and beyond its band, each with its distance.

    Raises:
        UserError: no parameter has factors, or whole numbers are too close to each other.
    """
    rule = next((rule for rule in found.rules if rule.log), None)
    if rule is None:
        names = ", ".join(rule.name for rule in found.rules)
        raise UserError(f"--verify: varies a parameter by a factor, and {names} may be 0")
    value = rule.value.value
    beyond = rule.value.high / value, value / rule.value.low
    factor = max(2.0, *beyond)  # closer ones may differ less than two seeds
    steps = range(-((count - 1) // 2), count // 2 + 1)
    away = {_fitting(target, rule.name, value * factor**k): abs(k) for k in steps}
    if len(away) < count or min(away) <= 0:
        values = f"{count} values by factors of {factor:.3g} around {value:.4g}"
        raise UserError(f"--verify {count}: {rule.name} has no {values}")
    return rule, away


def _verify(
    target: SweepSpec,
    params: dict[str, Any],
    found: Transfer,
    set_: list[str],
    count: int,
    start: Callable[..., SweepController],
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Train around a prediction, beyond its band, and compare the order with it."""
    from results.analysis.leaderboard import read_leaderboard
    from results.analysis.pareto import cost
    from tuning.cli.run.run import run_and_summarize

    rule, away = _values_around(target, found, count)
    pinned = params | _best(target, found)
    changes = [_change(target, *one) for one in pinned.items() if one[0] != rule.name]
    changes += [f"space.{rule.name}={{grid_search: {list(away)}}}", f"budget={{trials: {count}}}"]
    changes += ["scheduler=none", "replicates=1", f"name={target.name}-verify"]
    started = partial(start, overrides=[*set_, *changes])
    paths = (started() if quiet else run_and_summarize(started)).paths
    lines = read_leaderboard(paths, target.metric, target.mode)
    values = {line.record.params[rule.name]: line.value for line in lines}
    costs = {v: math.inf if x is None else cost(x, target.mode) for v, x in values.items()}
    ordered = [costs[one] < costs[far] for one in costs for far in costs if away[one] < away[far]]
    agrees = len(costs) == count and all(ordered)
    if not quiet:
        said = f"{'agrees' if agrees else 'disagrees'} with the prediction"
        echo(f"verified: the order at {count} values of {rule.name} {said}")
    return {"parameter": rule.name, "values": values, "agrees": agrees, "sweep": paths.name}
