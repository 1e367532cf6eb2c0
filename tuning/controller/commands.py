"""Commands to a sweep: `add`, `stop` and `pause`, one file each in the sweep's `inbox`.

The driver removes the file after the effect is on disk. If it is killed in between, the next driver
finds the file again, and recognises finished work by the command's id. Without a driver, a
command acts on the sweep folder itself.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from results.analysis.cost import last_activity
from results.analysis.outcome_constraints import with_violations
from results.paths import SweepPaths
from results.records.spec_file import read_spec
from results.records.trial import (
    TrialRecord,
    TrialState,
    read_reports,
    read_trial,
    read_trials,
    write_trial,
)
from results.storage.atomic import write_atomic
from results.storage.sharing import use_modes_of
from results.sweep_folder.folder import (
    find_trial,
    read_state,
    record_end,
    record_killed_session,
    sweep_argument,
)
from results.sweep_folder.lock import acquire_lock, current_driver
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError
from search_spaces.files import read_regular
from search_spaces.loading.overrides import parse
from tuning.controller.attempts import count_reports, end_attempt
from tuning.search.compatibility import check_params

if TYPE_CHECKING:
    from tuning.controller.sweep import SweepController

POLL_S = 0.5


class InboxCommand(BaseModel):
    """A command in the inbox.

    Attributes:
        id: unique; ids sort by the time of sending.
        do: `add` a configuration, `stop` a trial (or the sweep, without one), `pause` the sweep.
        trial: the trial to stop.
        params: of the configuration to add, by dotted name; the searcher proposes the others.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    do: Literal["add", "stop", "pause"]
    trial: str | None = None
    params: dict[str, Any] = {}


def send(paths: SweepPaths, do: Literal["add", "stop", "pause"], **what: Any) -> InboxCommand:
    """Put a command into the sweep's inbox; it is on disk when this returns."""
    command = InboxCommand(id=f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}", do=do, **what)
    use_modes_of(paths.root)
    write_atomic(paths.command(command.id), command.model_dump_json(exclude_unset=True).encode())
    return command


def pending_commands(paths: SweepPaths) -> list[InboxCommand]:
    """Commands that are not yet executed, oldest first; other files are ignored."""
    found = []
    for file in sorted(paths.inbox.glob("[!.]*.json")):
        try:
            found.append(InboxCommand.model_validate_json(read_regular(file)))
        except (OSError, ValidationError):  # removed meanwhile, or no command
            continue
    return found


def add_configuration(paths: SweepPaths, assignments: Sequence[str]) -> str:
    """Queue a configuration; returns the effect in words.

    It is given as `name=value` texts; the searcher proposes the other parameters.

    Raises:
        UserError: the configuration is not in the space.
    """
    parsed = [parse(text, text, "lr=3e-4") for text in assignments]
    names = [".".join(p.path).removeprefix("space.") for p in parsed]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise UserError(*(f"{name}: given twice" for name in twice))
    add_params(paths, {name: p.value for name, p in zip(names, parsed, strict=True)})
    if owner := current_driver(paths.lock):
        return f"queued: it is the next trial that {owner} starts"
    return f"queued; run it with: tune resume {sweep_argument(paths)}"


def add_params(paths: SweepPaths, params: dict[str, Any]) -> None:
    """Queue a configuration, by dotted names; the searcher proposes the other parameters.

    Raises:
        UserError: the configuration is not in the space.
    """
    check_params(read_spec(paths), params)
    send(paths, "add", params=params)


def stop_trials(paths: SweepPaths, trial: str | None) -> str:
    """Stop a trial, or the sweep with all its trials and additions; returns the effect in words.

    Raises:
        UserError: there is no such trial, or it has ended.
    """
    if trial is not None:
        record = read_trial(find_trial(paths, trial))
        if record.state.finished:
            raise UserError(f"{paths.name}: {trial} has ended: {record.state}, {record.reason}")
    if owner := current_driver(paths.lock):
        send(paths, "stop", trial=trial)
        return f"{owner} stops {trial or 'all running trials'} at the next report"
    with acquire_lock(paths.lock):
        record_killed_session(paths)
        constraints = read_spec(paths).outcome_constraints
        chosen = [r for r in read_trials(paths) if r.id == (trial or r.id)]
        stopped = [_stop_trial(paths.trial(r.id), r, constraints) for r in chosen]
        added = [c for c in pending_commands(paths) if c.do == "add" and trial is None]
        for command in added:
            paths.command(command.id).unlink(missing_ok=True)
        if trial is None and not read_state(paths).ended:
            record_end(paths, "tune stop")
    dropped = f"; discarded, since no trial had begun: {len(added)} added" if added else ""
    return f"stopped {trial or f'the sweep; unfinished trials: {sum(stopped)}{dropped}'}"


def pause_session(paths: SweepPaths) -> str:
    """End the session; trials keep their checkpoints. Returns the effect in words.

    Raises:
        UserError: no driver runs the sweep.
    """
    owner = current_driver(paths.lock)
    if owner is None:
        raise UserError(
            f"{paths.name}: no driver runs it, so there is nothing to pause; "
            f"continue with: tune resume {sweep_argument(paths)}"
        )
    send(paths, "pause")
    return f"{owner} pauses now; continue with: tune resume {sweep_argument(paths)}"


def _stop_trial(files: TrialPaths, record: TrialRecord, constraints: Sequence[str]) -> bool:
    """Stop a trial of a sweep that no driver runs; False if it has ended already."""
    if record.state.finished:
        return False
    reports = read_reports(files)
    end = {"reason": "by hand", "end_step": reports[-1].step if reports else None}
    ended = end_attempt(record, ended=last_activity(record, reports))
    ended = count_reports(ended, record, files)
    stopped = ended.model_copy(update={"state": TrialState.STOPPED, **end})
    write_trial(files, with_violations(stopped, constraints, lambda: reports))
    return True


class CommandHandler:
    """Carries out a sweep's commands in the driver, between events.

    Call it often: it reads the inbox every `POLL_S` seconds.
    """

    def __init__(self, run: SweepController) -> None:
        self._run = run
        self._next = 0.0

    def begin(self, earlier: Sequence[InboxCommand] = ()) -> None:
        """Carry out the commands that were sent while no driver ran; discard old pauses.

        Args:
            earlier: commands that were there before this session owned the sweep.
        """
        for command in earlier:
            if command.do == "pause":
                self._done(command)
        self.carry_out()

    def __call__(self) -> None:
        """Carry out all pending commands, if the last time was `POLL_S` seconds ago."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + POLL_S
            self.carry_out()

    def carry_out(self) -> None:
        """Carry out all pending commands now."""
        run = self._run
        for command in pending_commands(run.paths):
            run.table.fence.check()  # only the sweep's owner carries out commands
            if command.do == "pause":
                self._done(command)  # first: it must not pause the session after this one
                run.interrupt()
            elif command.do == "add":
                self._add(command)
                self._done(command)
            elif run.lifecycle.stop(command.trial):
                self._done(command)

    def end(self) -> None:
        """Carry out the stops that still wait for trials' ends; left behind, one would end the next
        session too.
        """
        for command in pending_commands(self._run.paths):
            if command.do == "stop" and self._run.lifecycle.stop(command.trial):
                self._done(command)

    def _add(self, command: InboxCommand) -> None:
        try:
            check_params(self._run.spec, command.params)
        except UserError as e:  # the space was changed since
            self._run.note_problem(f"an added configuration no longer fits: {e.problems[0]}")
            return
        self._run.add(command.params, command.id)

    def _done(self, command: InboxCommand) -> None:
        self._run.paths.command(command.id).unlink(missing_ok=True)
