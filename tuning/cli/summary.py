"""The last words of a session: leaderboard, winner, why trials stopped, and what to do next."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from results.analysis.leaderboard import TrialSummary, summaries
from results.analysis.replicates import base_trial_id
from results.analysis.selection import rank_candidates, select_winner
from results.averaging.soup import LINEAGE
from results.paths import SweepPaths
from results.records.trial import TrialState
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SweepSpec
from trainables.registry import resolve
from tuning.cli.formatting import duration, number, setting
from tuning.cli.trials_table import trials_table
from tuning.controller.resources.budget import total_cost
from tuning.controller.sweep_dir.folder import sweep_argument

if TYPE_CHECKING:
    from tuning.controller.sweep import SweepController


def leaderboard_table(
    spec: SweepSpec, board: Sequence[TrialSummary], best: Collection[str], width: int
) -> Table:
    """The leaderboard, or the head of it, in `width` characters; those in `best` are marked."""
    others = [o.metric for o in spec.objectives[1:]]
    rows = [(e.record, e.step, [e.value, *map(e.values.get, others)]) for e in board]
    return trials_table(spec, rows, best, width, _means(board))


def leaders(paths: SweepPaths, spec: SweepSpec) -> list[str]:
    """The winner so far; of several objectives the trials on the Pareto front. May be empty."""
    try:
        if len(spec.objectives) > 1:
            return [e.record.id for e in rank_candidates(paths, spec, spec.select)]
        return [select_winner(paths, spec).line.record.id]
    except UserError:
        return []


def _means(board: Sequence[TrialSummary]) -> dict[str, str]:
    """Of each configuration with several seeds, beside the first of its trials that is shown."""
    means: dict[str, str] = {}
    seen: set[str] = set()
    for line in board:
        of = base_trial_id(line.record.id)
        if line.mean is not None and of not in seen:
            spread = "" if line.half_width is None else f" ± {line.half_width:.2g}"
            means[line.record.id] = f"{number(line.mean)}{spread} of {line.seeds}"
        seen.add(of)
    return means


def summarise(run: SweepController, console: Console) -> None:
    """Print the end of a session."""
    spec, paths = run.spec, run.paths
    board = summaries(paths, spec.metric, spec.mode)
    if board:
        best = leaders(paths, spec)
        console.print(leaderboard_table(spec, board[:10], best, console.width))
    if len(board) > 10:
        console.print(f"… {len(board) - 10} more: tune show {sweep_argument(paths)}", style="dim")
    for line in [*_outcome(run, board), *_next_steps(run, board)]:
        console.print(line, soft_wrap=True)


def winner(paths: SweepPaths, spec: SweepSpec) -> TrialSummary | None:
    """The winner so far, by the rule of the sweep; None while no trial has a value."""
    try:
        return select_winner(paths, spec).line
    except UserError:
        return None


def objectives(spec: SweepSpec, line: TrialSummary) -> str:
    """A trial's value of every objective, in words."""
    others = [(o.metric, line.values.get(o.metric)) for o in spec.objectives[1:]]
    return ", ".join(f"{name} {number(v)}" for name, v in [(spec.metric, line.value), *others])


def _outcome(run: SweepController, board: list[TrialSummary]) -> Iterator[str | Text]:
    yield ""
    if best := winner(run.paths, run.spec):
        params = ", ".join(f"{k}={setting(v)}" for k, v in best.record.params.items())
        name = "winner" if run.finished and not run.interrupted else "best so far"
        value = f": {objectives(run.spec, best)} ({params})"
        yield Text.assemble(f"{name} ", (best.record.id, "bold"), value)
    states = Counter(e.record.state for e in board)
    why = ", ".join(f"{count} {state}" for state, count in states.items())
    done = sum(count for state, count in states.items() if state.finished)
    yield f"trials {done} finished in {duration(run.elapsed_s)}: {why or 'none'}"
    reasons = Counter(e.record.reason for e in board if e.record.state is TrialState.STOPPED)
    if reasons:
        said = ", ".join(f"{count} by {reason}" for reason, count in reasons.most_common())
        yield f"stopped early: {said}"
    for entry in board:
        if entry.record.state is TrialState.FAILED:
            log = run.paths.trial(entry.record.id).log(len(entry.record.attempts), 0)
            said = f" {entry.record.id}: {entry.record.reason}; log {log}"
            yield Text.assemble(("failed", "red"), said)
    if not run.interrupted and (limit := run.limit):
        cost = total_cost(run.records.values())
        yield f"ended by {limit.summary}; spent {cost}"
    leaks = [f"{r.id} ({a.leak})" for r in run.records.values() for a in r.attempts if a.leak]
    if leaks:
        more = f" and {len(leaks) - 1} more" * (len(leaks) > 1)
        yield Text(f"left memory behind, lanes replaced: {leaks[0]}{more}", style="yellow")
    yield from (Text(line, style="yellow") for line in run.repaired)
    if run.problem:
        yield Text(run.problem, style="yellow")


def _next_steps(run: SweepController, board: list[TrialSummary]) -> Iterator[str]:
    """Commands to try: only those that can work on this sweep."""
    name, spec = sweep_argument(run.paths), run.spec
    yield from (f"folder {run.paths.root}", "")
    if run.interrupted:
        yield f"stopped; go on with: tune resume {name}"
        return
    if spec.tracking.name != "none":
        yield f"compare    tune ui {name}"
    best = winner(run.paths, spec)
    if best and resolve(spec.trainable).can_evaluate:
        if _same_start(run.paths, board[:2]):
            yield f"average    tune average {name}"
        exports = resolve(spec.trainable).offers("export_hf")
        if exports and run.paths.trial(best.record.id).newest_checkpoint():
            yield f"export     tune export {name} --to hf"
    if paused := sum(e.record.state is TrialState.PAUSED for e in board):
        yield extension(run.paths, paused)
    yield f"inspect    tune show {name} {board[0].record.id if board else ''}".rstrip()


def extension(paths: SweepPaths, paused: int) -> str:
    """What a sweep that is over can still do with its paused trials."""
    which = "one paused trial" if paused == 1 else f"{paused} paused trials"
    return f"extend     tune resume {sweep_argument(paths)} --trials +{paused}  ({which} may go on)"


def _same_start(paths: SweepPaths, board: list[TrialSummary]) -> bool:
    """Whether trials started from the same weights: others have no meaningful average."""
    folders = [paths.trial(e.record.id).newest_checkpoint() for e in board]
    try:
        inits = [json.loads((f / LINEAGE).read_bytes())["init"] for f in folders if f]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return len(inits) > 1 and len(set(inits)) == 1
