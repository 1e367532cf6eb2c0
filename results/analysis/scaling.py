"""What trials of several sizes say of a larger one: its best parameters, and its loss."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
LEVEL = 0.9
"""Of all intervals."""
SPARE_TRIALS, FRONTIER = 3, 4
"""Trials of a size beyond the number of parameters; sizes that the law of the loss needs."""


@dataclass(frozen=True)
class Estimate:
    """An estimate with the bounds of its interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, replicates: Array) -> Estimate:
        """That of an estimate and its bootstrap replicates."""
        import numpy as np

        low, high = np.quantile(replicates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return cls(float(value), float(min(low, value)), float(max(high, value)))

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True, eq=False)
class SizeTrials:
    """The complete trials of one size.

    Attributes:
        points: parameters on the scale on which they are compared; (trials, parameters).
        losses: lower is better; (trials,).
        compute: of one trial (FLOP); None if it is unknown.
    """

    size: Mapping[str, float]
    points: Array
    losses: Array
    compute: float | None = None

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:g}" for name, value in self.size.items())


@dataclass(frozen=True)
class Optima:
    """The optimum of each size.

    Attributes:
        best: on the scale of `points`; (sizes, parameters), as `inside`, whether it is among the
            values that were tried. Bootstrap `replicates` of it have an axis before these.
        losses: there; (sizes,).
        curvature: (parameters,); without a minimum it is not above 0.
    """

    sizes: Sequence[SizeTrials]
    best: Array
    inside: NDArray[np.bool_]
    losses: Array
    curvature: Array
    replicates: Array


def fit_optima(sizes: Sequence[SizeTrials]) -> Optima:
    """Fit `loss = a_s + b_s z + c z^2` by least squares to the better half of each size's trials.

    Parameters add up. The curvature `c` of a parameter is that of all sizes, so that few trials of
    each are enough. Replicates draw the residuals of all trials again.
    """
    import numpy as np
    from scipy.linalg import block_diag

    count, points, losses = sizes[0].points.shape[1], [], []
    for size in sizes:
        half = max(count + SPARE_TRIALS, math.ceil(len(size.losses) / 2))
        kept = np.argsort(size.losses, kind="stable")[:half]
        points.append(size.points[kept])
        losses.append(size.losses[kept])
    lines = block_diag(*(np.column_stack([np.ones(len(z)), z]) for z in points))
    design, values = np.hstack([lines, np.concatenate(points) ** 2]), np.concatenate(losses)
    solve = np.linalg.pinv(design)
    fitted = design @ (factors := solve @ values)
    free = max(1, len(values) - np.linalg.matrix_rank(design))
    rest = (values - fitted) * math.sqrt(len(values) / free)
    drawn = fitted + np.random.default_rng(0).choice(rest, (1000, len(values)))
    low = np.array([size.points.min(0) for size in sizes])
    high = np.array([size.points.max(0) for size in sizes])

    def minima(factors: Array) -> tuple[Array, Array]:
        """Places, kept near what was tried, and losses."""
        of_sizes = factors[..., :-count].reshape(*factors.shape[:-1], len(sizes), 1 + count)
        slopes, bend = of_sizes[..., 1:], np.maximum(factors[..., None, -count:], 1e-12)
        best = np.clip(-slopes / (2 * bend), 2 * low - high, 2 * high - low)
        return best, of_sizes[..., 0] + (slopes * best + bend * best**2).sum(-1)

    best, least = minima(factors)
    inside, replicates = (low <= best) & (best <= high), minima(drawn @ solve.T)[0]
    return Optima(sizes, best, inside, least, factors[-count:], replicates)


