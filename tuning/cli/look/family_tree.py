"""Who took over whose weights, drawn as a tree: population based training."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text
from rich.tree import Tree

from results.records.trial import InheritedWeights, TrialRecord
from tuning.cli.formatting import setting


def family_tree(records: Iterable[TrialRecord]) -> Tree | None:
    """A branch for each trial whose weights were taken over; None when none were.

    A trial stands below the donor of each time it took weights over, with the parameters that
    changed then; what was taken from it later hangs there.
    """
    known = {record.id: record for record in records}
    nodes = {(trial, 0): Tree(Text(trial, style="bold")) for trial in known}
    taken = [(i.step, r.id, era + 1, i) for r in known.values() for era, i in enumerate(r.lineage)]
    for step, trial, era, inherited in sorted(taken, key=lambda t: t[:2]):
        donor = known.get(inherited.donor)
        eras = sum(i.step < step for i in donor.lineage) if donor else 0
        parent = nodes.setdefault((inherited.donor, eras), Tree(inherited.donor))
        nodes[trial, era] = parent.add(Text(_label(trial, inherited)))
    top = Tree("weights taken over")
    top.children = [n for (_, era), n in nodes.items() if era == 0 and n.children]
    return top if top.children else None


def _label(trial: str, taken: InheritedWeights) -> str:
    changed = ", ".join(
        f"{name} {setting(taken.before.get(name))} → {setting(value)}"
        for name, value in taken.after.items()
        if value != taken.before.get(name)
    )
    return f"{trial} at step {taken.step}: {changed}"
