"""Spherical interpolation of two models (Shoemake 1985), tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from results.averaging.mean import mean
from results.averaging.method import Combine, Method, normalised
from results.averaging.stack import GRAIN, Stack
from search_spaces.errors import UserError

if TYPE_CHECKING:
    from results.averaging.numerics import Floats

_PARALLEL = 1e-6
"""Sine of the angle below which the straight line is taken: there the two ways are one."""


class Slerp(Method):
    """Along the arc between two models, which keeps their length; weights say how far."""

    def shares(self, models: int, weights: Sequence[float] | None) -> list[float]:
        """Of exactly two models.

        Raises:
            UserError: there are not two, or the weights make no mean.
        """
        if models != 2:
            raise UserError(f"method slerp goes from model to model, and takes 2, not {models}")
        return normalised(2, [1.0, 1.0] if weights is None else weights)

    def start(self, stack: Stack) -> Combine:
        """Measures the angle first; see the base class."""
        straight = mean(stack)
        angle = _angle(stack)
        if angle is None:
            return straight
        first, second = (math.sin(share * angle) / math.sin(angle) for share in stack.shares)

        def combine(piece: slice) -> Floats:
            result = stack.value(0, piece) * first
            result += stack.value(1, piece) * second
            return result

        return combine


def _angle(stack: Stack) -> float | None:
    """Between the two tensors, in radians; None where they are parallel or nothing."""
    import numpy as np

    products = [0.0, 0.0, 0.0]
    for piece in stack.pieces():
        one = stack.value(0, piece).copy()
        two = stack.value(1, piece)
        for at in range(0, one.size, GRAIN):  # whole grains: see `Stack`
            a, b = one[at : at + GRAIN], two[at : at + GRAIN]
            for i, (x, y) in enumerate(((a, b), (a, a), (b, b))):
                products[i] += float(np.sum(x * y))
    dot, aa, bb = products
    if not (aa > 0 and bb > 0 and math.isfinite(aa * bb)):
        return None
    angle = math.acos(max(-1.0, min(1.0, dot / math.sqrt(aa) / math.sqrt(bb))))
    return None if math.sin(angle) < _PARALLEL else angle
