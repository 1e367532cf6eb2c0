"""The base class of averaging methods, and the dict of all methods."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from results.averaging.numerics import Floats
from results.averaging.stack import Stack
from search_spaces.errors import UserError, suggest

METHODS: dict[str, str] = {
    "greedy": "results.averaging.mean:Greedy",
    "uniform": "results.averaging.mean:Uniform",
    "weighted": "results.averaging.mean:Weighted",
    "ema": "results.averaging.mean:Ema",
    "slerp": "results.averaging.mean:Slerp",
    "median": "results.averaging.mean:Median",
    "trimmed_mean": "results.averaging.mean:TrimmedMean",
    "task_arithmetic": "results.averaging.task_vectors:TaskArithmetic",
    "ties": "results.averaging.task_vectors:Ties",
    "dare_linear": "results.averaging.task_vectors:DareLinear",
    "dare_ties": "results.averaging.task_vectors:DareTies",
}
"""Name → `module:Class`. A new method is one line here."""

Combine = Callable[[slice], Floats]
"""Computes one piece of the result; the next call may overwrite the array."""


class Method(BaseModel, ABC):
    """Averages one tensor of several models. The fields of a subclass are its options.

    A method sees one tensor at a time, in float64, and keeps no state between tensors. Its result
    must not depend on the order in which the user names the models (they arrive sorted by share
    and content) nor on the piece size. If all models and their base are the same model, the result
    is that model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    needs_base: ClassVar[bool] = False
    """Whether it needs the base: the weights from which all models started."""
    selects: ClassVar[bool] = False
    """Whether the soup contains only some of the candidates, selected by their score."""
    linear: ClassVar[bool] = False
    """Whether the result is the sum of the models, each times its share."""

    def shares(self, models: int, weights: Sequence[float] | None) -> list[float]:
        """Part of each model in the result, in the order in which the user named them.

        Raises:
            UserError: the method takes no weights, or these are not valid.
        """
        if weights is not None:
            raise UserError(f"method {self.name()} takes no weights; weighted does")
        return normalised(models, [1.0] * models)

    def num_buffers(self, models: int) -> int:
        """Float64 arrays of piece size that it holds at once, beside those of the stack."""
        return 4

    @abstractmethod
    def prepare(self, stack: Stack) -> Combine:
        """Read a tensor as often as needed, and return the function that averages its pieces."""

    @classmethod
    def name(cls) -> str:
        """Its name in `METHODS`, which commands and sweep files use."""
        path = f"{cls.__module__}:{cls.__name__}"
        return next((name for name, known in METHODS.items() if known == path), cls.__name__)


def normalised(models: int, weights: Sequence[float]) -> list[float]:
    """Weights divided by their sum.

    Raises:
        UserError: their number is not that of the models, one is negative, or all are zero.
    """
    numbers = [float(w) for w in weights]
    if not models or len(numbers) != models:
        raise UserError(f"an average of {models} models cannot have {len(numbers)} weights")
    total = math.fsum(numbers)
    if not min(numbers) >= 0 or not 0 < total < math.inf:
        raise UserError(f"weights of an average must be at least 0 and not all 0, got {numbers}")
    return [w / total for w in numbers]


def make_method(name: str, options: Mapping[str, Any] | None = None) -> Method:
    """A method by its name, with its options.

    Raises:
        UserError: there is no such method or option, or a value is out of range.
    """
    if name not in METHODS:
        raise UserError(f"unknown method '{name}'{suggest(name, METHODS)}")
    found: type[Method] = resolve_name(METHODS[name])
    try:
        return found.model_validate(dict(options or {}))
    except ValidationError as e:
        lines = []
        for error in e.errors():
            option = ".".join(map(str, error["loc"]))
            if error["type"] != "extra_forbidden":
                line = f"{option}: {error['msg']}, got {error['input']!r}"
            elif found.model_fields:
                line = f"unknown option '{option}'{suggest(option, found.model_fields)}"
            else:
                line = f"has no options, so no '{option}'"
            lines.append(f"method {name}: {line}")
        raise UserError(*lines) from e
