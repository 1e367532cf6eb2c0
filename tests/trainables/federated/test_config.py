from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.trainables.federated.tiny import TINY, config
from trainables.registry import resolve


def test_config_names_mistakes_in_the_clients_hyperparameters() -> None:
    model = resolve("federated").Config
    (problem,) = model.problems({**TINY, "client": {"hidden_unit": 3}})
    assert "client.hidden_unit: unknown hyperparameter 'hidden_unit' (did you mean" in problem[1]
    (problem,) = model.problems({**TINY, "task": "digit"})
    assert "unknown trainable 'digit' (did you mean 'digits'?)" in problem[1]
    (problem,) = model.problems({**TINY, "client": {"communication": {"compress": "bf16"}}})
    assert "client.communication: clients exchange weights, not gradients" in problem[1]
    wrong = {**TINY, "task": "digit"}
    assert model.resolve_paths(wrong, Path.cwd()) == model.for_new_sweep(wrong) == wrong
    many = {f"k{i}": i for i in range(5_000)}
    (problem,) = model.problems({**TINY, "client": many})
    assert problem[1].count("unknown hyperparameter") == 100
    with pytest.raises(ValidationError, match="task federated: not a trainable with clients"):
        config(task="federated", client={})
    assert model.with_init_seed(TINY, 5)["client"]["init_seed"] == 5
    assert resolve("federated").with_seed(TINY, 6)["client"]["init_seed"] == 6
