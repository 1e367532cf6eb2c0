"""One session of a sweep: open its folder, run the remaining trials, write the results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from results.analysis.cost import last_activity
from results.analysis.dataframes import trials_frame, write_parquet
from results.analysis.leaderboard import best_of, read_leaderboard
from results.analysis.outcome_constraints import checked_again
from results.paths import SweepPaths
from results.records.trial import Report
from results.storage.log_filter import no_core_dumps
from results.sweep_folder.folder import record_end, sweep_argument
from results.tracking import Ending
from search_spaces.errors import afterwards
from search_spaces.spec.sweep import SweepSpec
from tuning.controller.attempts import end_attempt, new_record
from tuning.controller.events import Interrupt, SessionStart, SweepEvents
from tuning.controller.sweep import SweepController
from tuning.controller.sweep_dir.watchdog import SessionWatchdog
from tuning.controller.tracking.monitoring import exporters
from tuning.controller.tracking.notify import Notifier
from tuning.controller.tracking.observer import TrackerObserver, make_tracker
from tuning.controller.tracking.tracking_client import START_DELAY_S
from tuning.search.compatibility import compatible_params
from tuning.search.schedulers import Decision

if TYPE_CHECKING:
    from tuning.controller.commands import CommandHandler


def run_session(
    paths: SweepPaths,
    spec: SweepSpec,
    *,
    address: str | None = None,
    observers: Iterable[SweepEvents] = (),
    interrupt: Interrupt,
    accept_damage: bool = False,
    introduction: Sequence[str] = (),
) -> SweepController:
    """Run the remaining trials of a sweep, from a new folder or an interrupted one.

    Args:
        paths, spec: of the sweep.
        address: of the Ray cluster to join; None starts one on this machine.
        observers: are notified of events.
        interrupt: ends the session when it is called; the caller has entered it.
        accept_damage: see `open_sweep`.
        introduction: see `open_sweep`.

    Raises:
        UserError: another driver holds the sweep, no cluster, or a trial can never be placed.
    """
    from tuning.controller.commands import CommandHandler, pending_commands
    from tuning.controller.ray_tune.runner import cluster_session, run_trials

    earlier = pending_commands(paths)
    with (
        no_core_dumps(),
        SessionWatchdog(interrupt, paths) as watchdog,
        exporters(spec, paths) as monitors,
        open_sweep(paths, spec, [*observers, *monitors], accept_damage, introduction) as run,
    ):
        run.on_progress = watchdog.progress
        endings: list[Ending] = []
        with afterwards(lambda: _end_session(run, watchdog, endings)):
            run.observers.add(Notifier(spec))
            _report_changes(run)
            interrupt.watch(run.interrupt, watchdog.release)
            (commands := CommandHandler(run)).begin(earlier)
            with cluster_session(run, address) as placement:
                run.observers.add(tracking := _tracking(run))
                end = partial(_end_trials, run, watchdog, tracking, commands)
                with afterwards(lambda: endings.extend(end())):
                    if placement is not None and not interrupt.requested:
                        request = placement.request_summary
                        run.observers.message(f"starting workers: {request} for each trial")
                        run_trials(run, placement, commands)
        _after_delivery(run, tracking, commands)
    return run


def _after_delivery(
    run: SweepController, tracking: TrackerObserver, commands: CommandHandler
) -> None:
    """Note what the tracker does not have, and end the commands that came meanwhile."""
    if tracking.undelivered:
        again = f"tune sync {sweep_argument(run.paths)}"
        run.note_problem(f"{tracking.undelivered}; the sweep folder has it: {again}")
    if run.finished and not run.interrupted:
        commands.end()


def _tracking(run: SweepController) -> TrackerObserver:
    from tuning.cluster.warm_cluster import STATE

    # beside a warm cluster no worker starts that needs the cores
    delay_s = START_DELAY_S if STATE.cluster is None else 0.0
    return TrackerObserver(make_tracker(run.spec, run.paths, run.table.fence, delay_s))


@contextmanager
def asked_session(paths: SweepPaths, spec: SweepSpec) -> Iterator[SweepController]:
    """A session without Ray: who opened it runs the trials; the results are written at its end.

    Raises:
        UserError: see `open_sweep`.
    """
    with open_sweep(paths, spec) as run:
        yield run
        with run.batched():
            run.lifecycle.release()
        _write_results(run)


@contextmanager
def open_sweep(
    paths: SweepPaths,
    spec: SweepSpec,
    observers: Iterable[SweepEvents] = (),
    accept_damage: bool = False,
    introduction: Sequence[str] = (),
) -> Iterator[SweepController]:
    """Own a trusted sweep's folder while the block runs: repair, read and sign it, count seconds.

    Args:
        paths, spec: of the sweep.
        observers: are notified of the start, with the `introduction`, and of all later events.
        accept_damage: go on without the records that cannot be repaired.

    Raises:
        UserError: another driver holds the sweep, or its folder cannot be repaired.
        DamagedRecordsError: records are missing, damaged, changed or foreign.
    """
    from results.sweep_folder.sweep_folder import SweepFolder
    from tuning.controller.sweep_dir.study import open_study, recover
    from tuning.controller.tracking.sweep_facts import code_commit
    from tuning.search.trial_cache import TrialCache
    from tuning.search.warm_start import load_evidence

    with SweepFolder(paths).own(spec, code_commit(spec.trainable)) as folder:
        study, messages = open_study(paths, spec)
        folder.repaired.extend(messages)
        folder.repair_records(partial(recover, spec, study), accept_damage)
        run = SweepController(
            spec,
            paths,
            study,
            cache=str(paths.storage.cache),
            spent_s=folder.time.before,
            fence=folder.fence,
            mirror=folder.mirror.place,
        )
        run.repaired = folder.repaired
        folder.mirror.watch(run.note_problem)
        study.set_findings(found := load_evidence(paths, spec))
        run.reuse = TrialCache(found if spec.search.reuse else ())
        _start(run, observers, folder.time.before, introduction)
        before = _num_attempts(run)
        yield run
        folder.time.idle = before == _num_attempts(run)


def _num_attempts(run: SweepController) -> tuple[int, int]:
    """Of trials, and of all their attempts."""
    return len(run.records), sum(len(r.attempts) for r in run.records.values())


def restore(run: SweepController) -> dict[str, list[Report]]:
    """Rebuild a sweep from its folder: refill the rungs and the study, queue unfinished trials.

    Returns:
        The reports of each trial, by id: they are read once, and not kept.
    """
    reports = run.table.read_back()
    for record in [*run.records.values()]:  # the file may have other constraints since
        checked = checked_again(record, run.spec.outcome_constraints, reports[record.id])
        if checked != record:
            run.table.save(checked)
    records = list(run.records.values())
    # at rungs no trial is compared with those of an earlier file, perhaps of other data
    finished = (r for r in records if r.state.finished)
    earlier = {r.id for r in finished if compatible_params(run.spec, r) is None}
    fits = (r for r in records if r.id not in earlier)
    undecided = run.scheduler.replay((r, p) for r in fits for p in reports[r.id])
    numbers = {r.number for r in records}
    run.study.rebuild(run.lifecycle.configuration(n) for n in sorted(numbers))
    for number, params in run.study.proposals(numbers):
        # the driver was killed between proposal and record
        run.table.save(new_record(run.spec, number, params))
    for record in sorted(run.records.values(), key=lambda r: r.number):
        if record.state.finished:
            run.scheduler.on_trial_complete(record.id)
        elif record.state.active or record.id in undecided:
            ended = last_activity(record, reports.get(record.id, ()))
            run.table.save(end_attempt(record, ended=ended))
            _queue_unfinished(run, record.id, *undecided.get(record.id, (None, Decision.CONTINUE)))
    return reports


def _queue_unfinished(
    run: SweepController, trial_id: str, report: Report | None, decision: Decision
) -> None:
    """Queue a trial that a dead driver left, unless its last decision ends or pauses it."""
    if report is None or decision is Decision.CONTINUE:
        run.scheduler.on_trial_resume(trial_id)
        run.queue.waiting.append(trial_id)
    elif decision is Decision.PAUSE:
        run.lifecycle.pause(trial_id, report.step)
    else:
        run.carry_out(trial_id, report.step, decision)


def _start(
    run: SweepController,
    observers: Iterable[SweepEvents],
    spent_s: float,
    introduction: Sequence[str],
) -> None:
    """Restore the sweep, and send observers the records of earlier sessions."""
    from tuning.controller.commands import pending_commands

    reports = restore(run)
    for observer in observers:
        run.observers.add(observer)
    history = [(record, reports.get(record.id, ())) for record in run.records.values()]
    if history and run.finished and not pending_commands(run.paths):
        why = f", which reached {run.limit.summary}" if run.limit else ""
        introduction = [*introduction, f"nothing is to do for this sweep{why}"]
    start = SessionStart(run.paths, run.spec, spent_s, history, introduction)
    run.observers.session_started(start)


def _report_changes(run: SweepController) -> None:
    """Notify observers of repairs, and of libraries with another version."""
    from results.records.environment import version_changes
    from trainables.runtime.provenance import library_versions

    changed = (
        [] if run.finished else version_changes(run.paths, run.records, dict(library_versions()))
    )
    for line in [*run.repaired, *changed]:
        run.observers.message(line)


def _end_trials(
    run: SweepController,
    watchdog: SessionWatchdog,
    tracking: TrackerObserver,
    commands: CommandHandler,
) -> list[Ending]:
    """Record that no trial runs any more, and write the results, which may take any time.

    After an error of a record's write the records stay as they are, as after a kill.
    """
    watchdog.progress(math.inf)
    if run.error is not None:
        return []
    run.lifecycle.release()
    commands.end()
    tracking.closes_soon()
    run.observers.message("writing results")
    return [_write_results(run)]


def _end_session(
    run: SweepController, watchdog: SessionWatchdog, endings: Sequence[Ending]
) -> None:
    """Notify the observers; the delivery to MLflow has a limit of its own."""
    watchdog.progress(math.inf)
    run.observers.session_ended(endings[0] if endings else None)


def _write_results(run: SweepController) -> Ending:
    """Write the leaderboard and the reason of the sweep's end; returns the end of the session."""
    run.table.fence.check()
    board = read_leaderboard(run.paths, run.spec.metric, run.spec.mode)
    best = {f"best_{o.metric}": best_of(board, o.metric, o.mode) for o in run.spec.objectives}
    if board:
        write_parquet(run.paths, trials_frame(board, run.spec))
    by_user = run.queue.stopped  # also if the session was interrupted after that
    status = "FINISHED" if run.finished and (by_user or not run.interrupted) else "KILLED"
    if status == "FINISHED" and (limit := run.limit):
        record_end(run.paths, limit.summary)
    return Ending(status, {k: v for k, v in best.items() if v is not None})
