"""`tune transfer`: the settings of a large model, from a sweep over small ones."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuning.cli.damage import AcceptDamage, intact
from tuning.cli.formatting import echo, make_console, number
from tuning.cli.json_output import print_json
from tuning.cli.look.report import Html, print_pages, write_page
from tuning.cli.options import Address, Json, Set, StorageDir, Sweep, with_results

if TYPE_CHECKING:
    from results.analysis.scaling.rules import Rule, Transfer
    from tuning.search.transfer import Target

_LEAST_FACTOR = 2.0
"""Between the values that are verified: closer ones differ less than two seeds."""


def transfer(
    sweep: Sweep,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="Sweep file of the target.")],
    set_: Set = [],  # noqa: B006 - typer reads the default, it is never changed
    verify: Annotated[
        int, typer.Option(min=0, max=9, help="Train so many trials around the prediction: 2 or 3.")
    ] = 0,
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
    value at FILE's size with a 90 % band. With --verify, the exit code is 1 if the order of the
    trials at the target contradicts the prediction.

    Example: tune transfer llm --to big.yaml --verify 3
    """
    from results.records.spec_file import read_spec
    from results.report.transfer_page import write_transfer
    from tuning.search.transfer import read_transfer

    paths = intact(with_results(sweep, storage), accept_damage)
    spec, target = read_spec(paths), _target(to, set_)
    found = read_transfer(paths, spec, target, beyond=beyond)
    changes = [_change(target, r.name, r.value.value) for r in found.rules.values()]
    pages, checked = [], None
    if html is not None:
        title = f"{spec.name}: transfer to {target.spec.name}"
        pages = [write_page(html, lambda to: write_transfer(title, spec.metric, found, to))]
    if not json_:
        _print(spec.metric, found)
        options = (part for change in [*set_, *changes] for part in ("--set", f"'{change}'"))
        echo(" ".join(["run it     tune run", str(to), *options]))
        print_pages(*pages)
    if verify:
        longest = max(size.size.get("max_steps", 0) for size in found.optima.sizes)
        if found.target.get("max_steps", 0) > longest:
            set_ = [*set_, f"fixed.max_steps={longest:.0f}"]
        target = _target(to, set_)
        short = read_transfer(paths, spec, target, beyond=beyond)
        checked = _verify(to, set_, target, short, verify, storage, address, quiet=json_)
    if json_:
        print_json({**_facts(found), "set": changes, "verified": checked, "pages": pages})
    if checked is not None and not checked["agrees"]:
        raise typer.Exit(1)


def _target(file: Path, set_: list[str]) -> Target:
    from search_spaces.loading.sweep_file import load_sweep
    from tuning.controller.preflight.checks import preflight
    from tuning.controller.preflight.relative_paths import with_absolute_fixed
    from tuning.controller.sweep_dir.create import with_new_defaults
    from tuning.search.transfer import Target

    loaded = load_sweep(file, set_)
    params = preflight(loaded)[0]
    return Target(with_new_defaults(with_absolute_fixed(loaded)), params)


def _change(target: Target, name: str, value: object) -> str:
    """What `--set` takes, with five digits."""
    section = "space" if name in target.spec.domains() else "fixed"
    return f"{section}.{name}={f'{value:.5g}' if isinstance(value, float) else json.dumps(value)}"


def _print(metric: str, found: Transfer) -> None:
    from results.report.transfer_page import evidence
    from tuning.cli.table import Table

    header, rows = evidence(metric, found)
    make_console().print(Table.of(header, rows, right=header))
    for rule in found.rules.values():
        echo(f"{rule.name}: {rule}")
    for line in [*([f"{metric}: {found.loss}"] if found.loss else []), *found.notes]:
        echo(line)


def _facts(found: Transfer) -> dict[str, Any]:
    rules = {
        r.name: {
            **asdict(r.value),
            "follows": r.follows,
            "exponents": {axis: asdict(e) for axis, e in r.exponents.items()},
            "best": [{**size.size, **asdict(best)} for size, best in r.best.items()],
        }
        for r in found.rules.values()
    }
    loss = found.loss and asdict(found.loss)
    return {"target": found.target, "rules": rules, "loss": loss, "notes": found.notes}


def _verify(
    to: Path,
    set_: list[str],
    target: Target,
    found: Transfer,
    count: int,
    storage: str | None,
    address: str | None,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Train at values around the first prediction, and compare their order with it."""
    from results.analysis.leaderboard import read_leaderboard
    from results.analysis.pareto import cost
    from tuning import api
    from tuning.cli.run.run import run_and_summarize

    rules, spec = list(found.rules.values()), target.spec
    name, tried = rules[0].name, _around(rules[0], count)
    pinned = {**target.params, **{rule.name: rule.value.value for rule in rules[1:]}}
    changes = [_change(target, n, value) for n, value in pinned.items() if n != name]
    changes += [f"space.{name}={{grid_search: {list(tried)}}}", f"budget={{trials: {count}}}"]
    changes += ["scheduler=none", "replicates=1", f"name={spec.name}-verify"]
    start = partial(api.run, to, overrides=[*set_, *changes], storage=storage, address=address)
    paths = (start() if quiet else run_and_summarize(start)).paths
    lines = read_leaderboard(paths, spec.metric, spec.mode)
    values = {line.record.params[name]: line.value for line in lines}
    costs = {v: math.inf if x is None else cost(x, spec.mode) for v, x in values.items()}
    ordered = [costs[one] < costs[far] for one in costs for far in costs if tried[one] < tried[far]]
    agrees = len(costs) == count and all(ordered)
    if not quiet:
        said = "agrees" if agrees else "disagrees"
        around = ", ".join(map(number, sorted(tried)))
        echo(f"verified: the order at {name} {around} {said} with the prediction")
    return {"parameter": name, "values": values, "agrees": agrees, "sweep": paths.name}


def _around(rule: Rule, count: int) -> dict[float, int]:
    """The prediction and values outside of its band; how many steps each is away."""
    value, low, high = rule.value.value, rule.value.low, rule.value.high
    steps = range(-((count - 1) // 2), count // 2 + 1)
    if rule.log:
        factor = max(_LEAST_FACTOR, high / value, value / low)
        return {value * factor**k: abs(k) for k in steps}
    apart = max(high - value, value - low, (_LEAST_FACTOR - 1) * abs(value))
    return {value + k * apart: abs(k) for k in steps}
