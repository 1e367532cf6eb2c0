"""Averages of task vectors: the difference of each model from the base of all.

Task arithmetic: Ilharco et al. 2023 (arXiv 2212.04089); TIES: Yadav et al. 2023 (2306.01708);
DARE: Yu et al. 2024 (2311.03099).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

from pydantic import Field

from results.averaging.method import Combine, Method
from results.averaging.numerics import Floats
from results.averaging.stack import Stack

TaskVector = Callable[[int, slice], Floats]
"""A model's task vector in a piece, some elements set to zero; overwritten by the next call."""

_DIGIT = 16
"""Bits that one pass of the search for the k-th largest value determines."""


class _TaskVectors(Method):
    scale: float = Field(
        1.0, gt=0, description="factor of the mean task vector; for n models, n gives the sum"
    )
    needs_base: ClassVar[bool] = True

    def num_buffers(self, models: int) -> int:
        """Sums, their signs, and the results of comparisons; see the base class."""
        return 8


class TaskArithmetic(_TaskVectors):
    """The base plus the mean of the task vectors times `scale`."""

    def prepare(self, stack: Stack) -> Combine:
        """See the base class."""
        return _add_mean(stack, stack.delta, self.scale)


class Ties(_TaskVectors):
    """Keeps the largest elements of each task vector, then those with the elected sign."""

    density: float = Field(
        0.2,
        gt=0,
        le=1,
        description="part of the elements of each task vector that is kept, per tensor",
    )

    def prepare(self, stack: Stack) -> Combine:
        """Finds the threshold for elements; see the base class."""
        return _add_elected(stack, _keep_largest(stack, self.density), self.scale)


class _Dare(_TaskVectors):
    density: float = Field(
        0.5,
        gt=0,
        le=1,
        description="part of the elements of each task vector that is kept, at random",
    )
    seed: int = Field(0, ge=0, description="seed of the random choice")


class DareLinear(_Dare):
    """Drops elements at random, scales up the others, and adds their mean to the base."""

    def prepare(self, stack: Stack) -> Combine:
        """See the base class."""
        return _add_mean(stack, _drop_at_random(stack, self.density, self.seed), self.scale)


class DareTies(_Dare):
    """Drops elements at random, scales up the others, and keeps those with the elected sign."""

    def prepare(self, stack: Stack) -> Combine:
        """See the base class."""
        return _add_elected(stack, _drop_at_random(stack, self.density, self.seed), self.scale)


def _add_mean(stack: Stack, task_vector: TaskVector, scale: float) -> Combine:
    """Base plus the weighted mean of the task vectors times `scale`."""
    import numpy as np

    total = np.empty(stack.piece_size)

    def combine(piece: slice) -> Floats:
        learned = total[: piece.stop - piece.start]
        learned.fill(0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            for model, share in enumerate(stack.shares):
                delta = task_vector(model, piece)
                delta *= share * scale
                learned += delta
            return _add_to_base(stack.base(piece), learned)

    return combine


def _add_elected(stack: Stack, task_vector: TaskVector, scale: float) -> Combine:
    """Base plus the weighted mean of the elements that have the sign of the weighted sum."""
    import numpy as np

    def combine(piece: slice) -> Floats:
        count = piece.stop - piece.start
        elected, learned, weight = np.zeros(count), np.zeros(count), np.zeros(count)
        with np.errstate(over="ignore", invalid="ignore"):
            for model, share in enumerate(stack.shares):
                elected += share * task_vector(model, piece)
            np.sign(elected, out=elected)
            for model, share in enumerate(stack.shares):
                delta = task_vector(model, piece)
                agrees = (np.sign(delta) == elected) & (delta != 0.0)
                learned += np.where(agrees, share * delta, 0.0)
                weight += np.where(agrees, share, 0.0)
            np.divide(learned * scale, weight, out=learned, where=weight > 0)
            return _add_to_base(stack.base(piece), learned)

    return combine


def _add_to_base(base: Floats, learned: Floats) -> Floats:
    """The sum, in `learned`; where that is zero, the base itself, with the sign of its zeros."""
    import numpy as np

    unchanged = learned == 0.0
    np.add(base, learned, out=learned)
    learned[unchanged] = base[unchanged]
    return learned


def _keep_largest(stack: Stack, density: float) -> TaskVector:
    import numpy as np

    keep = max(1, math.ceil(density * stack.size))

    def magnitudes(model: int) -> Iterator[Floats]:
        return (np.abs(stack.delta(model, piece)) for piece in stack.pieces())

    models = range(len(stack.shares))
    thresholds = [kth_largest(partial(magnitudes, model), keep) for model in models]

    def task_vector(model: int, piece: slice) -> Floats:
        delta = stack.delta(model, piece)
        delta[np.abs(delta) < thresholds[model]] = 0.0
        return delta

    return task_vector


def kth_largest(pieces: Callable[[], Iterator[Floats]], k: int) -> float:
    """The k-th largest of values that are not negative, without holding them in memory.

    The bit patterns of such floats have the order of their values. Each pass over the values counts
    one digit of 16 bits, starting with the highest.
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


def _drop_at_random(stack: Stack, density: float, seed: int) -> TaskVector:
    """Derives the choice from the content of the tensor, so that tied tensors stay tied."""
    import numpy as np

    keys = [
        int.from_bytes(hashlib.sha256(seed.to_bytes(8, "little") + stack.digest(m)).digest()[:16])
        for m in range(len(stack.shares))
    ]

    def task_vector(model: int, piece: slice) -> Floats:
        delta = stack.delta(model, piece)
        # Philox makes four numbers per count, so a piece can start without drawing those before it
        bits = np.random.Philox(key=keys[model]).advance(piece.start // 4)
        delta[np.random.Generator(bits).random(delta.size) >= density] = 0.0
        delta /= density
        return delta

    return task_vector
