"""The history that a scheduler gets is in steps of its own clock."""

from __future__ import annotations

from typing import Any

from results.records.trial import InheritedWeights, Report, TrialRecord
from tests.tuning.simulate import make_spec
from tuning.controller.scheduler_adapter import SchedulerAdapter


def last_params(time_attr: str, steps: int) -> dict[str, Any]:
    """Parameters of eight trials after two generations, with so many steps in each epoch."""
    scheduler = {"name": "pb2", "interval": 3, "max_t": 9, "time_attr": time_attr}
    adapter = SchedulerAdapter(make_spec(scheduler=scheduler))
    records = {
        f"t000{i}": TrialRecord(
            id=f"t000{i}", number=i, params={"x": i / 8}, config={}, seed=0, created=0.0
        )
        for i in range(8)
    }
    for epoch in (3, 6):
        step = epoch * steps
        for record in records.values():
            metrics = {"loss": (record.params["x"] - 0.4) ** 2 / epoch, "epoch": epoch}
            adapter.decide(record, Report(step=step, metrics=metrics, attempt=1, time=0.0))
        while called := adapter.next_to_resume(more=False, idle=False):
            record, exploit = records[called], adapter.exploit(called, records)
            if exploit is not None:
                places = {"step": step, "donor": exploit.donor, "donor_step": step}
                new = InheritedWeights(before=record.params, after=exploit.params, **places)
                changes = {"params": exploit.params, "lineage": (*record.lineage, new)}
                records[called] = record.model_copy(update=changes)
            adapter.on_trial_resume(called)
    return {trial: record.params for trial, record in records.items()}


def test_pb2_learns_the_same_by_epochs_as_by_steps() -> None:
    assert last_params("epoch", steps=100) == last_params("step", steps=1)
