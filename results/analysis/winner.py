"""The winner of a sweep as plain data: what `tune best --json` prints, and Python returns."""

from __future__ import annotations

from typing import Any

from results.analysis.leaderboard import TrialSummary
from results.analysis.selection import Selection, rank_candidates, selection_objectives
from results.paths import SweepPaths
from search_spaces.spec.sweep import SweepSpec


def describe_winner(paths: SweepPaths, spec: SweepSpec, choice: Selection) -> dict[str, Any]:
    """The winner as plain data: trial, values, configuration, checkpoint, and why it won."""
    line = choice.line
    checkpoint = paths.trial(line.record.id).newest_checkpoint()
    return {
        "sweep": paths.name,
        "trial": line.record.id,
        "metric": spec.metric,
        "mode": spec.mode,
        "value": line.value,
        "values": _values(spec, line),
        "step": line.step,
        "why": choice.why,
        "confirmed": choice.confirmed,
        "params": line.record.params,
        "config": line.record.config,
        "seed": line.record.seed,
        "checkpoint": str(checkpoint) if checkpoint else None,
        **({"front": _front(paths, spec)} if spec.select.objectives else {}),
    }


def _values(spec: SweepSpec, line: TrialSummary) -> dict[str, float | None]:
    """The value of every objective; the metric of the sweep comes first."""
    others = {name: line.values.get(name) for name in selection_objectives(spec, spec.select)}
    return {spec.metric: line.value} | {k: v for k, v in others.items() if k != spec.metric}


def _front(paths: SweepPaths, spec: SweepSpec) -> list[dict[str, Any]]:
    """The trials on the Pareto front, ordered by the selection rule."""
    names = selection_objectives(spec, spec.select)
    return [
        {"trial": line.record.id, "values": {name: line.values[name] for name in names}}
        for line in rank_candidates(paths, spec, spec.select)
    ]
