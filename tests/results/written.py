"""Trials and checkpoints written as files, without training."""

from collections.abc import Mapping
from pathlib import Path

from results.analysis.confirmation import ConfirmedTrial, Remeasurement
from results.analysis.replicates import replicate_id
from results.checkpoints.binding import binding_of
from results.checkpoints.commit import commit, create_staging, staging_folder
from results.checkpoints.streaming_hash import write_hashed
from results.paths import SweepPaths
from results.records.trial import Attempt, Report, TrialRecord, TrialState
from results.trial_paths import TrialPaths


def add_trial(
    sweep: SweepPaths,
    number: int,
    losses: dict[int, float],
    state: TrialState = TrialState.COMPLETED,
    end_step: int | None = None,
    replicate: int = 0,
    **params: object,
) -> str:
    """Write a trial that reported these values of `loss`, by step; returns its id."""
    record = TrialRecord(
        id=replicate_id(number, replicate),
        number=number,
        replicate=replicate,
        params=params,
        config={},
        seed=number,
        state=state,
        end_step=end_step,
        created=100.0,
        attempts=(Attempt(number=1, started=100.0, ended=103.5),),
    )
    paths = sweep.trial(record.id)
    paths.root.mkdir(parents=True)
    paths.record.write_text(record.model_dump_json())  # a thousand fsyncs would take seconds
    lines = (
        Report(step=step, metrics={"loss": loss}, attempt=1, time=100.0 + step).model_dump_json()
        for step, loss in losses.items()
    )
    paths.reports.write_text("".join(f"{line}\n" for line in lines))
    return record.id


def write_checkpoint(
    paths: TrialPaths, step: int, files: Mapping[str, str | bytes], attempt: int = 1
) -> Path:
    """Commit a checkpoint with these files; returns its folder."""
    folder = staging_folder(paths, step, attempt)
    create_staging(folder)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        write_hashed(folder / name, [memoryview(data)])
    commit(folder, paths.checkpoint(step), step=step, binding=binding_of(paths))
    return paths.checkpoint(step)


def remeasured(trial: str, **values: tuple[float, ...]) -> ConfirmedTrial:
    """A confirmed trial: by objective, the value of the search, and new ones of both splits."""
    series = {
        name: Remeasurement(search=search, selection=tuple(new), test=tuple(new))
        for name, (search, *new) in values.items()
    }
    return ConfirmedTrial(trial=trial, series=series)
