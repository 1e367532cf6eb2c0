from __future__ import annotations

from search_spaces.domains.domain import Domain
from search_spaces.formulas.constraints import build_configuration, violated_constraint


def test_constraint_on_inactive_parameter_does_not_apply() -> None:
    space = {"a": Domain.model_validate({"uniform": [0, 1]})}
    assert violated_constraint(["m > 3", "a < 1"], space, {}, {"a": 0.5}) is None
    assert violated_constraint(["a < 0.1"], space, {}, {"a": 0.5}) == "a < 0.1"
    assert violated_constraint(["a / 0 < 3"], space, {}, {"a": 0.5}) == "a / 0 < 3"
    assert (
        violated_constraint(["a < 1 and m > 3", "a > 1 and m > 3"], space, {}, {"a": 0.5})
        is not None
    )


def test_computed_values_follow_their_dependencies() -> None:
    fixed = {"c": "= b * 2", "b": "= a + steps", "steps": 120, "warm": {"up": "= 0.1 * steps"}}
    space = {"a": Domain.model_validate({"randint": [1, 4]})}
    config = build_configuration(space, {**fixed, "gone": "= 2 * momentum"}, {"a": 2})
    assert config == {"a": 2, "b": 122, "c": 244, "steps": 120, "warm": {"up": 12}}
    assert isinstance(config["warm"]["up"], int)
