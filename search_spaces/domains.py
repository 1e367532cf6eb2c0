"""What a parameter may be: Ray Tune's domains, by Ray Tune's names and argument order, and
`ordinal`, which Ray Tune lacks."""

from __future__ import annotations

import math
from typing import Any, Literal, Self, TypeGuard, get_args

from pydantic import BaseModel, ConfigDict, model_serializer, model_validator

from search_spaces.plain import show, walk

Kind = Literal[
    "uniform",
    "quniform",
    "loguniform",
    "qloguniform",
    "randint",
    "qrandint",
    "lograndint",
    "qlograndint",
    "choice",
    "ordinal",
    "grid_search",
]
KINDS: tuple[str, ...] = get_args(Kind)
LISTS: dict[str, str] = {"choice": "categories", "ordinal": "categories", "grid_search": "values"}
"""The domains that list their values, with the keyword of the list."""


def arguments(kind: str) -> tuple[str, ...]:
    """Ray Tune's names of a domain's arguments, in its order; `base` is optional."""
    if kind in LISTS:
        return (LISTS[kind],)
    q = ("q",) if kind.startswith("q") else ()
    base = ("base",) if "log" in kind else ()
    return ("lower", "upper", *q, *base)


def is_domain_form(raw: object) -> TypeGuard[dict[str, Any]]:
    """Whether plain data is written as a domain: `{<domain's name>: …}`."""
    return isinstance(raw, dict) and len(raw) == 1 and next(iter(raw)) in KINDS


class Domain(BaseModel):
    """The values one parameter may take.

    Built from the YAML form: `Domain.model_validate({"uniform": [0, 1]})`.

    Attributes:
        kind: Ray Tune's name.
        lower: smallest value; for a categorical domain the smallest index, 0.
        upper: bound above, as in Ray Tune: never drawn by `randint` and `lograndint`, see `high`;
            for a categorical domain the greatest index.
        q: every value is a multiple of it; None where the domain is not quantised.
        categories: the values of `choice`, `ordinal` and `grid_search`, plain data; empty
            otherwise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: Kind
    lower: int | float
    upper: int | float
    q: int | float | None = None
    categories: tuple[Any, ...] = ()

    @property
    def is_categorical(self) -> bool:
        """Whether the values are listed: `choice`, `ordinal`, `grid_search`."""
        return self.kind in LISTS

    @property
    def log(self) -> bool:
        """Whether values are drawn evenly in their logarithm."""
        return "log" in self.kind

    @property
    def integer(self) -> bool:
        """Whether values are whole numbers."""
        return self.kind.endswith("randint")

    @property
    def high(self) -> int | float:
        """The greatest value that can be drawn (inclusive)."""
        return self.upper - 1 if self.integer and self.q is None else self.upper

    def contains(self, value: object) -> bool:
        """Whether the domain can yield this value."""
        if self.is_categorical:
            return value in self.categories
        if isinstance(value, bool) or not isinstance(value, int if self.integer else (int, float)):
            return False
        if self.q is None or not math.isfinite(value):
            return self.lower <= value <= self.high
        # by multiples, since 6 * 0.05 is a little more than 0.3
        low, index, high = (round(x / self.q) for x in (self.lower, value, self.upper))
        return low <= index <= high and _multiple(value, self.q)

    @model_serializer
    def dump(self) -> dict[str, list[Any]]:
        """The YAML form, with positional arguments."""
        if self.is_categorical:
            return {self.kind: list(self.categories)}
        return {self.kind: [self.lower, self.upper, *([] if self.q is None else [self.q])]}

    @model_validator(mode="before")
    @classmethod
    def _from_yaml(cls, data: Any) -> Any:
        return _fields(*next(iter(data.items()))) if is_domain_form(data) else data

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.is_categorical:
            _check_categories(self.kind, self.categories)
        else:
            _check_bounds(self)
            if self.q is not None:
                _check_q(self, self.q)
        return self


def _fields(kind: str, raw: object) -> dict[str, Any]:
    if kind in LISTS:
        values = raw.get(LISTS[kind]) if isinstance(raw, dict) and len(raw) == 1 else raw
        if not isinstance(values, list):
            raise ValueError(f"{kind} takes a list of values, got {show(raw)}")
        return {"kind": kind, "lower": 0, "upper": len(values) - 1, "categories": tuple(values)}
    given = _named(kind, raw)
    whole = kind.endswith("randint")
    for name, value in given.items():
        _check_number(kind, name, value, whole=whole and name != "base")
    if given.pop("base", 10) <= 1:
        raise ValueError(f"{kind} needs base > 1")
    return {"kind": kind} | (given if whole else {k: float(v) for k, v in given.items()})


def _named(kind: str, raw: object) -> dict[str, Any]:
    names = arguments(kind)
    if isinstance(raw, list) and len(raw) <= len(names):
        given = dict(zip(names, raw, strict=False))
    elif isinstance(raw, dict):
        given = raw
    else:
        given = {}
    required = {name for name in names if name != "base"}
    if not required <= given.keys() <= set(names):
        form = ", ".join(name for name in names if name != "base")
        optional = "(, base)" if "base" in names else ""
        raise ValueError(f"{kind} takes [{form}{optional}], got {show(raw)}")
    return dict(given)


def _check_number(kind: str, name: str, value: object, *, whole: bool) -> None:
    allowed = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed):
        rule = "a whole number" if whole else "a number"
        raise ValueError(f"{kind} needs {rule} for {name}, got {show(value)}")
    if not math.isfinite(value):
        raise ValueError(f"{kind} needs a finite {name}, got {show(value)}")


def _check_bounds(domain: Domain) -> None:
    kind, lower, upper = domain.kind, domain.lower, domain.upper
    if domain.categories:
        raise ValueError(f"{kind} takes no categories")
    if domain.log and lower <= 0:
        raise ValueError(f"{kind} needs lower > 0, got {lower}")
    if lower >= upper:
        raise ValueError(f"{kind} needs lower < upper, got [{lower}, {upper}]")
    if (domain.q is not None) != kind.startswith("q"):
        raise ValueError(f"{kind} takes {', '.join(arguments(kind))}")


def _check_q(domain: Domain, q: int | float) -> None:
    kind = domain.kind
    if domain.integer and q == 1:
        # Ray Tune then leaves upper out, though it is drawn with every other q
        raise ValueError(f"{kind} needs q > 1, got 1; write {kind.removeprefix('q')} without it")
    if q <= 0:
        raise ValueError(f"{kind} needs q > 0, got {q}")
    for name, bound in (("lower", domain.lower), ("upper", domain.upper)):
        if not _multiple(bound, q):
            raise ValueError(f"{kind} needs {name} to be a multiple of q = {q}, got {bound}")


def _multiple(value: int | float, q: int | float) -> bool:
    return math.isclose(value / q, round(value / q))


def _check_categories(kind: str, categories: tuple[Any, ...]) -> None:
    if not categories:
        raise ValueError(f"{kind} needs at least one value, got []")
    for i, value in enumerate(categories):
        if value in categories[:i]:
            first = categories[categories.index(value)]
            raise ValueError(f"{kind} needs values that differ, got {show(first)}, {show(value)}")
        for _, part in walk(value):
            if is_domain_form(part) and isinstance(next(iter(part.values())), (list, dict)):
                raise ValueError(f"{kind} cannot hold a domain, got {show(part)}")
