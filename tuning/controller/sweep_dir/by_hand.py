"""`tune add`, `stop` and `pause`: said to the driver, or done on the folder where there is none."""

from __future__ import annotations

from collections.abc import Sequence

from results.paths import SweepPaths
from results.records.spec_file import read_spec
from results.records.trial import TrialState, read_reports, read_trial, read_trials, write_trial
from search_spaces.errors import UserError
from search_spaces.loading.overrides import parse
from tuning.controller.sweep_dir.commands import send
from tuning.controller.sweep_dir.folder import find_trial, handle, note_end
from tuning.controller.sweep_dir.lock import acquire_lock, held_by
from tuning.search.compatibility import check_params


def add(paths: SweepPaths, assignments: Sequence[str]) -> str:
    """Queue a configuration; gives what happens now, in words.

    Args:
        paths: of the sweep.
        assignments: `name=value` texts; the searcher proposes the parameters that are not named.

    Raises:
        UserError: the space has no such configuration.
    """
    parsed = [parse(text, text, "lr=3e-4") for text in assignments]
    params = {".".join(p.path).removeprefix("space."): p.value for p in parsed}
    check_params(read_spec(paths), params)
    send(paths, "add", params=params)
    if owner := held_by(paths.lock):
        return f"queued: it is the next trial that {owner} begins"
    return f"queued; run it with: tune resume {handle(paths)}"


def stop(paths: SweepPaths, trial: str | None) -> str:
    """End a trial for good, or all of them and the sweep; gives what happens now, in words.

    Raises:
        UserError: there is no such trial, or it has ended.
    """
    if trial is not None:
        record = read_trial(find_trial(paths, trial))
        if record.state.finished:
            raise UserError(f"{paths.name}: {trial} has ended: {record.state}, {record.reason}")
    what = trial or "what runs"
    if owner := held_by(paths.lock):
        send(paths, "stop", trial=trial)
        return f"{owner} stops {what} at the next report"
    with acquire_lock(paths.lock):
        stopped = [_stop(paths, r.id) for r in read_trials(paths) if r.id == (trial or r.id)]
        if trial is None:
            note_end(paths, "tune stop")
    return f"stopped {trial or f'the sweep; unfinished trials: {sum(stopped)}'}"


def pause(paths: SweepPaths) -> str:
    """End the session; trials keep their checkpoints. Gives what happens now, in words.

    Raises:
        UserError: nobody drives the sweep.
    """
    owner = held_by(paths.lock)
    if owner is None:
        raise UserError(
            f"{paths.name}: nobody drives it, so there is nothing to pause; "
            f"go on with: tune resume {handle(paths)}"
        )
    send(paths, "pause")
    return f"{owner} pauses now; go on with: tune resume {handle(paths)}"


def _stop(paths: SweepPaths, trial_id: str) -> bool:
    """End a trial in a folder that nobody drives; False when it has ended already."""
    files = paths.trial(trial_id)
    record = read_trial(files)
    if record.state.finished:
        return False
    reports = read_reports(files)
    end = {"reason": "by hand", "end_step": reports[-1].step if reports else None}
    write_trial(files, record.model_copy(update={"state": TrialState.STOPPED, **end}))
    return True
