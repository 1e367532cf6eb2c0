"""The schema of sweep files knows the hyperparameters of every trainable."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from tests.trainables.examples import BOOSTED, EXAMPLES
from trainables.hyperparameters import hyperparameters, sweep_schema
from trainables.registry import TRAINABLES, resolve

SCHEMA = sweep_schema()


def errors(trainable: str, fixed: dict[str, Any]) -> list[str]:
    data = {
        "name": "mine",
        "trainable": trainable,
        "metric": "loss",
        "space": {"x": {"uniform": [0, 1]}},
        "fixed": fixed,
        "scheduler": {"name": "none"},
        "budget": {"trials": 1},
    }
    found = jsonschema.Draft202012Validator(SCHEMA).iter_errors(data)
    return [part.message for part in found]


@pytest.mark.parametrize("name", TRAINABLES)
def test_fixed_takes_the_keys_of_the_trainable(name: str) -> None:
    assert errors(name, (EXAMPLES | BOOSTED)[name].config) == []
    assert errors(name, {"lerning_rate": 0.1})
    assert errors("script.py:loop", {"lerning_rate": 0.1}) == []


def test_fixed_checks_types_and_takes_formulas() -> None:
    assert errors("digits", {"epochs": "many"})
    assert errors("digits", {"epochs": "= 3 * 4"}) == []
    assert errors("causal_lm", {"data": {"path": 3}}) != errors("causal_lm", {"data": {}})


@pytest.mark.parametrize("name", TRAINABLES)
def test_every_hyperparameter_has_a_meaning_and_a_rule(name: str) -> None:
    rows = hyperparameters(resolve(name))
    assert {row["name"] for row in rows} >= set((EXAMPLES | BOOSTED)[name].config) - {
        "data",
        "client",
    }
    assert all(row["meaning"] and row["rule"] for row in rows), rows
