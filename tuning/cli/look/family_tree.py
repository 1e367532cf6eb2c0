"""The tree of weight copies in population based training."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text
from rich.tree import Tree

from results.records.trial import InheritedWeights, TrialRecord
from tuning.cli.formatting import setting


def family_tree(records: Iterable[TrialRecord]) -> Tree | None:
    """A tree with a root for each trial whose weights were copied; None if there are none.

    Each copy is a node below its donor and shows the parameters that changed; later copies of it
    are its children.
    """
    known = {record.id: record for record in records}
    nodes = {(trial, 0): Tree(Text(trial, style="bold")) for trial in known}
    copies = [(i.step, r.id, n + 1, i) for r in known.values() for n, i in enumerate(r.lineage)]
    for step, trial, generation, copy in sorted(copies, key=lambda t: t[:2]):
        donor = known.get(copy.donor)
        of_donor = sum(i.step < step for i in donor.lineage) if donor else 0
        parent = nodes.setdefault((copy.donor, of_donor), Tree(copy.donor))
        nodes[trial, generation] = parent.add(Text(_label(trial, copy)))
    top = Tree("inherited weights")
    top.children = [n for (_, generation), n in nodes.items() if generation == 0 and n.children]
    return top if top.children else None


def _label(trial: str, copy: InheritedWeights) -> str:
    changed = ", ".join(
        f"{name} {setting(copy.before.get(name))} → {setting(value)}"
        for name, value in copy.after.items()
        if value != copy.before.get(name)
    )
    return f"{trial} at step {copy.step}: {changed}"
