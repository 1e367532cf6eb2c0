"""The default of `mode`, which a metric whose name says that more is better does not have."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from search_spaces.spec.sweep import SweepSpec

SWEEP = {
    "name": "s",
    "trainable": "digits",
    "space": {"x": {"uniform": [0, 1]}},
    "budget": {"trials": 1},
}


@pytest.mark.parametrize(
    "metric",
    [
        *("val/accuracy", "eval_acc", "Rouge-L", "r2", "mAP", "top-1 recall", "pass_at_1"),
        *("exact_match", "valAccuracy", "neg_log_loss", "pearson", "tokens_per_second"),
    ],
)
def test_mode_is_required_for_a_maximised_metric(metric: str) -> None:
    with pytest.raises(ValidationError, match="needs a mode"):
        SweepSpec.model_validate({**SWEEP, "metric": metric})
    assert SweepSpec.model_validate({**SWEEP, "metric": metric, "mode": "min"}).mode == "min"


@pytest.mark.parametrize(
    "metric",
    [
        *("loss", "accuracy_loss", "trace", "acceleration", "word_error"),
        *("neg_log_likelihood", "val_perplexity", "seconds"),
    ],
)
def test_other_metrics_are_minimised(metric: str) -> None:
    assert SweepSpec.model_validate({**SWEEP, "metric": metric}).mode == "min"


def test_mode_is_required_if_one_of_several_metrics_is_maximised() -> None:
    with pytest.raises(ValidationError, match="auc needs a mode"):
        SweepSpec.model_validate({**SWEEP, "metric": ["loss", "auc"]})
