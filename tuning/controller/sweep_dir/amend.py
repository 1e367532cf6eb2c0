"""Changes a sweep that has begun: more budget, another space, other scheduler settings.

The sweep folder's `sweep.yaml` is replaced, and the old one kept. The search keeps the trials that
fit the new space, and ignores the others.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from results.paths import SweepPaths
from results.records.record_log import write_logged
from results.records.spec_file import is_damaged, read_spec
from results.records.trial import TrialState, read_trials, write_trial
from results.storage.atomic import fsync_dir, write_atomic
from results.sweep_folder.folder import (
    record_killed_session,
    sign_state,
    sweep_argument,
    total_elapsed_s,
)
from results.sweep_folder.lock import acquire_lock
from results.sweep_folder.repair import verify_records
from search_spaces.checksum import CHECKSUM_PREFIX, add_yaml_checksum
from search_spaces.errors import UserError, first_few
from search_spaces.loading.sweep_file import LoadedSweep, dump_sweep, load_sweep
from search_spaces.spec.base import parse_duration
from search_spaces.spec.sweep import SweepSpec
from trainables.user_code.loader import canonical
from tuning.controller.preflight.checks import preflight
from tuning.controller.sweep_dir.moved_project import Move, find_move
from tuning.search.auto import auto_choice_comment, with_scheduler
from tuning.search.compatibility import compatible_params
from tuning.search.warm_start import source_sweeps

IMMUTABLE_KEYS = {
    "name": "name",
    "trainable": "trainable",
    "metric": "metrics",
    "mode": "modes",
    "seed": "seed",
    "storage": "storage",
}
"""Key of the sweep file to field of the spec: with other values, trials are not comparable, or
not found.
"""
_SPACE_FIELDS = {"space", "fixed", "outcome_constraints"}


@dataclass(frozen=True)
class Amendment:
    """The result of a change.

    Attributes:
        overrides: `a.b=c` texts that were applied.
        excluded: ids of trials that do not fit the changed space.
        trials: the number of trials before the change.
        budget: `budget.trials` from now on; None for any number.
        reopened: ids of failed trials that run again.
        moved: where the project was and is, in words; empty if it was not moved.
    """

    overrides: tuple[str, ...]
    excluded: tuple[str, ...]
    trials: int
    budget: int | None = None
    reopened: tuple[str, ...] = ()
    moved: str = ""

    def __str__(self) -> str:
        parts = [self.moved] if self.moved else []
        parts += [f"changed: {', '.join(self.overrides)}"] if self.overrides else []
        if self.reopened:
            parts.append(f"failed trials that run again: {first_few(self.reopened)}")
        if self.budget is not None and self.budget < self.trials:
            parts.append(
                f"budget.trials={self.budget} is less than the {self.trials} trials that it has: "
                f"they stay, and no new one starts; --trials +N adds N"
            )
        text = "\n".join(parts)
        if not self.excluded:
            return text
        return (
            f"{text}\n{len(self.excluded)} of {self.trials} earlier trials no longer fit, and the "
            f"search learns nothing from them: {first_few(self.excluded)}"
        )


def amend_sweep(
    paths: SweepPaths,
    trials: str | None,
    time: str | None,
    overrides: Sequence[str],
    *,
    retry_failed: bool = False,
    accept_damage: bool = False,
) -> Amendment | None:
    """Change a sweep that no driver runs; None if no change is given.

    Args:
        trials: new `budget.trials`; `+N` adds to the present ones.
        time: new `budget.time`, in seconds or like `2h`; `+2h` adds to it.
        overrides: `a.b=c` texts.
        retry_failed: failed trials run again, except for those whose configuration is the cause.
        accept_damage: change it although records are damaged; a session repairs what it can.

    Raises:
        DamagedRecordsError: records are damaged or incomplete.
        UserError: a driver runs the sweep, the changed sweep file is invalid, the change is of an
            immutable key, or no trial can be tried again.
    """
    move = None
    if paths.spec.is_file() and not is_damaged(paths):
        move, overrides = find_move(paths, read_spec(paths), overrides)
    if not (trials or time or overrides or retry_failed or move):
        return None
    with acquire_lock(paths.lock):
        _refuse_damage(paths, accept_damage)
        record_killed_session(paths)
        if move is not None:
            _move(paths, move)
        old = read_spec(paths)
        texts = (*overrides, *_budget_overrides(paths, old, trials, time))
        loaded = _changed_file(paths, old, texts)
        records = read_trials(paths)
        excluded = tuple(r.id for r in records if compatible_params(loaded.spec, r) is None)
        retried = [r for r in records if r.may_be_retried and r.id not in excluded]
        reopened = retried if retry_failed else []
        if retry_failed and not reopened:
            if all(record.state.finished for record in records):
                raise UserError(f"--retry-failed: no trial of {paths.name} can be tried again")
            if not (texts or move):  # unfinished trials run anyway
                return None
        _replace_spec(paths, old, loaded, rebuild_study=bool(reopened))
        for record in reopened:  # they run again
            update = {"state": TrialState.PENDING, "reason": "", "end_step": None}
            write_trial(paths.trial(record.id), record.model_copy(update=update))
        budget, again = loaded.spec.budget.trials if trials else None, tuple(r.id for r in reopened)
        return Amendment(texts, excluded, len(records), budget, again, str(move or ""))


def _refuse_damage(paths: SweepPaths, accept_damage: bool) -> None:
    if is_damaged(paths):
        raise UserError(
            f"{paths.spec}: damaged, or edited; repair it first, without a change: "
            f"tune resume {sweep_argument(paths)}"
        )
    if not accept_damage:
        verify_records(paths)


def _move(paths: SweepPaths, move: Move) -> None:
    """Write the new place of a moved project into the sweep's file and its trials' records."""
    loaded = load_sweep(paths.spec, begun=True)
    loaded = replace(loaded, spec=move.spec(loaded.spec))
    _replace_spec(paths, loaded.spec, loaded, rebuild_study=False)  # the search is the same
    for record in read_trials(paths):
        write_trial(paths.trial(record.id), move.record(record))


def _changed_file(paths: SweepPaths, old: SweepSpec, overrides: Sequence[str]) -> LoadedSweep:
    """The sweep's file with changes, which are checked."""
    loaded = load_sweep(paths.spec, overrides, begun=True)
    _check_immutable_keys(old, loaded.spec)
    preflight(loaded, begun=True)
    if old.search.warm_start != loaded.spec.search.warm_start:
        source_sweeps(loaded.spec, str(paths.root.parent))
    if old.user_code == loaded.spec.user_code:
        return loaded
    functions = loaded.spec.user_code.mapped(canonical)
    return replace(loaded, spec=loaded.spec.model_copy(update={"user_code": functions}))


