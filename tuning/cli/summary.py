"""The last words of a session: leaderboard, winner, why trials stopped, and what to do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from results.leaderboard import TrialSummary, summaries
from results.records import TrialState
from search_spaces.schema import SweepSpec
from tuning.cli.format import duration, number
from tuning.cli.tables import trials_table
from tuning.execution.folder import handle
from tuning.execution.sweep import SweepRun


def leaderboard_table(spec: SweepSpec, board: Sequence[TrialSummary]) -> Table:
    """The leaderboard, or the head of it."""
    best = board[0].record.id if board and board[0].value is not None else None
    return trials_table(spec, [(e.record, e.step, e.value) for e in board], best)


def summarise(run: SweepRun, console: Console) -> None:
    """Print the end of a session."""
    spec, paths = run.spec, run.paths
    board = summaries(paths, spec.metric, spec.mode)
    console.print(leaderboard_table(spec, board[:10]))
    if len(board) > 10:
        console.print(f"… {len(board) - 10} more: tune show {spec.name}", style="dim")
    for line in [*_outcome(run, board), *_next_steps(run, board)]:
        console.print(line, soft_wrap=True)


def _outcome(run: SweepRun, board: list[TrialSummary]) -> list[str]:
    lines = [""]
    done = sum(e.record.state.finished for e in board)
    if board and board[0].value is not None:
        best = board[0]
        params = ", ".join(f"{k}={number(v)}" for k, v in best.record.params.items())
        name = "winner" if run.finished and not run.interrupted else "best so far"
        lines.append(
            f"{name} [bold]{best.record.id}[/]: {run.spec.metric} {number(best.value)} ({params})"
        )
    states = Counter(e.record.state for e in board)
    why = ", ".join(f"{count} {state}" for state, count in states.items())
    lines.append(f"trials {done} finished in {duration(run.elapsed_s)}: {why or 'none'}")
    reasons = Counter(e.record.reason for e in board if e.record.state is TrialState.STOPPED)
    if reasons:
        said = ", ".join(f"{count} by {reason}" for reason, count in reasons.most_common())
        lines.append(f"stopped early: {said}")
    for entry in board:
        if entry.record.state is TrialState.FAILED:
            log = run.paths.trial(entry.record.id).log(len(entry.record.attempts), 0)
            lines.append(f"[red]failed[/] {entry.record.id}: {entry.record.reason}; log {log}")
    if run.problem:
        lines.append(f"[yellow]{run.problem}[/]")
    return lines


def _next_steps(run: SweepRun, board: list[TrialSummary]) -> list[str]:
    name = handle(run.paths)
    lines = [f"folder {run.paths.root}", ""]
    if run.interrupted:
        return [*lines, f"stopped; go on with: tune resume {name}"]
    return [
        *lines,
        f"compare    tune ui {name}",
        f"average    tune average {name}",
        f"export     tune export {name} --to hf",
        f"inspect    tune show {name} {board[0].record.id if board else ''}",
    ]
