"""Files that could take long to read are refused at once, and the message names the limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces import limits
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from tests.fuzz.hostile import LOAD_SECONDS, processor_time

HEAD = "name: a\ntrainable: digits\nmetric: loss\nscheduler: {max_t: 9}\nbudget: {trials: 4}\n"
BASE = HEAD + "space:\n  x: {uniform: [0, 1]}\n  n: {randint: [1, 9]}\n"
MANY = "".join(f"  p{i}: {{uniform: [0, 1]}}\n" for i in range(3000))
SQUARES = "".join(f"  c{i}: '= c{i - 1} * c{i - 1}'\n" for i in range(1, 60))
LARGE = {
    "comment": (BASE + "# abc\n" * 9_000_000, "more than 256 KiB"),
    "text": (BASE + "description: " + "x" * 5_000_000, "more than 256 KiB"),
    "parameters": (BASE + MANY, "a space has at most 1000 parameters, got 3002"),
    "seed": (
        BASE + f"seed: {2**64}\n",
        "must be a whole number >= 0 and < 9223372036854775808",
    ),
    "number": (BASE + "fixed: {y: 0x" + "f" * 9000 + "}\n", "at most 4096 bits"),
    "depth": (BASE + "fixed: {y: " + "[" * 9000, "nested more than 50 levels deep"),
    "values": (BASE + "fixed: {y: [" + "1," * 90_000 + "]}\n", "more than 20000 values"),
    "long aliases": (
        BASE + "fixed: {a: &a " + "x" * 90_000 + ", b: [" + "*a," * 9000 + "]}\n",
        "more than 20000 values",
    ),
    "grids": (
        BASE + "".join(f"  g{i}: {{grid_search: [1, 2, 3, 4]}}\n" for i in range(30)),
        "grids have 1152921504606846976 points, more than 100000",
    ),
    "listed": (
        HEAD + "space:\n  n: {randint: [1, 1000000000]}\nsearch: {name: grid}\n",
        "n has more than 100000 values",
    ),
    "formula": (
        BASE + "constraints: ['round(n, -100000000) < 5']\n",
        "round to more than 400 digits",
    ),
    "squares": (BASE + "  c0: '= 9 ** 1000'\n" + SQUARES, "more than 4096 bits"),
    "operations": (
        BASE + "constraints:\n" + "".join(f"  - x < {i + 2}\n" for i in range(6000)),
        "all formulas have 18000 operations, more than 2000",
    ),
    "rungs": (
        BASE.replace("max_t: 9", "max_t: 1000000000, reduction_factor: 1.0000000001"),
        "makes more than 1000 rungs",
    ),
    "generations": (
        BASE.replace("max_t: 9", "max_t: 1000000000000, name: pbt, interval: 1"),
        "interval 1 makes more than 10000 of them",
    ),
    "workers": (BASE + "resources: {workers: {min: 1, max: 100000000}}\n", "from 1 to 10000"),
    "mistakes": (
        BASE + "points:\n" + "  - {y: 1}\n" * 5000,
        "points.99.y: 'y' is not searched",
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_file_is_refused_with_the_limit(tmp_path: Path, name: str) -> None:
    text, limit = LARGE[name]
    file = tmp_path / "large.yaml"
    file.write_text(text)
    with processor_time(LOAD_SECONDS), pytest.raises(UserError) as refused:
        load_sweep(file)
    assert limit in str(refused.value)
    assert len(refused.value.problems) <= 101


GRIDS = "".join(f"  g{i}: {{grid_search: [1, 2, 3]}}\n" for i in range(10))
OLD = {
    "parameters": BASE + "".join(f"  q{i}: {{uniform: [0, 1]}}\n" for i in range(1100)),
    "numbers": BASE + f"  s: {{randint: [0, {2**60}]}}\n  u: {{uniform: [-1.0e+150, 1.0]}}\n",
    "values": BASE + "fixed: {y: [" + "1, " * 20_001 + "]}\n",
    "depth": BASE + "fixed: {y: " + "[" * 80 + "]" * 80 + "}\n",
    "categories": BASE + f"  c: {{choice: {list(range(1100))}}}\n",
    "generations": BASE.replace("max_t: 9", "max_t: 20000, name: pbt, interval: 1"),
}


@pytest.mark.parametrize("name", OLD)
def test_sweep_that_has_begun_stays_readable(tmp_path: Path, name: str) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(OLD[name])
    with pytest.raises(UserError):
        load_sweep(file)
    assert load_sweep(file, frozen=True).spec == load_sweep(file, begun=True).spec


def test_sweep_that_has_begun_is_read_in_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.1)
    file = tmp_path / "sweep.yaml"
    file.write_text(OLD["parameters"])
    with pytest.raises(UserError, match="takes more than"):
        load_sweep(file, frozen=True)


def test_large_grid_with_a_constraint_loads(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    text = HEAD.replace("budget: {trials: 4}\n", "") + "space:\n" + GRIDS
    file.write_text(text + "constraints: [g0 + g1 + g2 <= 7]\n")
    assert load_sweep(file).spec.budget.trials == 50_301


def test_a_sweep_that_began_with_spares_can_be_changed(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "name: s\ntrainable: digits\nmetric: loss\nspace: {x: {uniform: [0, 1]}}\n"
        "resources: {spares: true}\nbudget: {trials: 3}\n"
    )
    assert load_sweep(file, ["budget.trials=5"], begun=True).spec.budget.trials == 5
    with pytest.raises(UserError, match="spares"):
        load_sweep(file)