@dataclass(frozen=True)
class Rule:
    """How the best value of a parameter follows the size.

    Attributes:
        place: of the parameter in the points.
        log: whether it is compared, and follows the size, by its logarithm.
        best: the optimum at each size that counts, by the text of the size; `value`: at the target.
        exponents: of the power law in all size parameters that vary. Of a parameter on a linear
            scale: what the logarithm of the size adds.
        follows: the size parameters of the rule; in the others the optimum is constant.
    """

    name: str
    place: int
    log: bool
    best: Mapping[str, Estimate]
    exponents: Mapping[str, Estimate]
    follows: Sequence[str]
    value: Estimate

    def __str__(self) -> str:
        form = "{}^{}" if self.log else "{1} log {0}"
        words = {axis: form.format(axis, e) for axis, e in self.exponents.items()}
        rule = " ".join(words.pop(axis) for axis in self.follows)
        return ", fitted ".join([f"~ {rule}" if rule else "constant", *words.values()])


def fit_rules(
    optima: Optima, logs: Mapping[str, bool], target: Mapping[str, float], constant: Collection[str]
) -> tuple[list[Rule], list[str]]:
    """The rule that the evidence supports, for each parameter; and why others have none.

    Args:
        logs: the parameters in the order of the points, and whether by their logarithm.
        target: size parameters at which their values are asked.
        constant: those that should not matter, by the parametrization. One is followed nevertheless
            if its exponent, from three values, is clearly not 0.
    """
    rules, problems = list[Rule](), list[str]()
    for place, (name, log) in enumerate(logs.items()):
        inside = optima.inside[:, place]
        sizes = [size for size, ok in zip(optima.sizes, inside, strict=True) if ok]
        if edge := [str(s) for s, ok in zip(optima.sizes, inside, strict=True) if not ok]:
            problems.append(f"{name}: its best value is beyond those tried at {'; '.join(edge)}")
        values = {axis: sorted({size.size[axis] for size in sizes}) for axis in target}
        varied = [axis for axis in target if len(values[axis]) > 1]
        problem = _too_few(sizes, values, target, constant)
        if optima.curvature[place] <= 0:
            problem = "the loss has no minimum in it"
        if problem:
            problems.append(f"{name}: no rule: {problem}")
            continue
        best, replicates = optima.best[inside, place], optima.replicates[:, inside, place]
        value, *laws = _fit_law(_design(sizes, varied, target), best, replicates)
        exponents = dict(zip(varied, laws, strict=True))
        wide = {a: e.high - e.low for a, e in exponents.items() if len(values[a]) > 2}
        clear = [a for a, width in wide.items() if abs(exponents[a].value) > width]
        follows = [a for a in varied if a not in constant or a in clear]
        if len(follows) < len(varied):
            value, *laws = _fit_law(_design(sizes, follows, target), best, replicates)
            exponents |= dict(zip(follows, laws, strict=True))
        found = [value, *map(Estimate.of, best, replicates.T)]
        if log:
            found = [Estimate(*map(math.exp, (i.value, i.low, i.high))) for i in found]
        of_sizes = dict(zip(map(str, sizes), found[1:], strict=True))
        rules.append(Rule(name, place, log, of_sizes, exponents, follows, found[0]))
    return rules, problems


def _too_few(
    sizes: Sequence[SizeTrials],
    values: Mapping[str, Sequence[float]],
    target: Mapping[str, float],
    constant: Collection[str],
) -> str:
    """Why the sizes are not enough for a law of those that vary; empty if they are."""
    import numpy as np

    for axis in (a for a in target if a not in constant and 0 < len(values[a]) < 3):
        if not values[axis][0] <= target[axis] <= values[axis][-1]:
            known = " and ".join(f"{value:g}" for value in values[axis])
            return f"beyond {axis} {known} it takes 3 values of it"
    varied = [axis for axis in target if len(values[axis]) > 1]
    needed = max(2, len(varied) + 1 + any(axis not in constant for axis in varied))
    if len(sizes) < needed:
        return f"{needed} sizes are needed, {len(sizes)} measured"
    is_known = np.linalg.matrix_rank(_design(sizes, varied, target)) > len(varied)
    return "" if is_known else f"{' and '.join(varied)} grow together at all sizes"


