"""Spherical interpolation of two models (Shoemake 1985), tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

from results.averaging.mean import mean
from results.averaging.method import Combine, Method, normalised
from results.averaging.numerics import Floats
from results.averaging.stack import GRAIN, Stack
from search_spaces.errors import UserError

_PARALLEL = 1e-6
"""Sine of the angle below which linear interpolation is used; there both give the same result."""


class Slerp(Method):
    """Interpolation on the arc between two models, which keeps their norm."""

    def shares(self, models: int, weights: Sequence[float] | None) -> list[float]:
        """See the base class.

        Raises:
            UserError: there are not exactly two models, or the weights are not valid.
        """
        if models != 2:
            raise UserError(f"method slerp interpolates between 2 models, not {models}")
        return normalised(2, [1.0, 1.0] if weights is None else weights)

    def prepare(self, stack: Stack) -> Combine:
        """Measures the angle; see the base class."""
        angle = _angle(stack)
        if angle is None:
            return mean(stack)
        first, second = (math.sin(share * angle) / math.sin(angle) for share in stack.shares)

        def combine(piece: slice) -> Floats:
            result = stack.value(0, piece) * first
            result += stack.value(1, piece) * second
            return result

        return combine


def _angle(stack: Stack) -> float | None:
    """Angle between the two tensors in radians; None where they are parallel or one is zero."""
    import numpy as np

    products = [0.0, 0.0, 0.0]
    for piece in stack.pieces():
        one = stack.value(0, piece).copy()
        two = stack.value(1, piece)
        for at in range(0, one.size, GRAIN):  # by grain: see `GRAIN`
            a, b = one[at : at + GRAIN], two[at : at + GRAIN]
            for i, (x, y) in enumerate(((a, b), (a, a), (b, b))):
                products[i] += float(np.sum(x * y))
    dot, aa, bb = products
    if not (aa > 0 and bb > 0 and math.isfinite(aa * bb)):
        return None
    angle = math.acos(max(-1.0, min(1.0, dot / math.sqrt(aa) / math.sqrt(bb))))
    return None if math.sin(angle) < _PARALLEL else angle
