"""From cells to tables: regret, ranks, and how sure one can be of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.simulate import SHARES

Array = NDArray[np.float64]
SHOWN = (0.1, 0.25, 0.5, 1.0)
_SAMPLES = 2000


def tables(cells: Sequence[dict[str, Any]], reference: str) -> str:
    """Markdown: a table for each family, with every contender that has all its cells.

    Regret is 0 at the best of 2,000 random full trainings and 1 at their median; the intervals are
    95 % of bootstrap samples over tasks. The last column is the contender's final regret less that
    of `reference`, paired by task.
    """
    parts = []
    for family in dict.fromkeys(c["family"] for c in cells):
        mine = [c for c in cells if c["family"] == family]
        sweeps = sorted({(c["task"], c["seed"]) for c in mine})
        names = _complete(mine, sweeps)
        if names:
            head = f"{family}: {len({t for t, _ in sweeps})} tasks, {len(sweeps)} sweeps each"
            parts.append(f"**{head}**\n\n" + _table(mine, sweeps, names, reference))
    return "\n\n".join(parts)


def _complete(cells: Iterable[dict[str, Any]], sweeps: Sequence[tuple[str, int]]) -> list[str]:
    """Contenders in the order of their final regret."""
    found: dict[str, list[float]] = {}
    for cell in cells:
        found.setdefault(cell["contender"], []).append(cell["regret"][-1])
    whole = {name: np.mean(r) for name, r in found.items() if len(r) == len(sweeps)}
    return sorted(whole, key=lambda name: float(whole[name]))


def _table(
    cells: Sequence[dict[str, Any]],
    sweeps: Sequence[tuple[str, int]],
    names: Sequence[str],
    reference: str,
) -> str:
    by_key = {(c["contender"], c["task"], c["seed"]): c for c in cells}
    at = [SHARES.index(share) for share in SHOWN]
    regret = np.array([[by_key[(n, *s)]["regret"] for s in sweeps] for n in names])
    shown = regret[:, :, at]
    ranks = _ranks(shown)
    tasks = np.array([task for task, _ in sweeps])
    shares = [f"{share:.0%}" for share in SHOWN]
    head = ["contender", *shares, *(f"rank {s}" for s in shares), "s per proposal", "final less"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for i, name in enumerate(names):
        row = [name, *(_interval(shown[i, :, k], tasks) for k in range(len(at)))]
        row += [f"{rank:.1f}" for rank in ranks[i].mean(axis=0)]
        mine = [by_key[(name, *s)] for s in sweeps]
        row.append(f"{sum(c['seconds'] for c in mine) / sum(c['asks'] for c in mine):.3f}")
        if reference in names:
            base = shown[names.index(reference), :, -1]
            row.append(_interval(shown[i, :, -1] - base, tasks) if name != reference else "-")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join([*lines, *_catching_up(regret, names, reference)])


def _ranks(shown: Array) -> Array:
    """(contenders, sweeps, shares), 1 is best; ties share the mean of their ranks."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(shown, axis=0), dtype=float)


def _interval(values: Array, tasks: NDArray[np.str_]) -> str:
    """Mean, and the 95 % interval over tasks drawn with replacement."""
    means = np.array([values[tasks == t].mean() for t in dict.fromkeys(tasks.tolist())])
    rng = np.random.default_rng(0)
    drawn = means[rng.integers(0, len(means), (_SAMPLES, len(means)))].mean(axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"


def _catching_up(regret: Array, names: Sequence[str], reference: str) -> list[str]:
    """At which share of its budget the reference has the final regret of each other one."""
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