def _design(sizes: Sequence[SizeTrials], axes: Sequence[str], unit: Mapping[str, float]) -> Array:
    import numpy as np

    rows = [[1.0, *(math.log(size.size[a] / unit[a]) for a in axes)] for size in sizes]
    return np.array(rows)


def _fit_law(design: Array, best: Array, replicates: Array) -> list[Estimate]:
    """`a`, the value at the target, and `b` of `best = a + b . log(size / target)`. What the law
    leaves unexplained at the sizes is drawn for replicates and target, too."""
    import numpy as np

    fitted, free = (solve := np.linalg.pinv(design)) @ best, max(1, len(best) - design.shape[1])
    spread = math.sqrt(((best - design @ fitted) ** 2).sum() / free)
    noise = np.random.default_rng(0).normal(0, spread, (len(replicates), len(best) + 1))
    again = (replicates + noise[:, 1:]) @ solve.T
    again[:, 0] += noise[:, 0]
    return list(map(Estimate.of, fitted, again.T))


@dataclass(frozen=True)
class LossLaw:
    """`L = floor + scale C^-exponent` (Hoffmann et al. 2022, 2203.15556), and `loss`, what it says
    of a new measurement at the compute `at` (FLOP)."""

    floor: float
    scale: float
    exponent: float
    at: float
    loss: Estimate

    def __str__(self) -> str:
        return f"{self.floor:.3g} + {self.scale:.3g} C^-{self.exponent:.2g} at {self.at:.2g} FLOP"


def frontier(compute: Array, losses: Array) -> NDArray[np.intp]:
    """Places of the points that no point of less compute beats, by ascending compute."""
    import numpy as np

    order = np.lexsort((losses, compute))
    return order[losses[order] < np.minimum.accumulate([np.inf, *losses[order][:-1]])]


def fit_loss_law(compute: Array, losses: Array, at: float) -> LossLaw:
    """Fit the law to a frontier by least squares. The interval has all losses at `at` which some
    law explains nearly as well as the best one, by the F distribution (the profile likelihood)."""
    import numpy as np
    from scipy.stats import f

    unit, count, exponents = float(compute.max()), len(losses), np.geomspace(0.005, 2, 400)
    x, there = (compute / unit) ** -exponents[:, None], (at / unit) ** -exponents
    mean = x.mean(1, keepdims=True)
    spread = ((x - mean) ** 2).sum(1)
    scale = (x - mean) @ losses / spread
    scale = np.where(losses.mean() < scale * mean[:, 0], x @ losses / (x**2).sum(1), scale)
    floor = np.maximum(0.0, losses.mean() - scale * mean[:, 0])
    rss = ((losses - floor[:, None] - scale[:, None] * x) ** 2).sum(1)
    variance = 1 + 1 / count + (there - mean[:, 0]) ** 2 / spread  # in units of the noise's
    limit = rss.min() * (1 + f.ppf(LEVEL, 1, count - 3) / (count - 3))
    found, half = floor + scale * there, np.sqrt(np.maximum(0.0, limit - rss) * variance)
    near, best = rss <= limit, int(rss.argmin())
    low, high = max(0.0, (found - half)[near].min()), (found + half)[near].max()
    power, interval = float(exponents[best]), Estimate(float(found[best]), float(low), float(high))
    return LossLaw(float(floor[best]), float(scale[best]) * unit**power, power, at, interval)


@dataclass(frozen=True)
class Transfer:
    """What a sweep over sizes says of those of a target; `notes` name what is left out."""

    target: Mapping[str, float]
    optima: Optima
    rules: Sequence[Rule]
    notes: Sequence[str]
    loss: LossLaw | None

    def lines(self, metric: str) -> list[str]:
        """The rules, the law, and what is left out, in words."""
        rules = [f"{rule.name}: {rule}" for rule in self.rules]
        return [*rules, *([f"{metric}: {self.loss}"] if self.loss else []), *self.notes]
