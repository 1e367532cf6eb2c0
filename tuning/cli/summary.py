"""The summary of a session: leaderboard, winner, why trials stopped, next commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from results.analysis import confirmation
from results.analysis.cost import cost_shares
from results.analysis.leaderboard import TrialSummary, one_per_configuration, read_leaderboard
from results.analysis.rungs import rung_evidence
from results.analysis.selection import Selection, Trial, rank_candidates, select_winner
from results.paths import SweepPaths
from results.records.failures import same_cause
from results.records.trial import TrialRecord, TrialState, read_trials_with_reports
from results.sweep_folder.folder import sweep_argument
from search_spaces.errors import UserError, first_few
from search_spaces.spec.sweep import SweepSpec
from tuning.cli.formatting import duration, number, print_lines, setting
from tuning.cli.table import Table
from tuning.cli.trials_table import trials_table
from tuning.controller.resources.gpu_shares import GpuShares

if TYPE_CHECKING:
    from tuning.controller.sweep import SweepController


def leaderboard_table(
    spec: SweepSpec, board: Sequence[TrialSummary], best: Collection[str]
) -> Table:
    """The rows of a leaderboard; those in `best` are marked."""
    others = [o.metric for o in spec.objectives[1:]]
    rows = [(e.record, e.step, [e.value, *map(e.values.get, others)]) for e in board]
    return trials_table(spec, rows, best, _means(board))


def leaders(paths: SweepPaths, spec: SweepSpec, trials: Sequence[Trial] | None = None) -> list[str]:
    """Ids of the winner so far, or of the Pareto front if there are several objectives."""
    try:
        if len(spec.objectives) > 1:
            return [e.record.id for e in rank_candidates(paths, spec, spec.select, trials)]
    except UserError:
        return []
    return [best.line.record.id] if (best := winner(paths, spec, trials)) else []


def _means(board: Sequence[TrialSummary]) -> dict[str, str]:
    """The mean of each configuration with several seeds, by the id of its first trial shown."""
    lines = [line for line in one_per_configuration(board) if line.mean is not None]
    return {line.record.id: f"{number(line.mean)}{line.spread}" for line in lines}


def print_summary(run: SweepController, console: Console) -> None:
    """Print the outcome of a session and the next commands to try."""
    spec, paths = run.spec, run.paths
    board = read_leaderboard(paths, spec.metric, spec.mode)
    if board:
        best = leaders(paths, spec)
        console.print(leaderboard_table(spec, board[:10], best))
    if len(board) > 10:
        console.print(f"… {len(board) - 10} more: tune show {sweep_argument(paths)}", style="dim")
    print_lines(console, *_outcome(run, board), *_next_steps(run, board))


def winner(
    paths: SweepPaths, spec: SweepSpec, trials: Sequence[Trial] | None = None
) -> Selection | None:
    """The winner so far, see `select_winner`; None while no trial has a value."""
    try:
        return select_winner(paths, spec, trials)
    except UserError:
        return None


def _format_objectives(spec: SweepSpec, line: TrialSummary) -> str:
    """A trial's value of every objective."""
    others = [(o.metric, line.values.get(o.metric)) for o in spec.objectives[1:]]
    return ", ".join(f"{name} {number(v)}" for name, v in [(spec.metric, line.value), *others])


def _outcome(run: SweepController, board: list[TrialSummary]) -> Iterator[str | Text]:
    yield ""
    if found := winner(run.paths, run.spec):
        best = found.line
        params = ", ".join(f"{k}={setting(v)}" for k, v in best.record.params.items())
        name = "winner" if run.finished and not run.interrupted else "best so far"
        value = f": {_format_objectives(run.spec, best)} ({params})"
        yield Text.assemble(f"{name} ", (best.record.id, "bold"), value)
    states = Counter(e.record.state for e in board)
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    finished = sum(count for state, count in states.items() if state.finished)
    yield f"trials {finished} finished in {duration(run.elapsed_s)}: {counts or 'none'}"
    if waits := [a.waited for r in run.records.values() for a in r.attempts if a.waited]:
        each = f", summed over {len(waits)} attempts" if len(waits) > 1 else ""
        yield f"waited for workers to start: {duration(sum(waits))}{each}"
    yield from GpuShares.read(run.paths).decisions
    reasons = Counter(e.record.reason for e in board if e.record.state is TrialState.STOPPED)
    if reasons:
        counts = ", ".join(
            f"{count} by {reason.removeprefix('by ')}" for reason, count in reasons.most_common()
        )
        yield f"stopped early: {counts}"
    trials = list(read_trials_with_reports(run.paths))
    yield from failure_lines(run.paths, board)
    yield from rung_lines(run.paths, run.spec, trials)
    if not run.interrupted and (limit := run.limit):
        cost = cost_shares(run.records.values(), run.spec.prices)
        yield f"ended by {limit.summary}; spent {cost}"
    yield from _problems(run)


