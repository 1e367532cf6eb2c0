"""Draws curves, and the tree of weight copies in population based training, in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text
from rich.tree import Tree

from results.records.trial import InheritedWeights, TrialRecord
from tuning.cli.formatting import number, setting

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of each dot by row and column (Unicode, block U+2800)."""


def draw(points: Sequence[tuple[float, float]], width: int = 60, height: int = 10) -> list[str]:
    """Lines of text that show the points joined by straight lines, and the ends of both axes.

    Args:
        points: (x, y) in ascending order of x; all finite, at least one.
        width: of the curve, without labels (characters).
        height: of the curve, without labels (lines), at least 2.
    """
    xs, ys = zip(*points, strict=True)
    low, high = min(ys), max(ys)
    span = high / 2 - low / 2  # halves: a difference may be beyond the range of floats
    across, up = 2 * width - 1, 4 * height - 1
    dots = [
        (
            round((x - xs[0]) / ((xs[-1] - xs[0]) or 1) * across),
            round((high / 2 - y / 2) / (span or 1) * up),
        )
        for x, y in points
    ]
    cells = [[0x2800] * width for _ in range(height)]
    for (x0, y0), (x1, y1) in zip(dots, [*dots[1:], dots[-1]], strict=True):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(steps + 1):
            x, y = x0 + round((x1 - x0) * i / steps), y0 + round((y1 - y0) * i / steps)
            cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
    names = [number(high), *[""] * (height - 2), number(low)]
    margin = max(map(len, names))
    lines = [f"{n:>{margin}} {''.join(map(chr, row))}" for n, row in zip(names, cells, strict=True)]
    first, last = number(xs[0]), number(xs[-1])
    return [*lines, f"{'':{margin}} {first}{last:>{width - len(first)}}"]


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
