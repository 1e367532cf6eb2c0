"""Which checkpoints stay."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from results.checkpoints.retention import Retention
from results.records.trial import Report


def report(step: int, **metrics: float) -> Report:
    return Report(step=step, metrics=metrics, attempt=1, time=0.0)


REPORTS = {s: report(s, loss=v) for s, v in {1: 3.0, 2: 1.0, 3: math.nan, 4: 2.0, 5: 4.0}.items()}
STEPS = [1, 2, 3, 4, 5]


def test_retention_keeps_the_best_finite_values() -> None:
    assert Retention(best=2, metric="loss").protected(STEPS, REPORTS) == {2, 4}
    assert Retention(best=2, metric="loss", mode="max").protected(STEPS, REPORTS) == {1, 5}
    assert Retention(best=9, metric="loss").protected(STEPS, REPORTS) == {1, 2, 4, 5}
    assert Retention(best=1, metric="other").protected(STEPS, REPORTS) == frozenset()


def test_retention_keeps_the_first_checkpoint_at_each_rung() -> None:
    assert Retention(rungs=(2, 4)).protected([1, 3, 4, 5], REPORTS) == {3, 4}
    epochs = {s: report(s, epoch=s / 2) for s in STEPS}
    assert Retention(rungs=(1, 2), clock="epoch").protected(STEPS, epochs) == {2, 4}
    assert Retention(rungs=(1, 2)).passes_rung(0, 1)
    assert not Retention(rungs=(1, 2)).passes_rung(1, 1.5)


@settings(max_examples=50)
@given(
    st.dictionaries(st.integers(1, 30), st.floats(), max_size=12),
    st.integers(0, 4),
    st.lists(st.integers(1, 30).map(float), max_size=3),
)
def test_retention_protects_only_existing_steps(
    values: dict[int, float], best: int, rungs: list[float]
) -> None:
    reports = {s: report(s, loss=v) for s, v in values.items()}
    retention = Retention(best=best, metric="loss", rungs=tuple(rungs))
    kept = retention.protected(sorted(values), reports)
    assert kept <= values.keys()
    assert len(kept) <= best + len(rungs)
