"""Which models are refused because their weights have no common meaning."""

import numpy as np
import pytest

from results.averaging.soup.builder import check_models
from results.averaging.soup.candidates import named_trials
from results.paths import SweepPaths
from search_spaces.errors import UserError
from tests.results.averaging.soups import SPEC, add, at, best, build


def test_check_models_refuses_models_of_different_starts(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.1)
    add(sweep, 1, at(1), 0.2, init="other")
    add(sweep, 2, at(1), 0.3, init=None)
    add(sweep, 3, np.ones(3), 0.4, init="other")
    add(sweep, 4, at(1), 0.5)
    with pytest.raises(UserError) as caught:
        check_models(best(sweep))
    unknown, start, shape = caught.value.problems
    assert unknown.startswith("trial t0002: ")
    assert start.startswith("trials t0000 and t0001 cannot be averaged: they started from differ")
    assert shape == (
        "trials t0000 and t0003 cannot be averaged: tensor 'w' is [8] in one and [3] in the other"
    )
    with pytest.raises(UserError):
        build(sweep, "uniform")
    assert not sweep.soup("uniform").exists()
    some = named_trials(sweep, SPEC, ["t0000", "t0001", "t0002"])
    forced = build(sweep, "uniform", candidates=some, force=True)
    assert forced.members == ("t0000", "t0001", "t0002")
    with pytest.raises(UserError, match="tensor 'w' is"):
        build(sweep, "uniform", force=True)


def test_check_models_refuses_adapters_of_different_scales(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.1, adapter_config={"r": 4, "lora_alpha": 8})
    add(sweep, 1, at(1), 0.2, adapter_config={"r": 4, "lora_alpha": 16})
    with pytest.raises(UserError, match=r"adapter_config.json has lora_alpha: 8 in one and 16 in"):
        check_models(best(sweep), force=True)
