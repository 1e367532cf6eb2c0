"""Reads the sweeps of `search.warm_start`, once, and keeps their findings in `evidence.json`.

Later results of those sweeps are ignored: a resumed search continues as if it was not interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from results.analysis.pareto import comparable
from results.analysis.replicates import Curve
from results.paths import SweepPaths
from results.records.integrity import check_records
from results.records.spec_file import read_spec
from results.records.trial import TrialRecord, TrialState, read_reports, read_trials
from results.storage.atomic import write_atomic
from results.sweep_folder.folder import find_sweep
from search_spaces.errors import UserError
from search_spaces.files import read_regular
from search_spaces.spec.select import Objective
from search_spaces.spec.sweep import SweepSpec
from tuning.search.auto import choose_searcher
from tuning.search.compatibility import params_in_space
from tuning.search.findings import Finding
from tuning.search.searchers import BLIND

_FINDINGS = TypeAdapter(list[Finding])


def source_sweeps(spec: SweepSpec, storage: str | None) -> list[SweepPaths]:
    """The folders of the sweeps in `search.warm_start`.

    Raises:
        UserError: a sweep does not exist, or its records are damaged or incomplete.
    """
    try:
        found = [find_sweep(name, storage) for name in spec.search.warm_start]
        for source in found:
            check_records(source).require()
            _refuse_opposite_modes(spec, source)
    except UserError as e:
        raise UserError(*(f"search.warm_start: {line}" for line in e.problems)) from e
    return found


def load_evidence(paths: SweepPaths, spec: SweepSpec) -> list[Finding]:
    """The findings of the other sweeps when this one began: from `evidence.json` if it exists.

    Raises:
        UserError: another sweep is missing or damaged, or `evidence.json` is damaged.
    """
    if not spec.search.warm_start:
        return []
    try:
        return _FINDINGS.validate_json(read_regular(paths.evidence))
    except FileNotFoundError:
        pass
    except ValidationError as e:
        raise UserError(
            f"{paths.evidence}: not readable ({e.error_count()} mistakes); remove it, and the next"
            " resume reads the sweeps of search.warm_start again"
        ) from e
    named = source_sweeps(spec, str(paths.root.parent))
    found = [f for source in named if source != paths for f in collect_findings(source, spec)]
    write_atomic(paths.evidence, _FINDINGS.dump_json(found))
    return found


def collect_findings(source: SweepPaths, spec: SweepSpec) -> list[Finding]:
    """The trials of another sweep that completed, were stopped or are paused.

    Best first, by the first objective of `spec`.
    """
    theirs = read_spec(source)
    ended, goals = _ended(source, theirs, spec)
    same = is_same_task(spec, theirs) and [g and g.metric for g in goals] == _metrics(spec)
    ranks = [_ranks(ended, goal) for goal in goals]
    first = goals[0] or theirs.objectives[0]
    here = {n: v for n, v in _flat(spec.fixed) if n in theirs.domains()}
    alike = [same and here.items() <= {**here, **one.record.params}.items() for one in ended]
    found = [
        Finding(
            source=f"{source.name}/{one.record.id}",
            folder=str(source.trial(one.record.id).root),
            params=one.record.params,
            config=one.record.config,
            complete=one.record.state is TrialState.COMPLETED,
            curve=one.curves[first.metric],
            values=[one.last(name) for name in _metrics(spec)] if is_like else [],
            ranks=[by[one.record.id] for by in ranks],
            # with another trial's weights it is not what its configuration would give
            identity="" if one.record.lineage else one.record.identity,
            violations=one.record.violations if is_like else {},
        )
        for one, is_like in zip(ended, alike, strict=True)
    ]
    return sorted(found, key=lambda f: f.ranks[0])


def describe_source(source: SweepPaths, spec: SweepSpec) -> str:
    """The evidence that a sweep would get from another one, in words."""
    found = collect_findings(source, spec)
    fit = sum(bool(params_in_space(spec, f.params, f.config)) for f in found)
    counted = sum(f.same for f in found)
    how = "values count" if counted == len(found) else _why_only_ranks(source, spec, counted)
    if (searcher := choose_searcher(spec).name) in BLIND:
        how = f"{searcher} learns nothing from them"
    return f"warm start {fit} of {len(found)} trials of {source.name} ({how})"


def _refuse_opposite_modes(spec: SweepSpec, source: SweepPaths) -> None:
    """What is best by the same code and metric there would be worst here."""
    theirs = read_spec(source)
    modes = {o.metric: o.mode for o in theirs.objectives if theirs.trainable == spec.trainable}
    for o in spec.objectives:
        if modes.get(o.metric, o.mode) != o.mode:
            raise UserError(f"{source.name}: has {modes[o.metric]} {o.metric}, not {o.mode}")


def is_same_task(ours: SweepSpec, theirs: SweepSpec) -> bool:
    """Whether metrics of two sweeps are comparable: same code, length, and fixed parameters.

    Parameters that one of them searches are not part of the task.
    """

    def task(spec: SweepSpec) -> tuple[Any, ...]:
        return spec.trainable, spec.scheduler.max_t, spec.scheduler.time_attr

    searched = ours.domains().keys() | theirs.domains().keys()
    mine, other = (
        {k: v for k, v in _flat(spec.fixed) if k not in searched} for spec in (ours, theirs)
    )
    return task(ours) == task(theirs) and mine == other


@dataclass(frozen=True)
class _Ended:
    """A trial of another sweep, and its finite values of some metrics, `comparable`, by ascending
    step.
    """

    record: TrialRecord
    curves: dict[str, Curve]

    def last(self, metric: str) -> float:
        return self.curves[metric][-1][1]


def _ended(
    source: SweepPaths, theirs: SweepSpec, spec: SweepSpec
) -> tuple[list[_Ended], list[Objective | None]]:
    """The trials of a sweep that can be ranked, and its counterpart of each objective of ours.

    The counterpart is the metric of the same name if they report it, with their mode if it was an
    objective there. Without it, the counterpart of the first objective is their first objective;
    the others have none.
    """
    names, clock = {*_metrics(spec), theirs.metric}, theirs.scheduler.time_attr
    known = [
        _Ended(record, _curves(source, record, names, clock))
        for record in read_trials(source)
        if not record.state.active and record.state is not TrialState.FAILED
    ]
    reported = {name for one in known for name, curve in one.curves.items() if curve}
    sought = {o.metric: o for o in theirs.objectives}
    goals = [sought.get(o.metric, o) if o.metric in reported else None for o in spec.objectives]
    goals[0] = goals[0] or theirs.objectives[0]
    needed = [goal.metric for goal in goals if goal]
    return [one for one in known if all(one.curves[name] for name in needed)], goals


def _ranks(ended: Sequence[_Ended], goal: Objective | None) -> dict[str, float]:
    """The relative rank of each trial, from 0 (best) to 1; 0.5 for all without a goal.

    Completed trials come first, by value; then stopped ones, by descending step; last the trials
    that violated an outcome constraint.
    """
    if goal is None:
        return {one.record.id: 0.5 for one in ended}

    def key(one: _Ended) -> tuple[bool, bool, int, float]:
        stopped = one.record.state is not TrialState.COMPLETED
        step, value = one.curves[goal.metric][-1]
        cost = value if goal.mode == "min" else -value
        return bool(one.record.violated_constraints), stopped, -step * stopped, cost

    order = sorted(ended, key=key)
    return {one.record.id: (place + 0.5) / len(order) for place, one in enumerate(order)}


def _why_only_ranks(source: SweepPaths, spec: SweepSpec, counted: int) -> str:
    theirs = read_spec(source)
    if not is_same_task(spec, theirs):
        return "another task: ranks count"
    _, goals = _ended(source, theirs, spec)
    known = {goal.metric for goal in goals if goal}
    missing = [name for name in _metrics(spec) if name not in known]
    if not missing:
        return f"values of {counted} count, of others ranks: they have not the values fixed here"
    return f"ranks count: it reports no {', '.join(missing)}"


def _metrics(spec: SweepSpec) -> list[str]:
    return [o.metric for o in spec.objectives]


def _curves(
    source: SweepPaths, record: TrialRecord, names: Iterable[str], clock: str
) -> dict[str, Curve]:
    reports = read_reports(source.trial(record.id), record.end_step)
    return {
        name: [
            (r.clock(clock), comparable(r.metrics[name]))
            for r in reports
            if name in r.metrics and math.isfinite(r.metrics[name])
        ]
        for name in names
    }


def _flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
