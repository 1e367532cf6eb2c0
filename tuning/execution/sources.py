"""The sweeps that `search.warm_start` names, read once and frozen into the sweep's folder.

What they find out later changes nothing here: a resumed search must go on as if uninterrupted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError

from results.files import write_atomic
from results.frozen import read_spec
from results.paths import SweepPaths
from results.records import TrialRecord, TrialState, read_reports, read_trials
from search_spaces.errors import UserError
from search_spaces.schema import SweepSpec
from tuning.execution.folder import find
from tuning.search.fitting import matching
from tuning.search.warm import Finding

_FINDINGS = TypeAdapter(list[Finding])


def sources(spec: SweepSpec, storage: str | None) -> list[SweepPaths]:
    """The folders of the sweeps that are named.

    Raises:
        UserError: there is none of a name, or the search has several objectives.
    """
    names = spec.search.warm_start
    if names and len(spec.objectives) > 1:
        raise UserError("search.warm_start: takes a sweep of one objective, not of several")
    try:
        return [find(name, storage) for name in names]
    except UserError as e:
        raise UserError(*(f"search.warm_start: {line}" for line in e.problems)) from e


def frozen(paths: SweepPaths, spec: SweepSpec) -> list[Finding]:
    """What the named sweeps had found when this one began; read from them the first time.

    Raises:
        UserError: a named sweep is not there or damaged, or the frozen findings are.
    """
    if not spec.search.warm_start:
        return []
    try:
        return _FINDINGS.validate_json(paths.evidence.read_bytes())
    except FileNotFoundError:
        pass
    except ValidationError as e:
        raise UserError(
            f"{paths.evidence}: not readable ({e.error_count()} mistakes); remove it, and it is"
            " made again from the sweeps of search.warm_start"
        ) from e
    named = sources(spec, str(paths.root.parent))
    found = [f for source in named if source != paths for f in findings(source, spec)]
    write_atomic(paths.evidence, _FINDINGS.dump_json(found))
    return found


def findings(source: SweepPaths, spec: SweepSpec) -> list[Finding]:
    """What a sweep found out: its trials that completed, were stopped or are paused, best first."""
    theirs = read_spec(source)
    ended = []
    for record in read_trials(source):
        curve = _curve(source, record, theirs.metric)
        if record.state.rests and record.state is not TrialState.FAILED and curve:
            ended.append((record, curve))
    ended.sort(key=lambda pair: _order(pair[0], pair[1], theirs.mode))
    same = same_task(spec, theirs)
    return [
        Finding(
            source=f"{source.name}/{record.id}",
            folder=str(source.trial(record.id).root),
            params=record.params,
            config=record.config,
            complete=record.state is TrialState.COMPLETED,
            curve=curve,
            rank=(place + 0.5) / len(ended),
            same=same,
            identity=record.identity,
            violations=record.violations if same else {},
        )
        for place, (record, curve) in enumerate(ended)
    ]


def evidence(source: SweepPaths, spec: SweepSpec) -> str:
    """What a sweep would learn from another, in words."""
    found = findings(source, spec)
    fit = sum(bool(matching(spec, f.params, f.config)) for f in found)
    how = "values count" if same_task(spec, read_spec(source)) else "another task: ranks count"
    return f"warm start {fit} of {len(found)} trials of {source.name} ({how})"


def same_task(ours: SweepSpec, theirs: SweepSpec) -> bool:
    """Whether values of the two can be compared: same code, metric, length, and fixed parameters.

    A parameter that one of them searches is a parameter of the search, not of the task.
    """

    def task(spec: SweepSpec) -> tuple[Any, ...]:
        length = spec.scheduler.max_t, spec.scheduler.time_attr
        return spec.trainable, spec.metric, spec.mode, length

    searched = ours.domains().keys() | theirs.domains().keys()
    mine, other = (
        {k: v for k, v in _flat(spec.fixed) if k not in searched} for spec in (ours, theirs)
    )
    return task(ours) == task(theirs) and mine == other


def _curve(source: SweepPaths, record: TrialRecord, metric: str) -> list[tuple[int, float]]:
    reports = read_reports(source.trial(record.id), record.end_step)
    points = [(r.step, r.metrics[metric]) for r in reports if metric in r.metrics]
    return [(step, value) for step, value in points if math.isfinite(value)]


def _order(
    record: TrialRecord, curve: list[tuple[int, float]], mode: str
) -> tuple[bool, bool, int, float]:
    """Complete ones by value, then those that were stopped, the last ones first; last of all, what
    broke an outcome constraint.
    """
    (step, value), stopped = curve[-1], record.state is not TrialState.COMPLETED
    return bool(record.broken), stopped, -step * stopped, value if mode == "min" else -value


def _flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