def _budget_overrides(
    paths: SweepPaths, spec: SweepSpec, trials: str | None, time: str | None
) -> list[str]:
    texts = []
    if trials is not None:
        current = max(spec.budget.trials or 0, len(paths.trial_ids()))
        texts.append(f"budget.trials={_parse_trials(trials, current)}")
    if time is not None:
        seconds = _parse_time(time.removeprefix("+"), time)
        if time.startswith("+"):
            seconds += max(spec.budget.time or 0.0, total_elapsed_s(paths))
        texts.append(f"budget.time={seconds:.10g}")
    return texts


def _parse_trials(text: str, current: int) -> int:
    digits = text.removeprefix("+")
    if not digits.isdecimal():
        raise UserError(f"--trials {text}: must be a whole number, or +20 for 20 more")
    return int(digits) + current * text.startswith("+")


def _parse_time(text: str, given: str) -> float:
    try:
        return parse_duration(float(text) if text.replace(".", "", 1).isdecimal() else text)
    except ValueError as e:
        raise UserError(f"--time {given}: {e}, or +2h for two hours more") from e


def _check_immutable_keys(old: SweepSpec, new: SweepSpec) -> None:
    for key, field in IMMUTABLE_KEYS.items():
        if (before := getattr(old, field)) != getattr(new, field):
            key = "command" if key == "trainable" and old.command and new.command else key
            raise UserError(
                f"--set {key}: cannot change in a sweep that has begun ({before!r}); "
                "start another with tune run, and let it learn from this one with "
                f"--set 'search.warm_start=[{old.name}]'"
            )


def _replace_spec(
    paths: SweepPaths, old: SweepSpec, loaded: LoadedSweep, *, rebuild_study: bool
) -> None:
    """Replace the spec file, and keep the old one in `history/`.

    A study of another space moves there too, or one that holds outcomes of trials that run again:
    resume rebuilds it from the trials' records.
    """
    before = paths.spec.read_bytes()
    kept = paths.replaced_files(len(list(paths.history.glob("*/sweep.yaml"))) + 1)
    write_atomic(kept / paths.spec.name, before)
    old_space, new_space = (s.model_dump(include=_SPACE_FIELDS) for s in (old, loaded.spec))
    outdated = [paths.study] if rebuild_study or old_space != new_space else []
    if old.search.warm_start != loaded.spec.search.warm_start:
        outdated.append(paths.evidence)
    for file in filter(Path.exists, outdated):
        os.replace(file, kept / file.name)
        fsync_dir(kept)
    comments = [line for line in before.decode().splitlines() if line.startswith("#")]
    header = [line for line in comments if not line.startswith(CHECKSUM_PREFIX)]
    header += ["# changed by `tune resume`", *(f"# --set {text}" for text in loaded.overrides)]
    header += [note] if (note := auto_choice_comment(loaded.spec)) else []
    text = add_yaml_checksum("\n".join([*header, dump_sweep(with_scheduler(loaded.spec))])).encode()
    with contextlib.suppress(UserError):  # a lost state.json; the session writes and signs another
        sign_state(paths, text)
    write_logged(paths, paths.spec, text)
