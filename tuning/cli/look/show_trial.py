"""`tune show SWEEP TRIAL`: all that is known of one trial."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tuning.cli.formatting import duration, local_path, number, print_lines

if TYPE_CHECKING:
    from results.paths import SweepPaths
    from results.records.trial import Attempt, Report, TrialRecord
    from results.trial_paths import TrialPaths
    from search_spaces.spec.sweep import SweepSpec


def show_trial(paths: SweepPaths, spec: SweepSpec, trial: str, console: Any) -> None:
    """Print a trial's configuration, reports, attempts and checkpoints."""
    from rich.text import Text

    from results.analysis.cost import close_silent_attempts, cost_shares
    from results.checkpoints.commit import damaged_checkpoints
    from results.records.trial import read_reports, read_trial
    from results.sweep_folder.folder import find_trial
    from tuning.cli.run.space_table import computed
    from tuning.cli.trials_table import state_cell

    files = find_trial(paths, trial)
    record = read_trial(files)
    reports = read_reports(files, record.end_step)
    [(record, _)] = close_silent_attempts(paths, [(record, reports)])
    state = state_cell(record)
    reason = f": {record.reason}" if record.reason else ""
    console.print(Text.assemble((record.id, "bold"), " ", state, reason), soft_wrap=True)
    parts = {"searched": record.params, "fixed": spec.fixed}
    parts |= {"computed": computed(spec, record.config), "adjusted": record.adjusted}
    for name, part in parts.items():
        if name in ("computed", "adjusted") and not part:
            continue
        print_lines(console, f"{name} {json.dumps(part, default=str)}")
    _draw_curves(reports, [o.metric for o in spec.objectives], console)
    _print_reports(reports, [o.metric for o in spec.objectives], console)
    for copy in record.lineage:
        console.print(
            f"at step {copy.step} inherited the weights of {copy.donor} at {copy.donor_step}"
        )
    if spec.prices is not None:
        console.print(f"spent {cost_shares([record], spec.prices)}")
    for attempt in record.attempts:
        print_lines(console, *_attempt_lines(attempt, files))
    print_lines(console, *_phase_lines(files, record), _checkpoints(files))
    for problem in damaged_checkpoints(files):
        console.print(Text.assemble(("damaged", "red"), f" {problem}"), soft_wrap=True)


def _print_reports(reports: list[Report], objectives: list[str], console: Any) -> None:
    """A row for each, and how many lack the metric; metrics without room are named below."""
    from tuning.cli.table import Table

    names = list(dict.fromkeys([*objectives, *(name for r in reports for name in r.metrics)]))
    rows = [[str(r.step), *(number(r.metrics.get(name)) for name in names)] for r in reports]
    titles = ["step", *names]
    if rows:
        more = set(names) - set(objectives)
        console.print(Table.of(titles, rows, right=titles, optional=more))
    if gaps := sum(objectives[0] not in r.metrics for r in reports):
        lack = f"{gaps} of {len(reports)} reports lack {objectives[0]}, and do not count"
        print_lines(console, lack)


def _attempt_lines(attempt: Attempt, files: TrialPaths) -> Iterator[str]:
    """Duration, workers, machines and errors of an attempt."""
    spent = f"took {duration(attempt.seconds)}" if attempt.ended else "has not ended"
    remedy = f"{attempt.remedy}: " if attempt.remedy else ""
    error = f": {remedy}{attempt.error}" if attempt.error else ""
    yield f"attempt {attempt.number} {spent} with {attempt.workers_and_layout}{error}"
    details = {
        "waited {} for its workers": attempt.waited and duration(attempt.waited),
        "{}": attempt.where,
        "blamed on {}": ", ".join(map(str, attempt.blamed)),
        "leak: {}": attempt.leak,
        "logs {}": local_path(files.attempt(attempt.number)),
    }
    yield from (f"  {text.format(value)}" for text, value in details.items() if value)


def _phase_lines(files: TrialPaths, record: TrialRecord) -> Iterator[str]:
    """Where the time of all attempts went, by phase; empty if it was not measured."""
    from results.analysis.phases import bottleneck, phase_means, slow_ranks
    from results.records.worker_samples import phase_seconds

    by_rank = phase_seconds(files, record)
    means = phase_means(by_rank)
    if not means:
        return
    several = len(by_rank) > 1
    yield "where the time went" + f", mean (least to most) of {len(by_rank)} ranks" * several
    for phase, seconds in means.items():
        least, most = (pick(of[phase] for of in by_rank.values()) for pick in (min, max))
        between = f"  ({_span(least)} to {_span(most)})" if several else ""
        yield f"  {phase:<13} {seconds / sum(means.values()):>4.0%} {_span(seconds):>7}{between}"
    if found := bottleneck(means):
        yield f"  bottleneck: {found}"
    yield from (f"  {line}" for line in slow_ranks(by_rank))


def _span(seconds: float) -> str:
    return f"{seconds:.2f}s" if seconds < 60 else duration(seconds)


def _draw_curves(reports: list[Report], metrics: list[str], console: Any) -> None:
    """Each metric over the steps, if it has more than one value."""
    from tuning.cli.look.drawing import draw

    for metric in metrics:
        points = [(float(r.step), r.metrics[metric]) for r in reports if metric in r.metrics]
        points = [p for p in points if math.isfinite(p[1])]
        if len(points) > 1:
            console.print(f"{metric} by step")
            print_lines(console, *draw(points, width=min(60, console.width - 14)))


def _checkpoints(files: TrialPaths) -> str:
    if steps := files.checkpoint_steps():
        of = "checkpoints of steps" if len(steps) > 1 else "checkpoint of step"
        return f"{of} {', '.join(map(str, steps))} in {local_path(files.checkpoints)}"
    newest = files.newest_checkpoint()
    return f"newest checkpoint {local_path(newest)}" if newest else "no checkpoints"
