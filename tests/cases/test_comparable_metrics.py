"""A metric that depends on a searched hyperparameter itself does not compare the trials."""

from __future__ import annotations

from typing import Any

import pytest

from search_spaces.loading.sweep_file import check_sweep
from search_spaces.positions import Source
from tuning.controller.preflight.comparability import comparability_notes

SIZES: dict[str, Any] = {"vocab_size": {"choice": [300, 512]}}
PARTS: dict[str, Any] = {"data": {"max_bytes": {"choice": [200_000, 400_000]}}}
RATES: dict[str, Any] = {"learning_rate": {"choice": [0.1, 0.2]}}
TEXTS: dict[str, Any] = {"task": "causal_lm"}
BETAS: dict[str, Any] = {"beta": {"loguniform": [0.01, 1.0]}}
START: dict[str, Any] = {"pretrain": {"hidden_size": 32}}
TOKENS = "is per token: it compares models of one tokenizer only, and"
ITSELF = "which is searched: it does not compare these trials"


@pytest.mark.parametrize(
    ("trainable", "metric", "space", "fixed", "note"),
    [
        ("causal_lm", "eval_loss", SIZES, {}, f"{TOKENS} vocab_size is searched; use metric: bits"),
        ("causal_lm", "bits_per_byte", SIZES, {}, None),
        ("causal_lm", "eval_loss", RATES, {}, None),
        ("causal_lm", "eval_loss", PARTS, {}, f"itself depends on data.max_bytes, {ITSELF}"),
        ("causal_lm", "bits_per_byte", PARTS, {}, f"itself depends on data.max_bytes, {ITSELF}"),
        ("sft", "eval_loss", {"pretrain": SIZES}, {}, f"{TOKENS} pretrain.vocab_size"),
        ("dpo", "reward_margin", BETAS, {"sft": START}, f"beta, {ITSELF}; use metric: ranking_acc"),
        ("dpo", "ranking_accuracy", BETAS, {"sft": START}, None),
        ("federated", "eval_loss", {"client": SIZES}, TEXTS, f"{TOKENS} client.vocab_size"),
        ("federated", "eval_loss", {"client": RATES}, TEXTS, None),
        ("digits", "accuracy", {"dropout": {"uniform": [0, 0.5]}}, {}, None),
    ],
)
def test_metric_that_does_not_compare_the_trials_is_named(
    trainable: str, metric: str, space: Any, fixed: Any, note: str | None
) -> None:
    data = {"name": "s", "trainable": trainable, "metric": metric, "space": space, "fixed": fixed}
    loaded = check_sweep({**data, "mode": "min", "budget": {"trials": 2}}, Source("s.yaml", {}))
    notes = comparability_notes(loaded.spec)
    assert len(notes) == (note is not None)
    assert (note or "") in "".join(notes)
