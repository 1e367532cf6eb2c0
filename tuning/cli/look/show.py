"""`tune show`: the trials of a sweep, or one trial, read from the sweep folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search_spaces.errors import DamagedRecordsError, UserError
from tuning.cli.damage import print_damage
from tuning.cli.formatting import echo, make_console, print_lines
from tuning.cli.json_output import print_json
from tuning.cli.look.facts import Board
from tuning.cli.look.ls import no_garbage_collection
from tuning.cli.options import Json, StorageDir, Sweep, TrialArgument, with_results

if TYPE_CHECKING:
    from results.analysis.leaderboard import TrialSummary
    from results.paths import SweepPaths
    from results.records.integrity import Integrity
    from search_spaces.spec.sweep import SweepSpec

_WATCH_S = 2.0
_TIME = "%Y-%m-%d %H:%M:%S"


def show(
    sweep: Sweep,
    trial: TrialArgument = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every two seconds, while it runs.")
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print the reports as CSV, a row for each.")
    ] = False,
    json_: Json = False,
    storage: StorageDir = None,
) -> None:
    """Show a sweep's trials, or all that is known of one trial.

    Of a trial: configuration, reports, checkpoints, attempts, logs. Of a pipeline: its stages. The
    trials of a stage: tune show stories/sft

    Example: tune show llm t0003
    """
    from results.sweep_folder.folder import find_sweep
    from tuning.pipelines.folder import find_pipeline

    if json_:
        if csv or watch:
            raise UserError("--json: goes neither with --csv nor with --watch; leave those out")
        return _show_json(sweep, trial, storage)
    if csv:
        return _show_csv(with_results(sweep, storage), trial)
    if trial is None and (pipeline := find_pipeline(sweep, storage)) is not None:
        from tuning.cli.look.pipeline import show_pipeline

        if watch:
            _watch(pipeline.lock, lambda page: show_pipeline(pipeline, page), make_console())
        return show_pipeline(pipeline, make_console())
    paths, console = find_sweep(sweep, storage), make_console()
    if watch:
        _watch(paths.lock, lambda page: _show(paths, trial, page), console)
    if print_damage(_show(paths, trial, console)):
        raise typer.Exit(DamagedRecordsError.exit_code)


def _show_json(sweep: str, trial: str | None, storage: str | None) -> None:
    from results.records.integrity import check_records
    from results.records.spec_file import read_spec
    from results.sweep_folder.folder import find_sweep
    from results.sweep_folder.lock import sweep_state
    from tuning.cli.look.facts import pipeline_facts, sweep_facts, trial_facts
    from tuning.pipelines.folder import find_pipeline

    if trial is None and (pipeline := find_pipeline(sweep, storage)) is not None:
        return print_json(pipeline_facts(pipeline))
    paths = find_sweep(sweep, storage)
    found, spec = check_records(paths, keep=trial is None), read_spec(paths)
    if trial is None:
        finished = sum(record.state.finished for record, _ in found.read.values())
        print_json(sweep_facts(found, spec, sweep_state(paths, spec, finished)))
    else:
        print_json(trial_facts(paths, trial))
    if found.problems:
        raise DamagedRecordsError(*found.words)


def _show_csv(paths: SweepPaths, trial: str | None) -> None:
    from results.analysis.dataframes import metrics_csv, sweep_csv
    from results.records.integrity import check_records
    from results.records.trial import read_reports, read_trial
    from results.sweep_folder.folder import find_trial

    found = check_records(paths, keep=trial is None)
    if trial is None:
        echo(sweep_csv(list(found.trials())), nl=False)
    else:
        files = find_trial(paths, trial)
        echo(metrics_csv(read_reports(files, read_trial(files).end_step)), nl=False)
    if found.problems:
        raise DamagedRecordsError(*found.words)


def _show(paths: SweepPaths, trial: str | None, console: Any) -> Integrity:
    from results.records.integrity import check_records
    from results.records.spec_file import read_spec
    from tuning.cli.look.show_trial import show_trial

    with no_garbage_collection():
        found, spec = check_records(paths, keep=trial is None), read_spec(paths)
        if trial is None:
            _show_sweep(found, spec, console)
        else:
            show_trial(paths, spec, trial, console)
    return found


def _watch(lock: Path, draw: Callable[[Any], object], console: Any) -> None:
    """Draw the page again and again, while a driver holds the lock; Ctrl-C ends it too."""
    from rich.live import Live
    from rich.text import Text

    from results.sweep_folder.lock import current_driver

    page, last = make_console(), ""  # one of its own: `Live` writes to the other
    with suppress(KeyboardInterrupt), Live(console=console, screen=console.is_terminal) as live:
        while current_driver(lock):
            with page.capture() as drawn:
                draw(page)
            if console.is_terminal:
                live.update(Text.from_ansi(drawn.get()), refresh=True)
            elif drawn.get() != last:  # into a pipe
                echo(last := drawn.get())
            time.sleep(_WATCH_S)


def _show_sweep(found: Integrity, spec: SweepSpec, console: Any) -> None:
    from results.analysis.rungs import rung_trials
    from tuning.cli.look.drawing import family_tree
    from tuning.cli.summary import (
        count_remedies,
        failure_lines,
        leaderboard_table,
        leaders,
        rung_lines,
        winner,
    )
    from tuning.controller.resources.gpu_shares import GpuShares

    paths, read = found.readable, Board.read(found, spec)
    trials, board = read.trials, read.lines
    if board:
        chosen, several = winner(paths, spec, trials), len(spec.objectives) > 1
        alone = [chosen.line.record.id] if chosen else []
        best = leaders(paths, spec, trials) if several else alone
        console.print(leaderboard_table(spec, board, best))
        if several:
            console.print("* on the Pareto front", style="dim")
        if chosen and chosen.confirmed:
            print_lines(console, f"winner {chosen.line.record.id}: {chosen.why}")
        console.print()
    if (tree := family_tree(e.record for e in board)) is not None:
        console.print(tree)
    print_lines(console, *rung_lines(paths, spec, rung_trials(spec, found)))
    print_lines(console, *_state_lines(paths, spec, board))
    print_lines(console, *GpuShares.read(paths).decisions, *failure_lines(paths, board))
    if counts := count_remedies(e.record for e in board):
        failures = ", ".join(f"{n} {remedy}" for remedy, n in counts.items())
        console.print(f"failures: {failures}")


def _state_lines(paths: SweepPaths, spec: SweepSpec, board: list[TrialSummary]) -> Iterator[str]:
    """Progress of a sweep, its driver or why it ended, and the command that continues it."""
    from results.analysis.cost import cost_shares
    from results.records.trial import TrialState
    from results.sweep_folder.folder import read_state, sweep_argument
    from results.sweep_folder.lock import current_driver, last_sign_of_life, sweep_state
    from tuning.cli.summary import extension_line

    finished = sum(e.record.state.finished for e in board)
    paused = sum(e.record.state is TrialState.PAUSED for e in board)
    owner, state = current_driver(paths.lock), sweep_state(paths, spec, finished)
    status = f"driven by {owner}" if owner else state
    if state == "done" and (why := read_state(paths).ended):
        status += f", ended by {why}"
    of = f" of {max(len(board), spec.budget.trials)}" if spec.budget.trials else ""
    if spec.prices is not None:
        yield f"spent {cost_shares((e.record for e in board), spec.prices)}"
    also = f", {paused} paused" if paused else ""
    yield f"{finished}{of} trials finished{also}; {status}"
    if state == "interrupted":
        alive = last_sign_of_life(paths, (e.record.id for e in board if e.record.state.active))
        yield f"last sign of life {time.strftime(_TIME, time.localtime(alive))}"
        yield f"continue with: tune resume {sweep_argument(paths)}"
    elif state == "done" and paused:
        yield extension_line(paths, paused)
