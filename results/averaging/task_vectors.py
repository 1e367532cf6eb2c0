"""Averages of task vectors: what each model has learned since their common start.

Task arithmetic: Ilharco et al. 2023 (arXiv 2212.04089); TIES: Yadav et al. 2023 (2306.01708);
DARE: Yu et al. 2024 (2311.03099).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from results.averaging.method import Combine, Method
from results.averaging.stack import Stack

if TYPE_CHECKING:
    from results.averaging.numerics import Floats

Sparse = Callable[[int, slice], "Floats"]
"""Task vector of a model in a piece, with elements set to zero; overwritten by the next call."""

_DIGIT = 16
"""Bits by which the search for the k-th largest magnitude goes on in one pass."""


class _TaskVectors(Method):
    scale: float = Field(
        1.0, gt=0, description="factor of the mean task vector; n gives the sum of n of them"
    )
    needs_base: ClassVar[bool] = True
    idempotent: ClassVar[bool] = False

    def columns(self, models: int) -> int:
        """Sums, their signs, and what the comparisons need."""
        return 8


class TaskArithmetic(_TaskVectors):
    """The start plus the mean of the task vectors, times `scale`."""

    def start(self, stack: Stack) -> Combine:
        """See the base class."""
        return _sum(stack, stack.delta, self.scale)


class Ties(_TaskVectors):
    """Keeps each task vector's largest elements, and of those the ones with the elected sign."""

    density: float = Field(
        0.2, gt=0, le=1, description="part of each task vector's elements that is kept, per tensor"
    )

    def start(self, stack: Stack) -> Combine:
        """Finds how large an element must be; see the base class."""
        return _consensus(stack, _trimmed(stack, self.density), self.scale)


class _Dare(_TaskVectors):
    density: float = Field(
        0.5, gt=0, le=1, description="part of each task vector's elements that is kept, at random"
    )
    seed: int = Field(0, ge=0, description="of the choice")


class DareLinear(_Dare):
    """Drops elements at random, scales up the others, and takes the mean."""

    def start(self, stack: Stack) -> Combine:
        """See the base class."""
        return _sum(stack, _dropped(stack, self.density, self.seed), self.scale)


class DareTies(_Dare):
    """Drops elements at random, scales up the others, and keeps those with the elected sign."""

    def start(self, stack: Stack) -> Combine:
        """See the base class."""
        return _consensus(stack, _dropped(stack, self.density, self.seed), self.scale)


def _sum(stack: Stack, sparse: Sparse, scale: float) -> Combine:
    import numpy as np

    total = np.empty(stack.step)

    def combine(piece: slice) -> Floats:
        learned = total[: piece.stop - piece.start]
        learned.fill(0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            for model, share in enumerate(stack.shares):
                delta = sparse(model, piece)
                delta *= share * scale
                learned += delta
            return _added(stack.base(piece), learned)

    return combine


def _consensus(stack: Stack, sparse: Sparse, scale: float) -> Combine:
    """Mean of those elements that have the sign of the weighted sum."""
    import numpy as np

    def combine(piece: slice) -> Floats:
        count = piece.stop - piece.start
        elected, learned, weight = np.zeros(count), np.zeros(count), np.zeros(count)
        with np.errstate(over="ignore", invalid="ignore"):
            for model, share in enumerate(stack.shares):
                elected += share * sparse(model, piece)
            np.sign(elected, out=elected)
            for model, share in enumerate(stack.shares):
                delta = sparse(model, piece)
                agrees = (np.sign(delta) == elected) & (delta != 0.0)
                learned += np.where(agrees, share * delta, 0.0)
                weight += np.where(agrees, share, 0.0)
            np.divide(learned * scale, weight, out=learned, where=weight > 0)
            return _added(stack.base(piece), learned)

    return combine


def _added(base: Floats, learned: Floats) -> Floats:
    """In `learned`; where nothing was learned, the start with the sign of its zeros."""
    import numpy as np

    nothing = learned == 0.0
    np.add(base, learned, out=learned)
    learned[nothing] = base[nothing]
    return learned


def _trimmed(stack: Stack, density: float) -> Sparse:
    import numpy as np

    keep = max(1, math.ceil(density * stack.size))

    def magnitudes(model: int) -> Iterator[Floats]:
        return (np.abs(stack.delta(model, piece)) for piece in stack.pieces())

    least = [
        kth_largest(lambda m=model: magnitudes(m), keep)  # type: ignore[misc]
        for model in range(len(stack.shares))
    ]

    def sparse(model: int, piece: slice) -> Floats:
        delta = stack.delta(model, piece)
        delta[np.abs(delta) < least[model]] = 0.0
        return delta

    return sparse


def kth_largest(pieces: Callable[[], Iterator[Floats]], k: int) -> float:
    """The k-th largest of values that are not negative, without holding them.

    The bits of such floats are in the order of their values, so that each pass over them counts
    one digit of 16 bits, from the highest.
    """
    import numpy as np

    found, left = 0, k
    for shift in range(64 - _DIGIT, -1, -_DIGIT):
        counts = np.zeros(1 << _DIGIT, np.int64)
        for values in pieces():
            bits = values.view(np.uint64)
            if shift < 64 - _DIGIT:
                bits = bits[(bits >> np.uint64(shift + _DIGIT)) == found]
            digits = (bits >> np.uint64(shift)) & np.uint64((1 << _DIGIT) - 1)
            counts += np.bincount(digits.astype(np.int64), minlength=1 << _DIGIT)
        above = np.cumsum(counts[::-1])
        place = int(np.searchsorted(above, left))
        left -= int(above[place - 1]) if place else 0
        found = (found << _DIGIT) | ((1 << _DIGIT) - 1 - place)
    return float(np.array(found, np.uint64).view(np.float64))


def _dropped(stack: Stack, density: float, seed: int) -> Sparse:
    """Drops by a tensor's content, not its name or place: tied tensors stay tied."""
    import numpy as np

    keys = [
        int.from_bytes(hashlib.sha256(seed.to_bytes(8, "little") + stack.content(m)).digest()[:16])
        for m in range(len(stack.shares))
    ]

    def sparse(model: int, piece: slice) -> Floats:
        delta = stack.delta(model, piece)
        # four numbers a count of Philox: a piece finds its place without drawing what is before it
        bits = np.random.Philox(key=keys[model]).advance(piece.start // 4)
        delta[np.random.Generator(bits).random(delta.size) >= density] = 0.0
        delta /= density
        return delta

    return sparse
