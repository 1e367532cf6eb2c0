"""`tune show`: the trials of a sweep, or one trial, read from the sweep folder."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search_spaces.errors import DamagedRecordsError, UserError
from tuning.cli.damage import print_damage
from tuning.cli.formatting import duration, echo, make_console, number, print_lines
from tuning.cli.json_output import print_json
from tuning.cli.look.facts import Board, silent_since
from tuning.cli.look.ls import no_garbage_collection
from tuning.cli.options import Json, StorageDir, Sweep, TrialArgument, with_results

if TYPE_CHECKING:
    from results.analysis.leaderboard import TrialSummary
    from results.paths import SweepPaths
    from results.records.integrity import Integrity
    from results.records.trial import Attempt, Report, TrialRecord
    from results.trial_paths import TrialPaths
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
    from results.records.trial import read_reports, read_trial, read_trials_with_reports
    from results.sweep_folder.folder import find_trial

    if trial is None:
        echo(sweep_csv(list(read_trials_with_reports(paths))), nl=False)
    else:
        files = find_trial(paths, trial)
        echo(metrics_csv(read_reports(files, read_trial(files).end_step)), nl=False)


def _show(paths: SweepPaths, trial: str | None, console: Any) -> Integrity:
    from results.records.integrity import check_records
    from results.records.spec_file import read_spec

    with no_garbage_collection():
        found, spec = check_records(paths, keep=trial is None), read_spec(paths)
        if trial is None:
            _show_sweep(found, spec, console)
        else:
            _show_trial(paths, spec, trial, console)
    return found


def _watch(lock: Path, draw: Callable[[Any], object], console: Any) -> None:
    """Draw the page again and again, while a driver holds the lock; Ctrl-C ends it too."""
    from rich.live import Live
    from rich.text import Text

    from results.sweep_folder.lock import current_driver

    page = make_console()  # one of its own: `Live` writes to the other
    with suppress(KeyboardInterrupt), Live(console=console, screen=console.is_terminal) as live:
        while current_driver(lock):
            with page.capture() as drawn:
                draw(page)
            if console.is_terminal:
                live.update(Text.from_ansi(drawn.get()), refresh=True)
            time.sleep(_WATCH_S)


def _show_sweep(found: Integrity, spec: SweepSpec, console: Any) -> None:
    from tuning.cli.look.drawing import family_tree
    from tuning.cli.summary import (
        count_remedies,
        failure_lines,
        leaderboard_table,
        leaders,
        rung_lines,
        winner,
    )

    paths, read = found.readable, Board.read(found, spec)
    trials, board = read.trials, read.lines
    if board:
        best = leaders(paths, spec, trials)
        console.print(leaderboard_table(spec, board, best))
        if len(spec.objectives) > 1:
            console.print("* on the Pareto front", style="dim")
        if (chosen := winner(paths, spec, trials)) and chosen.confirmed:
            console.print(f"winner {chosen.line.record.id}: {chosen.why}", soft_wrap=True)
        console.print()
    if (tree := family_tree(e.record for e in board)) is not None:
        console.print(tree)
    print_lines(console, *rung_lines(paths, spec, list(found.trials())))
    print_lines(console, *_state_lines(paths, spec, board, read.silent_since))
    for line in failure_lines(paths, board):
        console.print(line, soft_wrap=True)
    if counts := count_remedies(e.record for e in board):
        failures = ", ".join(f"{n} {remedy}" for remedy, n in counts.items())
        console.print(f"failures: {failures}")


def _state_lines(
    paths: SweepPaths, spec: SweepSpec, board: list[TrialSummary], silent_since: float | None
) -> Iterator[str]:
    """Progress of a sweep, its driver or why it ended, and the command that continues it."""
    from results.analysis.cost import cost_shares
    from results.records.trial import TrialState
    from results.sweep_folder.folder import read_state, sweep_argument
    from results.sweep_folder.lock import current_driver, sweep_state
    from tuning.cli.summary import extension_line

    finished = sum(e.record.state.finished for e in board)
    paused = sum(e.record.state is TrialState.PAUSED for e in board)
    owner, state = current_driver(paths.lock), sweep_state(paths, spec, finished)
    status = f"driven by {owner}" if owner else state
    if state == "done" and (why := read_state(paths).ended):
        status += f", ended by {why}"
    of = f" of {spec.budget.trials}" if spec.budget.trials else ""
    if spec.prices is not None:
        yield f"spent {cost_shares((e.record for e in board), spec.prices)}"
    yield f"{finished}{of} trials finished{f', {paused} paused' * bool(paused)}; {status}"
    if state == "interrupted":
        if silent_since:
            yield f"last sign of life {time.strftime(_TIME, time.localtime(silent_since))}"
        yield f"continue with: tune resume {sweep_argument(paths)}"
    elif state == "done" and paused:
        yield extension_line(paths, paused)


def _show_trial(paths: SweepPaths, spec: SweepSpec, trial: str, console: Any) -> None:
    from rich.text import Text

    from results.analysis.cost import cost_shares
    from results.checkpoints.commit import damaged_checkpoints
    from results.records.trial import read_reports, read_trial
    from results.sweep_folder.folder import find_trial
    from tuning.cli.run.space_table import computed
    from tuning.cli.trials_table import state_cell
    from tuning.controller.attempts import end_silent_attempt

    files = find_trial(paths, trial)
    record = read_trial(files)
    record = end_silent_attempt(record, silent_since(paths, [record]))
    state = state_cell(record)
    reason = f": {record.reason}" if record.reason else ""
    console.print(Text.assemble((record.id, "bold"), " ", state, reason), soft_wrap=True)
    parts = {"searched": record.params, "fixed": spec.fixed}
    parts |= {"computed": computed(spec, record.config), "adjusted": record.adjusted}
    for name, part in parts.items():
        if name in ("computed", "adjusted") and not part:
            continue
        console.print(f"{name} {json.dumps(part, default=str)}", soft_wrap=True)
    reports = read_reports(files, record.end_step)
    _draw_curves(reports, [o.metric for o in spec.objectives], console)
    print_lines(console, *_report_lines(reports, spec.metric))
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


def _report_lines(reports: list[Report], metric: str) -> Iterator[str]:
    """Every report, and how many of them lack the metric."""
    for report in reports:
        metrics = "  ".join(f"{k} {number(v)}" for k, v in report.metrics.items())
        yield f"step {report.step:>6}  {metrics}"
    if gaps := sum(metric not in r.metrics for r in reports):
        yield f"{gaps} of {len(reports)} reports lack {metric}, and do not count"


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
        "logs {}": files.attempt(attempt.number),
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
    if steps := ", ".join(map(str, files.checkpoint_steps())):
        return f"checkpoints of steps {steps} in {files.checkpoints}"
    newest = files.newest_checkpoint()
    return f"newest checkpoint {newest}" if newest else "no checkpoints"
