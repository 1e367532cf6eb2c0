"""One session of a sweep, from `tune run` or `tune resume` to its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from results.analysis.dataframes import to_frame, write_parquet
from results.analysis.leaderboard import best_of, summaries
from results.paths import Storage, SweepPaths
from results.records.trial import Report
from results.tracking import Ending, Tracker
from search_spaces.redaction import redact_file
from search_spaces.spec.sweep import SweepSpec
from tuning.controller.sweep_dir.folder import accounted, handle, note_end
from tuning.controller.sweep_dir.lock import acquire_lock
from tuning.controller.tracking.observer import TrackerObserver, make_tracker

if TYPE_CHECKING:
    from tuning.cli.run.live_view import View
    from tuning.controller.events import SweepEvents
    from tuning.controller.sweep import SweepController


def run_session(
    paths: SweepPaths, spec: SweepSpec, address: str | None, view: View, stop: Interrupt
) -> SweepController:
    """Run what is left of a sweep, from a new folder or an interrupted one.

    Raises:
        UserError: another driver holds the sweep, no cluster, or a trial can never be placed.
    """
    from tuning.controller.resources.budget import check_spendable
    from tuning.controller.resources.cluster import cluster
    from tuning.controller.resources.placement import place
    from tuning.controller.sweep_dir.commands import CommandHandler
    from tuning.controller.worker_manager import imported_meanwhile, run_trials

    with ExitStack() as stack:
        run, spent = _taken_over(paths, spec, stack, view.board)
        stack.enter_context(view.showing())
        _show(run, view, spent)
        stop.watch(run)
        attend = CommandHandler(run)
        attend.begin()
        placement = None
        if not run.finished:
            view.say("starting Ray")
            with imported_meanwhile():
                nodes = stack.enter_context(cluster(address))
            placement = place(spec.resources, nodes)
            check_spendable(spec.budget, placement)
            view.board.at_once = placement.concurrency
        with _recorded(run, view):
            if placement is not None:
                view.say(f"starting workers: {placement.need} for each trial")
                run_trials(run, placement, attend)
    return run


def _taken_over(
    paths: SweepPaths, spec: SweepSpec, stack: ExitStack, observer: SweepEvents | None = None
) -> tuple[SweepController, float]:
    """The books of a sweep as its folder has them, owned until the stack ends; seconds spent.

    Args:
        observer: is told what earlier sessions recorded: a killed one may not have told it all.
    """
    from tuning.controller.sweep import SweepController
    from tuning.controller.sweep_dir.record_mirror import mirrored
    from tuning.controller.sweep_dir.repair import (
        open_study,
        repair_spec,
        repair_state,
        repair_trials,
    )
    from tuning.controller.sweep_dir.trial_cache import TrialCache
    from tuning.controller.sweep_dir.warm_start import frozen

    fence = stack.enter_context(acquire_lock(paths.lock))
    repaired = [*repair_spec(paths), *repair_state(paths)]
    mirror = stack.enter_context(mirrored(paths, spec, fence))
    spent = stack.enter_context(accounted(paths, fence))
    study, said = open_study(paths, spec)
    repaired += [*said, *repair_trials(paths, spec, study)]
    run = SweepController(spec, paths, study, str(Storage(paths.root.parent).cache), spent)
    run.fence, run.repaired = fence, repaired
    run.mirror = mirror.watch(run)
    study.learn(found := frozen(paths, spec))
    run.reuse = TrialCache(found if spec.search.reuse else ())
    told = run.restore()
    if observer is not None:
        _tell_again(run, told, observer)
    return run, spent


def _show(run: SweepController, view: View, before_s: float) -> None:
    """Show what was mended and what is no longer as it was, and from now on what happens."""
    from tuning.controller.sweep_dir.repair import other_versions

    view.board.before_s = before_s
    run.observers.append(view)
    changed = [] if run.finished else other_versions(run.paths, run.records)
    for line in [*run.repaired, *changed]:
        view.say(line)


class Interrupt:
    """Passes a request to stop on to the sweep, as soon as there is one."""

    def __init__(self) -> None:
        self.asked = False
        self._run: SweepController | None = None

    def __call__(self) -> None:
        """Stop cleanly: what runs keeps its checkpoints and is unfinished."""
        self.asked = True
        if self._run is not None:
            self._run.interrupt()

    def watch(self, run: SweepController) -> None:
        """From now on, stop this sweep."""
        self._run = run
        if self.asked:
            run.interrupt()


@contextmanager
def _recorded(run: SweepController, view: View) -> Iterator[None]:
    """Track the sweep, and write its results however it ends."""
    tracker = make_tracker(run.spec, run.paths, run.fence)
    run.observers.append(TrackerObserver(tracker))
    try:
        yield
    finally:
        run.release()
        view.say("writing results")
        _conclude(run, tracker)


def _tell_again(run: SweepController, told: dict[str, list[Report]], observer: SweepEvents) -> None:
    for record in list(run.records.values()):
        observer.trial_started(record)
        for report in told.get(record.id, ()):
            observer.reported(record, report)
        observer.trial_ended(record)


def _strike_out_logs(run: SweepController) -> None:
    """Hide secrets in the logs of attempts whose processes had no time to do so."""
    for record in run.records.values():
        for attempt in record.attempts:
            ended_it = record.state.finished and attempt is record.attempts[-1]
            if attempt.error or not ended_it:  # others may have been cut off without an error
                for log in run.paths.trial(record.id).attempt(attempt.number).glob("*.log"):
                    redact_file(log)


def _conclude(run: SweepController, tracker: Tracker) -> None:
    run.fence.check()
    _strike_out_logs(run)
    board = summaries(run.paths, run.spec.metric, run.spec.mode)
    best = {f"best_{o.metric}": best_of(board, o.metric, o.mode) for o in run.spec.objectives}
    if board:
        write_parquet(run.paths, to_frame(board, run.spec))
    status = "FINISHED" if run.finished and not run.interrupted else "KILLED"
    if status == "FINISHED" and (limit := run.limit):
        note_end(run.paths, limit.why)
    ending = Ending(status, {k: v for k, v in best.items() if v is not None})
    undelivered = tracker.close(ending, timeout=60.0)
    if undelivered and not run.problem:
        run.problem = f"{undelivered}; the sweep folder has it: tune sync {handle(run.paths)}"
