"""Optima, their laws, and the law of the loss, on trials whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from results.analysis.scaling import (
    Optima,
    SizeTrials,
    fit_loss_law,
    fit_optima,
    fit_rules,
    frontier,
)

LOG = {"lr": True}


def optima(
    seed: int,
    sizes: list[dict[str, float]],
    slopes: dict[str, float],
    trials: int = 12,
    noise: float = 0.01,
    low: float = 1e-3,
) -> Optima:
    """Trials whose best rate is 0.01 at size 64, and follows power laws."""
    rng, made = np.random.default_rng(seed), []
    for size in sizes:
        best = math.log(0.01) + sum(s * math.log(size[a] / 64) for a, s in slopes.items())
        z = rng.uniform(math.log(low), math.log(0.1), trials)
        losses = 3 + 0.05 * (z - best) ** 2 + rng.normal(0, noise, trials)
        made.append(SizeTrials(size, z[:, None], losses))
    return fit_optima(made)


def widths(*values: float) -> list[dict[str, float]]:
    return [{"width": value} for value in values]


@pytest.mark.parametrize(("slope", "constant"), [(-0.6, ()), (0.0, ("width",))])
def test_prediction_lies_in_its_band(slope: float, constant: tuple[str, ...]) -> None:
    target, inside = {"width": 512.0}, 0
    for seed in range(30):
        of = optima(seed, widths(32, 64, 128), {"width": slope})
        (rule,), _ = fit_rules(of, LOG, target, constant)
        inside += rule.value.low < 0.01 * 8**slope < rule.value.high
    assert inside >= 25


def test_band_is_narrow_where_trials_are_exact() -> None:
    of = optima(0, widths(32, 64, 128), {"width": -0.6}, noise=0.0)
    (rule,), problems = fit_rules(of, LOG, {"width": 512.0}, ())
    assert rule.value.low == pytest.approx(0.01 * 8**-0.6) == rule.value.high
    assert rule.exponents["width"].value == pytest.approx(-0.6)
    assert problems == []
    assert rule.follows == ["width"]


def test_two_laws_are_told_apart() -> None:
    sizes = [{"width": w, "steps": s} for w in (32, 64, 128) for s in (50, 100, 200)]
    of = optima(0, sizes, {"width": -0.6, "steps": -0.3})
    (rule,), _ = fit_rules(of, LOG, {"width": 256.0, "steps": 400.0}, ())
    assert rule.exponents["width"].value == pytest.approx(-0.6, abs=0.1)
    assert rule.exponents["steps"].value == pytest.approx(-0.3, abs=0.1)


def test_evidence_wins_over_the_parametrization() -> None:
    of = optima(0, widths(32, 64, 128), {"width": -0.6}, noise=0.003)
    (rule,), _ = fit_rules(of, LOG, {"width": 512.0}, ("width",))
    assert rule.follows == ["width"]
    of = optima(0, widths(32, 64, 128), {})
    (rule,), _ = fit_rules(of, LOG, {"width": 512.0}, ("width",))
    assert str(rule).startswith("constant, fitted width^")


@pytest.mark.parametrize(
    ("sizes", "word"),
    [
        (widths(32, 64), "3 values"),
        ([{"width": w, "steps": w} for w in (32, 64, 128, 256)], "grow together"),
        ([{"width": w, "steps": 64.0} for w in (32, 64, 128)], "steps 64"),
    ],
)
def test_too_few_sizes_are_named(sizes: list[dict[str, float]], word: str) -> None:
    target = dict.fromkeys(sizes[0], 512.0)
    rules, (problem,) = fit_rules(optima(0, sizes, {}), LOG, target, ())
    assert rules == []
    assert word in problem


def test_size_whose_optimum_was_not_tried_is_named() -> None:
    of = optima(0, widths(16, 32, 64, 128), {"width": -1.0}, low=0.006)
    (rule,), (problem,) = fit_rules(of, LOG, {"width": 64.0}, ())
    assert "width 128" in problem
    assert list(rule.best) == ["width 16", "width 32", "width 64"]


def test_frontier_has_no_point_that_a_cheaper_one_beats() -> None:
    compute, losses = np.array([4.0, 1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0, 2.5])
    assert list(frontier(compute, losses)) == [1, 2, 0]


@pytest.mark.parametrize(("noise", "times"), [(0.005, 10), (0.01, 10), (0.002, 64)])
def test_interval_of_the_loss_holds_at_larger_sizes(noise: float, times: float) -> None:
    compute = np.geomspace(1, 300, 7) * 1e12
    held_out, inside, widths = 1.7 + 2.0 * (300 * times) ** -0.3, 0, []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        losses = (1.7 + 2.0 * (compute / 1e12) ** -0.3) * (1 + rng.normal(0, noise, 7))
        found = fit_loss_law(compute, losses, compute[-1] * times).loss
        measured = held_out * (1 + rng.normal(0, noise))
        inside += found.low < measured < found.high
        widths.append(found.high - found.low)
    assert inside >= 34
    assert np.median(widths) < 0.3
