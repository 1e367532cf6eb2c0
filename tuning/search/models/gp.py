"""A Gaussian process for up to some hundreds of points, with numpy and scipy only: a proposal takes
milliseconds, and the driver does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
T = TypeVar("T")


def one_thread(function: Callable[P, T]) -> Callable[P, T]:
    """Run a function with one thread of numpy and scipy.

    The matrices of a search are small, and the processors train the trials: the threads of a
    library that wait for each other then take a hundred times as long as one thread.
    """

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        with _libraries().limit(limits=1):
            return function(*args, **kwargs)

    return limited


@cache
def _libraries() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  # has a library of its own
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


Array = NDArray[np.float64]

_ROOT5 = 5**0.5
_JITTER = 1e-8
_ITERATIONS = 20
_MAX_FIT_POINTS = 80


@dataclass(frozen=True)
class GaussianProcess:
    """A Matérn 5/2 kernel with a length per dimension (Rasmussen & Williams 2006, ch. 2 and 4).

    Attributes:
        x: (n, d), inputs in the unit cube.
        y: (n,), values with a mean near 0 and a standard deviation near 1.
        theta: (d + 2,), logarithms of the lengths, the signal variance and the noise variance.
    """

    x: Array
    y: Array
    theta: Array

    @classmethod
    @one_thread
    def fit(cls, x: Array, y: Array) -> GaussianProcess:
        """Fit the kernel by maximum a posteriori, with L-BFGS from one fixed start.

        With more than `_MAX_FIT_POINTS` points the kernel is fitted to a subset, half of it the
        best points; predictions use all points.
        """
        from scipy.optimize import minimize

        some, d = _select_for_fit(y), x.shape[1]
        columns = x[some].T
        squares = ((columns[:, :, None] - columns[:, None, :]) ** 2).reshape(d, -1)
        start = np.concatenate([np.log(np.full(d, _typical_length(d))), [0.0, np.log(1e-2)]])
        bounds = [(-4.0, 4.0)] * d + [(-4.0, 3.0), (np.log(1e-5), 0.0)]
        found = minimize(
            _cost,
            start,
            (squares, y[some]),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": _ITERATIONS},
        )
        return cls(x, y, np.asarray(found.x))

    def with_believed(self, x: Array) -> GaussianProcess:
        """Add pending points with the predicted mean as their value ("kriging believer",
        Ginsbourger et al. 2010), so that they are not proposed again.
        """
        if not len(x):
            return self
        mean, _ = self.predict(x)
        return GaussianProcess(
            np.concatenate([self.x, x]), np.concatenate([self.y, mean]), self.theta
        )

    @one_thread
    def predict(self, x: Array) -> tuple[Array, Array]:
        """Mean and standard deviation (m,), without noise, at points (m, d)."""
        from scipy.linalg import solve_triangular

        chol, weights = self._solved
        cross = self._kernel(x, self.x)
        mean = cross @ weights
        part = solve_triangular(chol, cross.T, lower=True, check_finite=False)
        variance = np.exp(self.theta[-2]) - (part**2).sum(axis=0)
        return mean, np.sqrt(np.maximum(variance, 1e-12))

    @cached_property
    def _solved(self) -> tuple[Array, Array]:
        """The Cholesky factor of the covariance, and the inverse covariance times the values."""
        from scipy.linalg import cho_solve

        own = (np.exp(self.theta[-1]) + _JITTER) * np.eye(len(self.x))
        chol = np.linalg.cholesky(self._kernel(self.x, self.x) + own)
        return np.asarray(chol), np.asarray(cho_solve((chol, True), self.y))

    def _kernel(self, a: Array, b: Array) -> Array:
        lengths = np.exp(self.theta[:-2])
        left, right = a / lengths, b / lengths
        square = (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :] - 2 * left @ right.T
        r = np.sqrt(np.maximum(square, 0.0))
        signal: Array = (1 + _ROOT5 * r + 5 / 3 * r**2) * np.exp(self.theta[-2] - _ROOT5 * r)
        return signal


def expected_improvement(mean: Array, std: Array, best: float) -> Array:
    """Expected improvement of each point over the best value (Jones et al. 1998)."""
    from scipy.special import ndtr

    z = (mean - best) / std
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    improvement: Array = std * (z * ndtr(z) + density)
    return improvement


def standardise(values: Array) -> tuple[Array, float]:
    """Shift and scale values to mean 0 and standard deviation 1; also returns the scale.

    Low values are clipped at three interquartile ranges below the median, so that one diverged
    trial does not make all others look equal.
    """
    q1, median, q3 = np.percentile(values, [25, 50, 75])
    clipped = np.maximum(values, median - 3 * max(q3 - q1, 1e-12))
    scale = float(clipped.std()) or 1.0
    return (clipped - clipped.mean()) / scale, scale


def _select_for_fit(y: Array) -> NDArray[np.int64]:
    """Indices of the points for fitting the kernel: the best ones, and evenly spaced others."""
    order = np.argsort(-y, kind="stable")
    if len(y) <= _MAX_FIT_POINTS:
        return order
    half = _MAX_FIT_POINTS // 2
    others = np.linspace(half, len(y) - 1, _MAX_FIT_POINTS - half).astype(int)
    return np.asarray(order[np.concatenate([np.arange(half), others])])


def _typical_length(dimensions: int) -> float:
    """A typical kernel length in this many dimensions."""
    return float(0.4 * dimensions**0.5)


def _cost(theta: Array, squares: Array, y: Array) -> tuple[float, Array]:
    """Negative log posterior of the kernel's logarithms, and its gradient.

    `squares` (d, n * n) are the distances of all pairs of points along each dimension, squared.
    """
    from scipy.linalg.lapack import dpotrf, dpotri

    count, d = len(y), len(squares)
    weights = np.exp(-2 * theta[:d])
    r = np.sqrt(weights @ squares).reshape(count, count)
    decay = np.exp(theta[d] - _ROOT5 * r)
    slope = 5 / 3 * (1 + _ROOT5 * r) * decay
    signal = decay + _ROOT5 * r * decay + 5 / 3 * r**2 * decay
    covariance = signal + (np.exp(theta[d + 1]) + _JITTER) * np.eye(count)
    chol, failed = dpotrf(covariance, lower=True)
    if failed:
        return np.inf, np.zeros(d + 2)
    half = np.tril(dpotri(chol, lower=True)[0])
    inverse = half + np.tril(half, -1).T
    alpha = inverse @ y
    inner = np.outer(alpha, alpha) - inverse
    gradient = np.empty(d + 2)
    gradient[:d] = weights * (squares @ (inner * slope).ravel())
    gradient[d] = (inner * signal).sum()
    gradient[d + 1] = np.trace(inner) * np.exp(theta[d + 1])
    prior_mean = np.concatenate([np.full(d, np.log(_typical_length(d))), [0.0, np.log(1e-2)]])
    prior_scale = np.concatenate([np.full(d, 1.0), [1.0, 2.0]])
    off = (theta - prior_mean) / prior_scale
    cost = 0.5 * y @ alpha + np.log(np.diag(chol)).sum() + 0.5 * (off**2).sum()
    return float(cost), -0.5 * gradient + off / prior_scale
