"""Opens the Optuna study of a sweep folder, and recovers trials from it."""

from __future__ import annotations

import time

from results.analysis.replicates import base_trial_id
from results.paths import SweepPaths
from results.records.trial import TrialRecord
from results.storage.atomic import quarantine_file
from results.sweep_folder.repair import intact_records, repair_line
from search_spaces.errors import first_few
from search_spaces.spec.sweep import SweepSpec
from tuning.search.evidence import derive_seed
from tuning.search.study.study import SweepStudy


def open_study(paths: SweepPaths, spec: SweepSpec) -> tuple[SweepStudy, list[str]]:
    """Open the study; start a new one if it is damaged or contradicts the trials' records.

    The controller adds the trials from their records when it restores the sweep.

    Returns:
        The study, and one line per repair.
    """
    problem: object
    newest = paths.replaced_files(len(list(paths.history.glob(f"*/{paths.spec.name}"))))
    is_replaced = not paths.study.exists() and (newest / paths.study.name).exists()
    try:
        study = SweepStudy(paths.study, spec.name, spec)
        records = intact_records(paths)
        contrary = [r.id for r in records if not study.agrees(r)]
        problem = f"{paths.study}: contradicts the records of {first_few(contrary)}"
        if not contrary:
            lacking = [r.id for r in records if not study.has(r.number)]
            done = f"the trials are added from their records: {first_few(lacking)}"
            line = repair_line(f"{paths.study}: incomplete", None, done)
            if is_replaced:
                line = f"{paths.study}: begun again for what was changed; {done}"
            return study, [line] if lacking else []
    except Exception as e:  # noqa: BLE001 - Optuna may raise anything at a damaged line
        problem = f"{paths.study}: not readable ({type(e).__name__})"
    kept = quarantine_file(paths.study)
    fresh = SweepStudy(paths.study, spec.name, spec)
    return fresh, [repair_line(problem, kept, "rebuilt from the trials' records")]


def recover(spec: SweepSpec, study: SweepStudy, trial_id: str) -> TrialRecord | None:
    """The record of a trial as the study has it, without attempts; None if it is not there."""
    number, replicate = int(base_trial_id(trial_id)[1:]), int(trial_id.partition("-")[2] or 1) - 1
    if (known := study.recover(number)) is None:
        return None
    params, state, last_step = known
    seed = derive_seed(spec.seed, number)
    return TrialRecord(
        id=trial_id,
        number=number,
        replicate=replicate,
        params=params,
        config=spec.nest(params),
        seed=derive_seed(seed, replicate) if replicate else seed,
        state=state,
        end_step=last_step,
        created=time.time(),
    )
