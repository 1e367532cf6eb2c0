"""Every domain, compiled and sampled, gives values that the domain allows."""

import math

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.domains import Domain
from tuning.search.space import decode, distribution, encode

optuna.logging.set_verbosity(optuna.logging.ERROR)

FORMS = [
    {"uniform": [-1.5, 2.0]},
    {"quniform": [0.0, 1.0, 0.25]},
    {"loguniform": [1e-5, 1e-1]},
    {"qloguniform": [0.1, 10.0, 0.1]},
    {"randint": [3, 9]},
    {"qrandint": [8, 128, 8]},
    {"lograndint": [1, 1000]},
    {"qlograndint": [8, 128, 8]},
    {"choice": ["a", 1, 2.5, None, False]},
    {"choice": [[64, 64], {"kind": "wide", "n": 2}]},
    {"grid_search": [1, 2, 3]},
]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: next(iter(f)))
def test_samples_are_in_the_domain(form):
    domain = Domain.model_validate(form)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    seen = [decode(domain, study.ask({"x": distribution(domain)}).params["x"]) for _ in range(200)]
    assert all(domain.contains(v) for v in seen)
    if domain.is_categorical or domain.kind in ("randint", "qrandint"):
        expected = domain.categories or range(domain.lower, domain.high + 1, domain.q or 1)
        assert all(v in seen for v in expected)


@given(
    low=st.integers(1, 50), steps=st.integers(1, 50), q=st.integers(2, 20), seed=st.integers(0, 99)
)
@settings(max_examples=60, deadline=None)
def test_quantised_and_logarithmic_at_once(low, steps, q, seed):
    domain = Domain.model_validate({"qlograndint": [low * q, (low + steps) * q, q]})
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    value = decode(domain, study.ask({"x": distribution(domain)}).params["x"])
    assert domain.contains(value)
    assert value % q == 0


@pytest.mark.parametrize("form", FORMS, ids=lambda f: next(iter(f)))
def test_a_value_survives_encoding(form):
    domain = Domain.model_validate(form)
    values = domain.categories or [domain.lower, domain.high]
    for value in values:
        back = decode(domain, encode(domain, value))
        assert back == value or math.isclose(back, value)
        assert type(back) is type(value)
