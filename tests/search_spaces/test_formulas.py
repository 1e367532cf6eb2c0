"""Formulas: what they compute, that they let nothing else in, and what intervals prove of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.domains.domain import Domain
from search_spaces.expressions import InactiveError, UndefinedError, evaluate, parse
from search_spaces.formulas.constraints import build_configuration, violated_constraint
from search_spaces.formulas.intervals import UNKNOWN, Interval, evaluate_range, partition

VALUES = {"a": 3, "b.c": 0.5, "name": "sgd", "flag": True, "nothing": None, "odd-name": 7}
COMPUTED: list[tuple[str, Any]] = [
    ("a * 2 + b.c", 6.5),
    ("2 ** a - 7 // 2 % 2", 7),
    ("-a + abs(-4) / 2", -1.0),
    ("min(a, 2, b.c) + max(a, 9)", 9.5),
    ("ceil(b.c) + floor(1.7) + round(2.345, 1)", 4.3),
    ("log(a ** 2, 3)", 2.0),
    ("name == 'sgd' and not a > 3", True),
    ("name in ['adam', 'lion'] or name not in ('sgd',)", False),
    ("1 < a <= 3 != 4", True),
    ("10 if flag else missing", 10),
    ("flag or missing", True),
    ("nothing == None", True),
    ("param('odd-name') * 2", 14),
]


@pytest.mark.parametrize(("text", "value"), COMPUTED, ids=[text for text, _ in COMPUTED])
def test_formulas_compute_what_python_would(text: str, value: Any) -> None:
    result = evaluate(parse(text), VALUES)
    assert result == pytest.approx(value)
    assert type(result) is type(value)


REFUSED = [
    *["__import__('os').system('true')", "().__class__", "a.b()", "lambda: 1", "[x for x in a]"],
    *["a[0]", "f'{a}'", "a := 3", "a if b", "", "eval('1')", "min()", "log(1, 2, 3)", "abs(*a)"],
    *["a & b", "~a", "a is None", "{1: 2}", "1j", "b'x'", "...", "await a", "param(a)", "a @ b"],
    *["(" * 300 + "a" + ")" * 300, "-" * 200 + "a", "a + " * 200 + "a", "max(key=a)", "a; b"],
]


@pytest.mark.parametrize("text", REFUSED)
def test_nothing_else_is_let_in(text: str) -> None:
    with pytest.raises(ValueError, match=r"formula|allowed|function|takes"):
        parse(text)


def test_no_formula_fills_memory_or_time() -> None:
    with pytest.raises(UndefinedError):
        evaluate(parse("9 ** 9 ** 9"), {})
    with pytest.raises(TypeError):
        evaluate(parse("name * 1000000000"), VALUES)


@pytest.mark.parametrize("text", ["1 / 0", "log(0)", "log(-1)", "(-1) ** 0.5", "0 ** -1"])
def test_what_has_no_value_says_so(text: str) -> None:
    with pytest.raises(UndefinedError):
        evaluate(parse(text), {})


def test_names_that_are_not_there() -> None:
    assert parse("a + opt.lr * a").names == ("a", "opt.lr")
    with pytest.raises(InactiveError):
        evaluate(parse("missing < 3"), VALUES)
    with pytest.raises(TypeError, match="'sgd' cannot be compared with 3"):
        evaluate(parse("name < 3"), VALUES)


def test_a_constraint_on_what_is_not_active_does_not_apply() -> None:
    space = {"a": Domain.model_validate({"uniform": [0, 1]})}
    assert violated_constraint(["m > 3", "a < 1"], space, {}, {"a": 0.5}) is None
    assert violated_constraint(["a < 0.1"], space, {}, {"a": 0.5}) == "a < 0.1"
    assert violated_constraint(["a / 0 < 3"], space, {}, {"a": 0.5}) == "a / 0 < 3"
    assert (
        violated_constraint(["a < 1 and m > 3", "a > 1 and m > 3"], space, {}, {"a": 0.5})
        is not None
    )


def test_computed_values_in_the_order_of_need() -> None:
    fixed = {"c": "= b * 2", "b": "= a + steps", "steps": 120, "warm": {"up": "= 0.1 * steps"}}
    space = {"a": Domain.model_validate({"randint": [1, 4]})}
    config = build_configuration(space, {**fixed, "gone": "= 2 * momentum"}, {"a": 2})
    assert config == {"a": 2, "b": 122, "c": 244, "steps": 120, "warm": {"up": 12}}
    assert isinstance(config["warm"]["up"], int)


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


@settings(max_examples=300, deadline=None)
@given(
    left=exprs,
    op=st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    right=exprs,
    x=st.floats(-2, 3),
    y=st.floats(0.5, 8),
    k=st.sampled_from([1, 2, 5]),
)
def test_what_intervals_say_is_so_everywhere(
    left: str, op: str, right: str, x: float, y: float, k: int
) -> None:
    point = {"x": x, "y": y, "k": k}
    part = next(p for p in partition(DOMAINS) if p["k"] == k)
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


def test_logic_over_intervals() -> None:
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
