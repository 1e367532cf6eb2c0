"""Interval arithmetic must contain what formulas evaluate to."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.domains.domain import Domain
from search_spaces.expressions import parse
from search_spaces.formulas.evaluation import (
    UNKNOWN,
    Interval,
    UndefinedError,
    evaluate,
    evaluate_range,
    interval,
)

numbers = st.floats(-50, 50).map(lambda x: round(x, 3))
exprs = st.recursive(
    st.sampled_from(["x", "y", "k"]) | numbers.map(lambda v: f"({v})"),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "**"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.tuples(st.sampled_from(["abs", "ceil", "floor", "log", "-"]), inner).map(
            lambda t: f"{t[0]}({t[1]})"
        ),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        ),
    ),
    max_leaves=5,
)
DOMAINS = {
    "x": Domain.model_validate({"uniform": [-2.0, 3.0]}),
    "y": Domain.model_validate({"loguniform": [0.5, 8.0]}),
    "k": Domain.model_validate({"choice": [1, 2, 5]}),
}


@settings(max_examples=300)
@given(
    left=exprs,
    op=st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    right=exprs,
    x=st.floats(-2, 3),
    y=st.floats(0.5, 8),
    k=st.sampled_from([1, 2, 5]),
)
def test_evaluate_range_contains_every_value(
    left: str, op: str, right: str, x: float, y: float, k: int
) -> None:
    point = {"x": x, "y": y, "k": k}
    part = {**{name: interval(domain) for name, domain in DOMAINS.items()}, "k": k}
    try:
        value = evaluate(parse(left), point)
        truth = evaluate(parse(f"{left} {op} {right}"), point)
    except UndefinedError:
        return
    bound = evaluate_range(parse(left), part)
    if isinstance(bound, Interval):
        slack = 1e-9 * max(1.0, abs(value))
        assert bound.low - slack <= value <= bound.high + slack
    said = evaluate_range(parse(f"{left} {op} {right}"), part)
    assert said is UNKNOWN or said == truth or math.isclose(value, evaluate(parse(right), point))


def test_evaluate_range_of_logic() -> None:
    known = {"x": Interval(0, 1), "name": "sgd", "flag": UNKNOWN}
    said = {
        "x > 2 and flag": False,
        "x < 2 or flag": True,
        "not x > 2": True,
        "name == 'adam'": False,
        "name in ['sgd'] and x >= 0": True,
        "x > 0.5": UNKNOWN,
        "3 < x < 4": False,
        "x != 7": True,
        "x < 2 if name == 'sgd' else x > 2": True,
        "unheard > 3": UNKNOWN,
    }
    assert {text: evaluate_range(parse(text), known) for text in said} == said
