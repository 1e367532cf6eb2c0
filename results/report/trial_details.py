"""What the page of one trial shows beside its row: configuration, attempts, usage, log."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from results.paths import SweepPaths
from results.records.trial import Attempt, InheritedWeights, TrialRecord
from results.records.worker_samples import read_samples
from results.report.plots.inheritance import changed_parameters
from results.report.sweep_data import SweepData
from results.report.trial_rows import short_number, thinned
from search_spaces.files import read_regular
from search_spaces.nested import flattened
from search_spaces.redaction import redact, redacted

_MAX_DETAILED = 100
"""Trials of which a written page has usage and log: the best, and those that failed."""
_USAGE = ("system/cpu", "system/gpu", "system/memory")
_MAX_SAMPLES, _LOG_LINES, _LOG_BYTES = 60, 30, 2**13


def all_details(paths: SweepPaths, data: SweepData) -> dict[str, Any]:
    """By trial, for a written page."""
    lines = [e.record for e in data.summaries]
    full = {r.id for r in lines[:_MAX_DETAILED]}
    full |= {r.id for r in [r for r in lines if r.state.value == "failed"][:_MAX_DETAILED]}
    return {r.id: trial_details(paths, r, full=r.id in full) for r in lines}


def trial_details(paths: SweepPaths, record: TrialRecord, *, full: bool = True) -> dict[str, Any]:
    """The details of a trial that its row lacks; usage and log only if they are asked for."""
    files = paths.trial(record.id)
    steps = files.checkpoint_steps()
    fixed = {k: v for k, v in flattened(record.config).items() if k not in record.params}
    config = redacted({**fixed, **flattened(record.adjusted)})
    return {
        "config": json.loads(json.dumps(config, default=str), parse_constant=str),
        "adjusted": list(flattened(record.adjusted)),
        "attempts": [_attempt(attempt) for attempt in record.attempts],
        "checkpoints": f"steps {', '.join(map(str, steps))}" if steps else "",
        "lineage": [_inherited(event) for event in record.lineage],
        "usage": _usage(paths, record) if full else {},
        "log": list(_log(paths, record)) if full else None,
    }


def _attempt(attempt: Attempt) -> list[str]:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(attempt.started))
    seconds = f"{attempt.seconds:.1f}" if attempt.ended else "has not ended"
    remedy = f"{attempt.remedy}: " if attempt.remedy else ""
    how = f"{remedy}{attempt.error}" if attempt.error else ""
    words = [part for part in (how, attempt.where, attempt.leak) if part]
    return [str(attempt.number), started, seconds, attempt.workers_and_layout, "; ".join(words)]


def _inherited(event: InheritedWeights) -> list[Any]:
    return [event.step, event.donor, event.donor_step, changed_parameters(event)]


def _usage(paths: SweepPaths, record: TrialRecord) -> dict[str, dict[str, Any]]:
    """Values of the processes by name and rank: seconds since the start, and the values."""
    found: dict[str, dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for attempt in record.attempts:
        for sample in read_samples(paths.trial(record.id), attempt.number):
            at = round(sample.time - record.attempts[0].started, 1)
            for name, value in sample.values.items():
                if name.startswith(_USAGE):
                    short = name.removeprefix("system/").replace("_", " ")
                    found[short][sample.rank].append((at, short_number(value)))
    return {
        name: {
            str(rank): list(zip(*thinned(points, _MAX_SAMPLES), strict=True))
            for rank, points in ranks.items()
        }
        for name, ranks in found.items()
    }


def _log(paths: SweepPaths, record: TrialRecord) -> Iterator[str]:
    """The last lines of each rank of the newest attempt."""
    for rank, log in paths.trial(record.id).rank_logs():
        data = read_regular(log, max(0, log.stat().st_size - _LOG_BYTES), _LOG_BYTES)
        for line in data.decode(errors="replace").splitlines()[-_LOG_LINES:]:
            yield f"rank {rank}: {redact(line)}"