def _problems(run: SweepController) -> Iterator[Text]:
    leaks = [f"{r.id} ({a.leak})" for r in run.records.values() for a in r.attempts if a.leak]
    if leaks:
        more = f" and {len(leaks) - 1} more" if len(leaks) > 1 else ""
        yield Text(f"leak, lane replaced: {leaks[0]}{more}", style="yellow")
    yield from warning_lines(run.paths, run.records.values())
    yield from (Text(line, style="yellow") for line in run.repaired)
    if run.problem:
        yield Text(run.problem, style="yellow")


def rung_lines(paths: SweepPaths, spec: SweepSpec, trials: Sequence[Trial]) -> Iterator[str]:
    """Whether early values can be trusted; nothing without rungs or complete trials.

    Args:
        trials: see `rung_evidence`.
    """
    evidence = rung_evidence(spec, trials, confirmation.read(paths))
    if evidence and evidence.complete:
        yield evidence.advice(sweep_argument(paths))


def failure_lines(paths: SweepPaths, board: Sequence[TrialSummary]) -> Iterator[Text]:
    """One line for each cause of failed trials, and one if some reports lack the metric."""
    groups: list[list[TrialRecord]] = []
    for record in (e.record for e in board if e.record.state is TrialState.FAILED):
        alike = (g for g in groups if same_cause(g[0].last_error, record.last_error))
        if (group := next(alike, None)) is None:
            groups.append(group := [])
        group.append(record)
    for group in groups:
        first, names = group[0], first_few([r.id for r in group])
        which = f"{len(group)} trials ({names})" if len(group) > 1 else first.id
        log = paths.trial(first.id).log(len(first.attempts), 0)
        where = f"; log {log}" if log.exists() else ""  # its workers may never have started
        yield Text.assemble(("failed", "red"), f" {which}: {first.reason}{where}")
    if gaps := [e for e in board if 0 < e.without_metric < e.reports]:
        gap, more = gaps[0], f" (also {len(gaps) - 1} other trials)" if len(gaps) > 1 else ""
        detail = f"{gap.without_metric} of {gap.reports} reports of {gap.record.id}"
        yield Text(f"{detail} lack the metric, and do not count{more}", style="yellow")


def warning_lines(paths: SweepPaths, records: Iterable[TrialRecord]) -> Iterator[Text]:
    """One line for each warning about user code, with the trials that it is about."""
    found: dict[str, list[str]] = {}
    for record in records:
        for attempt in record.attempts:
            file = paths.trial(record.id).warning(attempt.number)
            if file.exists():
                found.setdefault(file.read_text(), []).append(f"{record.id}.{attempt.number}")
    for text, attempts in found.items():
        names = ", ".join(attempts[:5]) + (", …" if len(attempts) > 5 else "")
        yield Text(f"warning: attempt {names} {text}", style="yellow")


def count_remedies(records: Iterable[TrialRecord]) -> dict[str, int]:
    """Number of failures with each remedy in a sweep, the most frequent first."""
    remedies = Counter(str(a.remedy) for r in records for a in r.attempts if a.remedy is not None)
    return dict(remedies.most_common())


def _next_steps(run: SweepController, board: list[TrialSummary]) -> Iterator[str]:
    """The next commands to try: only those that work on this sweep."""
    from trainables.registry import resolve_for  # `tune show` imports no trainable

    name, spec = sweep_argument(run.paths), run.spec
    yield from (f"folder {run.paths.root}", "")
    if run.interrupted:
        yield f"stopped; continue with: tune resume {name}{run.resume_options}"
        return
    if spec.tracking.name != "none":
        yield f"compare    tune ui {name}"
    found = winner(run.paths, spec)
    best = found and found.line
    trainable = resolve_for(spec)
    if best and trainable.can_evaluate:
        if _same_start(run.paths, board[:2]):
            yield f"average    tune average {name}"
        exports = trainable.offers("export_hf")
        if exports and run.paths.trial(best.record.id).newest_checkpoint():
            yield f"export     tune export {name} --to hf"
    if paused := sum(e.record.state is TrialState.PAUSED for e in board):
        yield extension_line(run.paths, paused)
    if failed := sum(e.record.may_be_retried for e in board):
        which = "a failed trial" if failed == 1 else f"{failed} failed trials"
        yield f"try again  tune resume {name} --retry-failed  ({which}, once the code is mended)"
    shown = best or next(iter(board), None)
    yield f"inspect    tune show {name} {shown.record.id if shown else ''}".rstrip()


def extension_line(paths: SweepPaths, paused: int) -> str:
    """The command that continues the paused trials of a sweep that has ended."""
    which = "one paused trial" if paused == 1 else f"{paused} paused trials"
    return (
        f"extend     tune resume {sweep_argument(paths)} --trials +{paused}  ({which} may continue)"
    )


def _same_start(paths: SweepPaths, board: list[TrialSummary]) -> bool:
    """Whether the trials started from the same weights; otherwise an average makes no sense."""
    from results.tracking.extras import initial_digest

    inits = [initial_digest(paths.trial(e.record.id)) for e in board]
    return len(inits) > 1 and None not in inits and len({*inits}) == 1
