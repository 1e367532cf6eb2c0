"""`tune transfer`: the settings of a large model, from a sweep over small ones."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuning.cli.damage import AcceptDamage, intact
from tuning.cli.formatting import echo, make_console
from tuning.cli.json_output import print_json
from tuning.cli.look.report import Html, print_pages, write_page
from tuning.cli.options import Address, Json, Set, StorageDir, Sweep, with_results

if TYPE_CHECKING:
    from results.analysis.scaling.rules import Rule, Transfer
    from search_spaces.spec.sweep import SweepSpec

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
    value at FILE's size with a 90 % band. With --verify, the exit code is 1 if the order of trials
    at the target contradicts the prediction; they are no longer than the sweep's.

    Example: tune transfer llm --to big.yaml --verify 3
    """
    from results.records.spec_file import read_spec
    from results.report.transfer_page import write_transfer
    from tuning.search.transfer import read_transfer

    paths, target = intact(with_results(sweep, storage), accept_damage), _Target.read(to, set_)
    spec = read_spec(paths)
    found = read_transfer(paths, spec, target.spec, target.params, beyond)
    changes = [target.change(rule.name, rule.value.value) for rule in found.rules.values()]
    pages, checked = [], None
    if html is not None:
        title = f"{spec.name}: transfer to {target.spec.name}"
        pages = [write_page(html, lambda page: write_transfer(title, spec.metric, found, page))]
    if not json_:
        _print(spec.metric, found)
        options = (part for change in [*set_, *changes] for part in ("--set", f"'{change}'"))
        echo(" ".join(["run it: tune run", str(to), *options]))
        print_pages(*pages)
    if verify:
        short = target.shortened(found)
        again = read_transfer(paths, spec, short.spec, short.params, beyond)
        checked = _verify(short, list(again.rules.values()), verify, storage, address, quiet=json_)
    if json_:
        print_json({**_facts(found), "set": changes, "verified": checked, "pages": pages})
    if checked and not checked["agrees"]:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Target:
    """A sweep file with overrides, and the parameters of a trial of it."""

    file: Path
    set_: list[str]
    spec: SweepSpec
    params: dict[str, Any]

    @classmethod
    def read(cls, file: Path, set_: list[str]) -> _Target:
        from search_spaces.loading.sweep_file import load_sweep
        from tuning.controller.preflight.checks import preflight
        from tuning.controller.sweep_dir.create import frozen_spec

        loaded = load_sweep(file, set_)
        params = preflight(loaded)[0]
        return cls(file, set_, frozen_spec(loaded), params)

    def change(self, name: str, value: object) -> str:
        """What `--set` takes for a value, with five digits."""
        section = "space" if name in self.spec.domains() else "fixed"
        text = f"{value:.5g}" if isinstance(value, float) else json.dumps(value)
        return f"{section}.{name}={text}"

    def shortened(self, found: Transfer) -> _Target:
        """With no more steps than the longest trials of the sweep."""
        longest = max(size.size.get("max_steps", math.inf) for size in found.optima.sizes)
        if found.target.get("max_steps", 0) <= longest:
            return self
        return self.read(self.file, [*self.set_, f"fixed.max_steps={longest:.0f}"])


def _print(metric: str, found: Transfer) -> None:
    from results.report.transfer_page import evidence
    from tuning.cli.table import Table

    header, rows = evidence(metric, found)
    make_console().print(Table.of(header, rows, right=header))
    lines = [f"{rule.name}: {rule}" for rule in found.rules.values()]
    lines += [f"{metric}: {found.loss}"] if found.loss else []
    for line in [*lines, *found.notes]:
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
    target: _Target,
    rules: list[Rule],
    count: int,
    storage: str | None,
    address: str | None,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Train around the first prediction, beyond its band, and compare the order with it."""
    from results.analysis.leaderboard import read_leaderboard
    from results.analysis.pareto import cost
    from tuning import api
    from tuning.cli.run.run import run_and_summarize

    rule, spec = rules[0], target.spec
    value, low, high = rule.value.value, rule.value.low, rule.value.high
    steps = range(-((count - 1) // 2), count // 2 + 1)
    factor, apart = max(_LEAST_FACTOR, high / value, value / low), max(high - value, value - low)
    away = {value * factor**k if rule.log else value + k * apart: abs(k) for k in steps}
    pinned = {**target.params, **{one.name: one.value.value for one in rules}}
    changes = [target.change(n, v) for n, v in pinned.items() if n != rule.name]
    changes += [f"space.{rule.name}={{grid_search: {list(away)}}}", f"budget={{trials: {count}}}"]
    changes += ["scheduler=none", "replicates=1", f"name={spec.name}-verify"]
    settings = {"overrides": [*target.set_, *changes], "storage": storage, "address": address}
    start = partial(api.run, target.file, **settings)
    paths = (start() if quiet else run_and_summarize(start)).paths
    lines = read_leaderboard(paths, spec.metric, spec.mode)
    values = {line.record.params[rule.name]: line.value for line in lines}
    costs = {v: math.inf if x is None else cost(x, spec.mode) for v, x in values.items()}
    ordered = [costs[one] < costs[far] for one in costs for far in costs if away[one] < away[far]]
    agrees = len(costs) == count and all(ordered)
    if not quiet:
        said = "agrees" if agrees else "disagrees"
        echo(f"verified: the order at {count} values of {rule.name} {said} with the prediction")
    return {"parameter": rule.name, "values": values, "agrees": agrees, "sweep": paths.name}
