"""A domain means the same as Ray Tune's domain of that name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from search_spaces.domains.domain import Domain, arguments

EXAMPLES: list[dict[str, list[Any]]] = [
    {"uniform": [-1, 2.5]},
    {"quniform": [0, 0.3, 0.05]},
    {"loguniform": [1e-4, 1e-1]},
    {"qloguniform": [0.5, 32, 0.5]},
    {"randint": [1, 4]},
    {"qrandint": [16, 64, 16]},
    {"lograndint": [1, 9]},
    {"qlograndint": [8, 64, 8]},
    {"randn": [1.5, 0.5]},
    {"qrandn": [0.1, 0.02, 0.005]},
    {"choice": ["adam", "sgd", 3]},
]
each_form = pytest.mark.parametrize("form", EXAMPLES, ids=[next(iter(form)) for form in EXAMPLES])


@each_form
def test_domain_contains_what_ray_tune_samples(form: dict[str, list[Any]]) -> None:
    from ray import tune

    domain = Domain.model_validate(form)
    ((kind, args),) = domain.dump().items()
    theirs = tune.choice(args) if kind == "choice" else getattr(tune, kind)(*args)
    drawn = theirs.sample(size=300, random_state=np.random.default_rng(0))
    values = [value.item() if isinstance(value, np.generic) else value for value in drawn]
    assert all(domain.contains(value) for value in values)
    if domain.integer:
        assert {domain.lower, domain.high} <= set(values)


@each_form
def test_dump_round_trips(form: dict[str, list[Any]]) -> None:
    domain = Domain.model_validate(form)
    assert domain.dump() == form
    assert Domain.model_validate(domain.model_dump()) == domain
    assert Domain.model_validate_json(domain.model_dump_json()).dump() == form


@each_form
def test_keywords_equal_positional_arguments(form: dict[str, list[Any]]) -> None:
    ((kind, args),) = form.items()
    values = [args] if kind == "choice" else args
    keywords = dict(zip(arguments(kind), values, strict=False))
    assert Domain.model_validate({kind: keywords}) == Domain.model_validate(form)


def test_grid_search_accepts_its_keyword() -> None:
    assert Domain.model_validate({"grid_search": {"values": [1, 2]}}).categories == (1, 2)


def test_kind_determines_log_integer_and_categorical() -> None:
    domains = [Domain.model_validate(form) for form in EXAMPLES]
    logarithmic = ["loguniform", "qloguniform", "lograndint", "qlograndint"]
    integer = ["randint", "qrandint", "lograndint", "qlograndint"]
    assert [domain.kind for domain in domains if domain.log] == logarithmic
    assert [domain.kind for domain in domains if domain.integer] == integer
    assert [domain.kind for domain in domains if domain.is_categorical] == ["choice"]


def test_log_base_is_accepted_and_ignored() -> None:
    assert Domain.model_validate({"loguniform": [1, 2, 10]}) == Domain.model_validate(
        {"loguniform": {"lower": 1, "upper": 2, "base": 2.718}}
    )


def test_randn_arguments_have_defaults() -> None:
    standard = Domain.model_validate({"randn": []})
    assert standard.dump() == {"randn": [0.0, 1.0]}
    assert (standard.lower, standard.upper) == (-6.0, 6.0)
    assert Domain.model_validate({"randn": {}}) == Domain.model_validate({"randn": [0]}) == standard
    assert Domain.model_validate({"randn": {"sd": 2}}).dump() == {"randn": [0.0, 2.0]}


def test_qrandn_bounds_are_multiples_of_q() -> None:
    domain = Domain.model_validate({"qrandn": [0.1, 0.05, 0.15]})  # -0.2 to 0.4
    assert (domain.lower, domain.upper) == (-0.15, 0.3)
    assert [v for v in (-0.3, -0.15, 0.0, 0.1, 0.3, 0.45) if domain.contains(v)] == [-0.15, 0, 0.3]
    whole = Domain.model_validate({"qrandn": [0, 1, 2]})  # whose bounds are multiples
    assert (whole.lower, whole.upper) == (-6.0, 6.0)


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"randn": [0, 0]}, "randn needs sd > 0, got 0"),
        ({"randn": [0, math.inf]}, "randn needs a finite sd"),
        ({"randn": [math.nan]}, "randn needs a finite mean"),
        ({"randn": ["a"]}, "randn needs a number for mean, got 'a'"),
        ({"randn": [0, 1, 2]}, r"randn takes \[mean, sd\], or fewer of them, got \[0, 1, 2\]"),
        ({"randn": [1e90, 1]}, r"randn needs mean - 6 sd < mean \+ 6 sd as numbers"),
        ({"randn": [0, 1e308]}, r"randn needs sd from -1e\+100 to 1e\+100, got 1e\+308"),
        (
            {"uniform": [-1e308, 1e308]},
            r"uniform needs lower from -1e\+100 to 1e\+100, got -1e\+308",
        ),
        ({"randint": [0, 2**60]}, r"randint needs upper from -2\*\*53 to 2\*\*53, got 1152"),
        ({"quniform": [0, 1e90, 1e-5]}, r"quniform needs bounds of at most 2\*\*53 times q"),
        ({"choice": list(range(1001))}, "choice takes at most 1000 values, got 1001"),
        ({"qrandn": [0, 1]}, r"qrandn takes \[mean, sd, q\], got \[0, 1\]"),
        ({"qrandn": [0, 1, 0]}, "qrandn needs q > 0, got 0"),
        ({"qrandn": [0, 1, 7]}, "qrandn needs two multiples of q within 6 sd of the mean, got q 7"),
        ({"qrandn": [0, 1, 5e-324]}, "qrandn needs a greater q"),
        ({"uniform": [0, 10**400]}, "uniform needs a finite upper"),
        ({"loguniform": [1]}, r"loguniform takes \[lower, upper\(, base\)\], got \[1\]"),
    ],
)
def test_invalid_arguments_are_refused(form: dict[str, Any], error: str) -> None:
    with pytest.raises(ValidationError, match=error):
        Domain.model_validate(form)


def test_randint_excludes_and_qrandint_includes_upper() -> None:
    assert not Domain.model_validate({"randint": [1, 4]}).contains(4)
    assert Domain.model_validate({"qrandint": [2, 4, 2]}).contains(4)


def test_contains_checks_types_and_multiples() -> None:
    layers = Domain.model_validate({"randint": [0, 4]})
    assert [layers.contains(value) for value in (1, 1.0, True, "1", None)] == [True, *[False] * 4]
    dropout = Domain.model_validate({"quniform": [0, 0.3, 0.1]})
    assert [dropout.contains(value) for value in (0.1 * 3, 0.15, 0.4)] == [True, False, False]
    assert [dropout.contains(float(value)) for value in ("nan", "inf")] == [False, False]
    assert not Domain.model_validate({"choice": [1]}).contains([])


@given(st.integers(1, 50), st.integers(1, 50), st.integers(2, 50), st.integers(-10, 4000))
def test_qrandint_contains_exactly_the_multiples(low: int, more: int, q: int, value: int) -> None:
    domain = Domain.model_validate({"qrandint": [low * q, (low + more) * q, q]})
    expected = value % q == 0 and low * q <= value <= (low + more) * q
    assert domain.contains(value) == expected


def test_domain_is_immutable() -> None:
    domain = Domain.model_validate({"uniform": [0, 1]})
    with pytest.raises(ValidationError):
        domain.lower = 3  # type: ignore[misc]
