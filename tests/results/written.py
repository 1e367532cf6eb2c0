"""Trials as files, without anything that ran."""

from __future__ import annotations

from results.analysis.replicates import replicate_id
from results.paths import SweepPaths
from results.records.trial import Attempt, Report, TrialRecord, TrialState


def add(
    sweep: SweepPaths,
    number: int,
    losses: dict[int, float],
    state: TrialState = TrialState.COMPLETED,
    end_step: int | None = None,
    replicate: int = 0,
    **params: object,
) -> str:
    """Write a trial whose metric `loss` was these values at these steps."""
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
