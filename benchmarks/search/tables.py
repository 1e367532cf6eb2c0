"""Makes tables from cells: regret and ranks with confidence intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.simulate import SHARES

Array = NDArray[np.float64]
Cell = dict[str, Any]
Sweep = tuple[str, int]
"""A task's name, and a seed."""

SHOWN = (0.1, 0.25, 0.5, 1.0)
_SAMPLES = 2000
_WHOLE = 0.9


@dataclass(frozen=True)
class Ran:
    """One contender's sweep.

    Attributes:
        regret: (shares,), at each of `SHARES`.
        median, slowest: CPU seconds of its proposals.
    """

    regret: Array
    median: float
    slowest: float


Regret = dict[str, dict[Sweep, Ran]]
"""Contender to sweep to its result."""


def tables(cells: Sequence[Cell], reference: str) -> str:
    """Markdown: a table for each family, and further ones with contenders that have fewer sweeps,
    on the sweeps that all of them have.

    Regret is 0 for the best known value of a task, from a sample or by any contender, and 1 for the
    median of random full trainings; intervals are 95 % of bootstrap samples over tasks. The last
    column is the contender's final regret minus that of `reference`, paired by sweep.
    """
    parts = []
    for family in dict.fromkeys(c["family"] for c in cells):
        regret = _regret([c for c in cells if c["family"] == family])
        parts += [_table(family, group, reference) for group in _groups(regret)]
    return "\n\n".join(part for part in parts if part)


def _groups(regret: Regret) -> Iterator[Regret]:
    """Groups of contenders: those with about the most sweeps, then also those with fewer."""
    shown = 0
    for count in sorted((len(found) for found in regret.values()), reverse=True):
        group = {name: f for name, f in regret.items() if len(f) >= _WHOLE * count}
        if len(group) > shown:
            shown = len(group)
            yield group


def _regret(cells: Sequence[Cell]) -> Regret:
    """Contender to sweep to its result."""
    least: dict[str, float] = {}
    for c in cells:
        least[c["task"]] = min(c["low"], c["best"][-1], least.get(c["task"], np.inf))
    found: dict[str, dict[Sweep, Ran]] = {}
    for c in cells:
        low, high = least[c["task"]], c["high"]
        regret = (np.array(c["best"]) - low) / (high - low)
        found.setdefault(c["contender"], {})[c["task"], c["seed"]] = Ran(
            regret, c["median"], c["slowest"]
        )
    return found


def _table(family: str, ran: Regret, reference: str) -> str:
    """The table of the sweeps that all of these contenders have."""
    sweeps = sorted(set.intersection(*(set(found) for found in ran.values())))
    if not sweeps:
        return ""
    tasks = np.array([task for task, _ in sweeps])
    regret = np.array([[found[s].regret for s in sweeps] for found in ran.values()])
    shown = regret[:, :, [SHARES.index(share) for share in SHOWN]]
    ranks, names = _ranks(shown).mean(axis=1), list(ran)
    base = names.index(reference) if reference in names else None
    shares = [f"{share:.0%}" for share in SHOWN]
    head = ["contender", *shares, *(f"rank {s}" for s in shares), "s per proposal", "final less"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for i in np.argsort(regret[:, :, -1].mean(axis=1), kind="stable"):
        mine = [ran[names[i]][s] for s in sweeps]
        median, slowest = np.median([m.median for m in mine]), max(m.slowest for m in mine)
        row = [names[i], *(_interval(shown[i, :, k], tasks) for k in range(len(SHOWN)))]
        row += [*(f"{rank:.1f}" for rank in ranks[i]), f"{median:.3f} (at most {slowest:.2f})"]
        other = base is not None and i != base
        row.append(_interval((regret[i] - regret[base])[:, -1], tasks) if other else "-")
        lines.append("| " + " | ".join(row) + " |")
    title = f"**{family}: {len(set(tasks))} tasks, {len(sweeps)} sweeps of each contender**"
    return "\n".join([title, "", *lines, *_catching_up(regret, names, reference)])


def _ranks(shown: Array) -> Array:
    """(contenders, sweeps, shares), 1 is best; ties share the mean of their ranks."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(shown, axis=0), dtype=float)


def _interval(values: Array, tasks: NDArray[np.str_]) -> str:
    """Mean and 95 % bootstrap interval over tasks."""
    means = np.array([values[tasks == t].mean() for t in dict.fromkeys(tasks.tolist())])
    rng = np.random.default_rng(0)
    drawn = means[rng.integers(0, len(means), (_SAMPLES, len(means)))].mean(axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"


def _catching_up(regret: Array, names: Sequence[str], reference: str) -> list[str]:
    """The share of its budget at which the reference reaches each contender's final regret."""
    if reference not in names:
        return []
    mine = regret[names.index(reference)].mean(axis=0)
    said = []
    for i, name in enumerate(names):
        reached = [
            share for share, r in zip(SHARES, mine, strict=True) if r <= regret[i, :, -1].mean()
        ]
        if name != reference and reached:
            said.append(f"{name}: {reached[0]:.0%}")
    return (
        [
            "",
            f"{reference} has their final mean regret at this share of its budget: "
            + ", ".join(said)
            + ".",
        ]
        if said
        else []
    )
