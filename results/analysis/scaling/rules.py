"""The rule by which each searched parameter follows the size, and its value at a target."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from results.analysis.scaling.loss import LossLaw
from results.analysis.scaling.optimum import Array, Interval, Optima, SizeTrials


@dataclass(frozen=True)
class Rule:
    """How the best value of a parameter follows the size.

    Attributes:
        log: whether it is compared, and follows the size, by its logarithm.
        best: the optimum at each size that counts.
        exponents: of the power law in all size parameters that vary. Of a parameter on a linear
            scale: what the logarithm of the size adds.
        follows: the size parameters of the rule; in the others the optimum is constant.
        value: at the target.
    """

    name: str
    log: bool
    best: Mapping[SizeTrials, Interval]
    exponents: Mapping[str, Interval]
    follows: Sequence[str]
    value: Interval

    def __str__(self) -> str:
        form = "{}^{}" if self.log else "{1} log {0}"
        words = {axis: form.format(axis, e) for axis, e in self.exponents.items()}
        rest = " ".join(words[axis] for axis in words if axis not in self.follows)
        rule = " ".join(words[axis] for axis in self.follows)
        return (f"~ {rule}" if rule else "constant") + (f", fitted {rest}" if rest else "")


@dataclass(frozen=True)
class Transfer:
    """What a sweep over sizes says of a target.

    Attributes:
        target: its size parameters.
        optima: of all sizes that have enough trials.
        rules: by the place of their parameter in the points of `optima`.
        notes: what is left out, and why, a line each.
        loss: None if it is not extrapolated.
    """

    target: Mapping[str, float]
    optima: Optima
    rules: Mapping[int, Rule]
    notes: Sequence[str]
    loss: LossLaw | None


def fit_rules(
    optima: Optima,
    logs: Mapping[str, bool],
    target: Mapping[str, float],
    constant: Collection[str] = (),
) -> tuple[dict[int, Rule], list[str]]:
    """Fit the rule that the evidence supports, for each parameter.

    Args:
        optima: of the sizes.
        logs: names of the parameters, in the order of the points, and whether by their logarithm.
        target: size parameters at which their values are asked.
        constant: size parameters that should not matter, by the parametrization. One whose interval
            excludes the exponent 0 is followed nevertheless.

    Returns:
        Rules by place; and why others have none, a line each.
    """
    rules, problems = dict[int, Rule](), list[str]()
    for place, (name, log) in enumerate(logs.items()):
        inside = optima.is_inside[:, place]
        sizes = [size for size, ok in zip(optima.sizes, inside, strict=True) if ok]
        varied = [axis for axis in target if len({size.size[axis] for size in sizes}) > 1]
        if problem := _too_few(sizes, varied, constant):
            edge = "; ".join(str(s) for s, ok in zip(optima.sizes, inside, strict=True) if not ok)
            problem += f"; its best value is beyond those tried at {edge}" if edge else ""
        if optima.curvature[place] <= 0:
            problem = "the loss has no minimum in it"
        if problem:
            problems.append(f"{name}: no rule: {problem}")
            continue
        best, replicates = optima.best[inside, place], optima.replicates[:, inside, place]
        rules[place] = _fit_rule(name, log, sizes, best, replicates, varied, target, constant)
    return rules, problems


def _fit_rule(
    name: str,
    log: bool,
    sizes: Sequence[SizeTrials],
    best: Array,
    replicates: Array,
    varied: Sequence[str],
    target: Mapping[str, float],
    constant: Collection[str],
) -> Rule:
    def restore(one: Interval) -> Interval:
        return Interval(*map(math.exp, (one.value, one.low, one.high))) if log else one

    def fit(axes: Sequence[str]) -> tuple[dict[str, Interval], Interval]:
        value, *exponents = fit_law(_logs(sizes, axes, target), best, replicates)
        return dict(zip(axes, exponents, strict=True)), value

    exponents, value = fit(varied)
    follows = [a for a in varied if a not in constant or exponents[a].low * exponents[a].high > 0]
    if len(follows) < len(varied):
        fitted, value = fit(follows)
        exponents |= fitted
    of_sizes = zip(sizes, best, replicates.T, strict=True)
    found = {size: restore(Interval.of(one, drawn)) for size, one, drawn in of_sizes}
    return Rule(name, log, found, exponents, follows, restore(value))


def fit_law(logs: Array, best: Array, replicates: Array) -> list[Interval]:
    """Fit `best = a + b . log(size / target)`, which is a power law where `best` is a logarithm.

    What the law leaves unexplained at the sizes is drawn for replicates and target, too.

    Args:
        logs: of each size by the target's; (sizes, axes), perhaps no axis.
        best: (sizes,).
        replicates: of `best`; (replicates, sizes).

    Returns:
        `a`, the value at the target, and then the exponents `b`.
    """
    design = np.column_stack([np.ones(len(best)), logs])
    solve, rng = np.linalg.pinv(design), np.random.default_rng(0)
    fitted, free = solve @ best, len(best) - design.shape[1]
    rest = math.sqrt(((best - design @ fitted) ** 2).sum() / free) if free else 0.0
    noise = rng.normal(0, rest, (len(replicates), len(best) + 1))
    again = (replicates + noise[:, 1:]) @ solve.T
    again[:, 0] += noise[:, 0]
    return [Interval.of(value, drawn) for value, drawn in zip(fitted, again.T, strict=True)]


def _logs(sizes: Sequence[SizeTrials], axes: Sequence[str], unit: Mapping[str, float]) -> Array:
    rows = [[math.log(size.size[axis] / unit[axis]) for axis in axes] for size in sizes]
    return np.array(rows, dtype=float).reshape(len(sizes), len(axes))


def _too_few(
    sizes: Sequence[SizeTrials], varied: Sequence[str], constant: Collection[str]
) -> str | None:
    """Why the sizes are not enough for a law of those that vary; None if they are."""
    free = [axis for axis in varied if axis not in constant]
    for axis in free:
        if len(values := sorted({size.size[axis] for size in sizes})) < 3:
            return f"a law of {axis} needs 3 values, {values[0]:g} and {values[1]:g} are measured"
    if len(sizes) < (needed := max(2, len(varied) + (2 if free else 1))):
        return f"{needed} sizes are needed, {len(sizes)} measured"
    logs = _logs(sizes, varied, dict.fromkeys(varied, 1.0))
    if np.linalg.matrix_rank(np.column_stack([np.ones(len(sizes)), logs])) <= len(varied):
        return f"{' and '.join(varied)} grow together at all sizes"
    return None
