"""The table of `tune plan`: each parameter, its domain, its condition, and sampled values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.domains.conditional import Constant, Parameter, parameters
from search_spaces.domains.domain import Domain
from search_spaces.domains.parser import fixed_formulas
from search_spaces.errors import quantity
from search_spaces.formulas.constraints import formula_positions, resolve_values
from search_spaces.nested import dotted, walk
from search_spaces.spec.sweep import SweepSpec
from tuning.cli.formatting import setting
from tuning.cli.table import Table


def space_table(spec: SweepSpec, sampled: list[dict[str, Any]]) -> Table:
    """A row per parameter or formula; the cell of an inactive parameter is blank."""
    columns = [resolve_values(spec.space, spec.fixed, params) for params in sampled]
    rows = [row for row in parameters(spec.space) if not isinstance(row.leaf, Constant)]
    rows += [Parameter(name, formula, ()) for name, formula in fixed_formulas(spec.fixed)]
    conditional = any(row.when for row in rows)
    samples = [f"sample {i + 1}" for i in range(len(sampled))]
    lines = []
    for row in rows:
        name = "  " * len(row.when) + row.name
        when = [", ".join(f"{chooser} = {label}" for chooser, label in row.when)]
        cells = [setting(known[row.name]) if _is_active(row, known) else "" for known in columns]
        lines.append([name, _domain(row), *(when if conditional else []), *cells])
    titles = ["parameter", "domain", *(["only if"] if conditional else []), *samples]
    return Table.of(titles, lines, flexible=titles[1:], optional=samples[1:])


def rule_lines(spec: SweepSpec) -> list[str]:
    """A line for each constraint, for the number of seeds, and for the points to try first."""
    lines = [f"constraint {text}" for text in spec.constraints]
    lines += [f"outcome    {text}" for text in spec.outcome_constraints]
    if spec.replicates > 1:
        lines.append(f"replicates each configuration is tried under {spec.replicates} seeds")
    if spec.points:
        count = quantity(len(spec.points), "given point")
        lines.append(f"first      {count}: the first samples")
    return lines


def computed(spec: SweepSpec, config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a configuration that formulas computed, by dotted name."""
    names = set(formula_positions(spec.space, spec.fixed))
    flat = {dotted(path): value for path, value in walk(config)}
    return {name: value for name, value in flat.items() if name in names}


def _is_active(row: Parameter, known: Mapping[str, Any]) -> bool:
    return row.name in known and all(known.get(name) == label for name, label in row.when)


def _domain(row: Parameter) -> str:
    if not isinstance(row.leaf, Domain):
        return str(row.leaf.dump())
    kind, arguments = next(iter(row.leaf.dump().items()))
    prior = "".join(f", prior {setting(value)}" for value in row.leaf.priors)
    return f"{kind} {', '.join(setting(v) for v in arguments)}{prior}"
