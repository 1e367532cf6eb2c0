"""What of a Python script is certain: names by scope, mappings that grow, calls that are read."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

from search_spaces.spec.scheduler import SchedulerSpec
from search_spaces.spec.search import SearchSpec
from trainables.user_code.python_source.python_file import UNREAD
from tuning.translation import optuna_study, ray_script
from tuning.translation.domains import between
from tuning.translation.draft import Draft
from tuning.translation.script import Script


def used(source: str) -> tuple[Script, ast.expr]:
    """The script, and the argument of its call of `use`."""
    script = Script(Draft(Path("s.py")), ast.parse(source))
    calls = [call for call in script.calls() if script.name(call.func) == "use"]
    return script, calls[0].args[0]


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("A = 3\nB = A\nuse(B)", 3),
        ("A = 3\ndef f():\n    A = 4\n    use(A)", 4),
        ("def g():\n    A = 4\ndef f():\n    use(A)\nA = 3", 3),
        ("A: int = -3\nif __name__ == '__main__':\n    use([A, {'x': (A,)}])", [-3, {"x": (-3,)}]),
        ("try:\n    A = 1\nexcept OSError:\n    pass\nuse(A)", 1),
        ("A = [1]\nuse(A)\nA.append(2)", [1]),
        ("A = [1]\nprint(A)\nuse(A)", [1]),
        ("A = 1\nA = 2\nuse(A)", UNREAD),
        ("A = 1\nA += 1\nuse(A)", UNREAD),
        ("for A in x:\n    pass\nuse(A)", UNREAD),
        ("if x:\n    A = 1\nuse(A)", UNREAD),
        ("while x:\n    A = 1\n    use(A)", UNREAD),
        ("def f(A=1):\n    use(A)", UNREAD),
        ("A = 1\ndef f():\n    global A\n    A = 2\nuse(A)", UNREAD),
        ("A = [1]\nA.append(2)\nuse(A)", UNREAD),
        ("A = {'x': {}}\nA['x']['y'] = 2\nuse(A)", UNREAD),
        ("A = {'x': 1}\nextend(A)\nuse(A)", UNREAD),
        ("A = {'x': 1}\nB = A\nB['x'] = 2\nuse(A)", UNREAD),
        ("A = 1\nuse([A for A in x])", UNREAD),
        ("from other import A\nuse(A)", UNREAD),
        ("class K:\n    A = 1\n    def f(self):\n        use(A)", UNREAD),
        ("A, B = 1, 2\nuse(A)", UNREAD),
        ("use(2 * 3)", UNREAD),
        ("use(b'x')", UNREAD),
    ],
)
def test_only_certain_names_have_a_value(source: str, value: Any) -> None:
    script, node = used(source)
    assert script.literal(node) == value


@pytest.mark.parametrize(
    ("source", "keys"),
    [
        ("S = {'x': 1}\nS['y'] = 2\nS.update({'z': 3}, v=4)\nuse(S)", ["x", "y", "z", "v"]),
        ("B = dict(x=1)\nuse({**B, 'y': 2})", ["x", "y"]),
        ("S = {'x': 1}\nif c:\n    S['y'] = 2\nuse(S)", ["x", None]),
        ("S = {'x': 1}\nfor k in c:\n    S[k] = 2\nuse(S)", ["x", None]),
        ("S = {k: 1}\nuse(S)", [None]),
        ("def f():\n    return {}\nuse(f())", [None]),
        ("S = {'x': 1}\ndel S['x']\nuse(S)", ["x", None]),
    ],
)
def test_mappings_that_a_script_builds(source: str, keys: list[str | None]) -> None:
    script, node = used(source)
    assert [key for key, _ in script.entries(node)] == keys


@pytest.mark.parametrize(
    ("given", "domain"),
    [
        ((3, 9, 2), {"ordinal": [3, 5, 7, 9]}),
        ((3, 10, 2), {"ordinal": [3, 5, 7, 9]}),
        ((4, 11, 2), {"qrandint": [4, 10, 2]}),
        ((0.05, 0.45, 0.1), {"ordinal": [0.05, 0.15, 0.25, 0.35, 0.45]}),
        ((0.1, 0.5, 0.1), {"quniform": [0.1, 0.5, 0.1]}),
        ((1, 4), {"randint": [1, 5]}),
        ((1, 4, 1), {"randint": [1, 5]}),
        ((0.5, 0.5), {"choice": [0.5]}),
        ((3, 4, 2), {"choice": [3]}),
        ((1, 10**7, 2), None),
        ((2, 1, 2), None),
    ],
)
def test_ranges_with_both_bounds(given: tuple[Any, ...], domain: object) -> None:
    assert between(*given) == domain


def defaults_of(function: Any) -> dict[str, Any]:
    return {n: p.default for n, p in inspect.signature(function).parameters.items()}


def test_defaults_are_those_of_the_other_programs() -> None:
    import optuna
    from ray.tune import schedulers
    from ray.tune.schedulers.pb2 import PB2

    ours = {**defaults_of_ours(SchedulerSpec), **defaults_of_ours(SearchSpec)}
    own = {**ray_script.RENAMED, **optuna_study.RENAMED}
    made = {name: getattr(schedulers, name, PB2) for name in ray_script.SCHEDULERS}
    made |= {name: getattr(optuna.samplers, name) for name in optuna_study.SAMPLERS}
    made |= {name: getattr(optuna.pruners, name) for name in optuna_study.PRUNERS}
    tables = ray_script.SCHEDULERS | optuna_study.SAMPLERS | optuna_study.PRUNERS
    for name, (_, translated) in tables.items():
        theirs = defaults_of(made[name])
        for key, value in translated.items():
            expected = ours[own.get(key, key)] if value is None else value
            assert theirs[key] in (expected, None), name  # multivariate=None is True of one metric


def defaults_of_ours(section: Any) -> dict[str, Any]:
    return {name: field.default for name, field in section.model_fields.items()}
