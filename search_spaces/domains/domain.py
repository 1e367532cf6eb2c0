"""The domain of one parameter: Ray Tune's domains, with Ray Tune's names and argument order, and
`ordinal`, which Ray Tune lacks."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any, Literal, Self, TypeGuard, get_args

from pydantic import BaseModel, ConfigDict, model_serializer, model_validator

from search_spaces.domains.normal import Normal, is_multiple, multiple_of
from search_spaces.limits import check_time, limit
from search_spaces.nested import same, show, walk

Kind = Literal[
    "uniform",
    "quniform",
    "loguniform",
    "qloguniform",
    "randint",
    "qrandint",
    "lograndint",
    "qlograndint",
    "randn",
    "qrandn",
    "choice",
    "ordinal",
    "grid_search",
]
KINDS: tuple[str, ...] = get_args(Kind)
PRIOR = "prior"
"""The key beside a domain that holds the value which people believe in."""
LISTS: dict[str, str] = {"choice": "categories", "ordinal": "categories", "grid_search": "values"}
"""Domains that list their values, and the keyword of the list."""
MAX_VALUES, MAX_NUMBER, MAX_COUNT = 1000, 1e100, 2**53
"""The longest list of values; the greatest magnitude of a number; the greatest whole number, and
multiple of q, of which every neighbour is a distinct float. Searchers compute beyond them wrongly.
"""
_RANDN_DEFAULTS = {"mean": 0.0, "sd": 1.0}
"""Defaults of `randn`'s arguments."""


def arguments(kind: str) -> tuple[str, ...]:
    """Names of a domain's arguments, in Ray Tune's order."""
    if kind in LISTS:
        return (LISTS[kind],)
    q = ("q",) if kind.startswith("q") else ()
    if kind.endswith("randn"):
        return ("mean", "sd", *q)
    base = ("base",) if "log" in kind else ()
    return ("lower", "upper", *q, *base)


def optional_arguments(kind: str) -> tuple[str, ...]:
    """The arguments that may be left out, in order."""
    return tuple(
        n for n in arguments(kind) if n == "base" or (kind == "randn" and n in _RANDN_DEFAULTS)
    )


def is_domain_form(raw: object) -> TypeGuard[dict[str, Any]]:
    """Whether plain data is written as a domain: `{<domain's name>: …}`, beside it a `prior`."""
    return isinstance(raw, dict) and kind_of(raw) is not None


def kind_of(raw: Mapping[str, Any]) -> str | None:
    """The name of a domain written as plain data; None if it is none."""
    names = [name for name in raw if name != PRIOR]
    return names[0] if len(names) == 1 and names[0] in KINDS else None


def holds_arguments(raw: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is written as a domain with arguments; `{choice: 3}` may be data."""
    return is_domain_form(raw) and isinstance(raw[str(kind_of(raw))], (list, dict))


class Domain(BaseModel):
    """The values one parameter may take.

    Built from the YAML form: `Domain.model_validate({"uniform": [0, 1]})`.

    Attributes:
        kind: Ray Tune's name.
        lower: smallest value; for a categorical domain the smallest index, 0; for a normal domain
            the bound of `Normal.bounds`, as is upper.
        upper: upper bound as in Ray Tune: excluded by `randint` and `lograndint`, see `high`; for
            a categorical domain the greatest index.
        q: every value is a multiple of it; None if the domain is not quantised.
        categories: the values of `choice`, `ordinal` and `grid_search`, plain data; empty
            otherwise.
        mean, sd: of `randn` and `qrandn`; None otherwise.
        priors: the value that people believe in; empty if there is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: Kind
    lower: int | float
    upper: int | float
    q: int | float | None = None
    categories: tuple[Any, ...] = ()
    mean: float | None = None
    sd: float | None = None
    priors: tuple[Any, ...] = ()

    @property
    def is_categorical(self) -> bool:
        """Whether the values are listed: `choice`, `ordinal`, `grid_search`."""
        return self.kind in LISTS

    @property
    def normal(self) -> Normal | None:
        """The distribution of a normal domain; None for other domains."""
        if self.mean is None or self.sd is None:
            return None
        return Normal(self.mean, self.sd, self.q)

    @property
    def log(self) -> bool:
        """Whether values are uniform in their logarithm."""
        return "log" in self.kind

    @property
    def integer(self) -> bool:
        """Whether values are whole numbers."""
        return self.kind.endswith("randint")

    @property
    def high(self) -> int | float:
        """The greatest value (inclusive)."""
        return self.upper - 1 if self.integer and self.q is None else self.upper

    def multiple(self, count: int) -> int | float:
        """`count` times q; only for quantised domains."""
        assert self.q is not None
        return int(self.q) * count if self.integer else multiple_of(self.q, count)

    def index(self, value: object) -> int | None:
        """The place of a value among the categories; None if it is none of them."""
        if value in self.categories:
            return self.categories.index(value)
        return next((i for i, c in enumerate(self.categories) if same(value, c)), None)

    def contains(self, value: object) -> bool:
        """Whether the domain can yield this value."""
        if self.is_categorical:
            return self.index(value) is not None
        if isinstance(value, bool) or not isinstance(value, int if self.integer else (int, float)):
            return False
        if self.q is None or not math.isfinite(value):
            return self.lower <= value <= self.high
        # compare counts of q: in floats 6 * 0.05 is a little more than 0.3
        low, index, high = (round(x / self.q) for x in (self.lower, value, self.upper))
        return low <= index <= high and is_multiple(value, self.q)

    @model_serializer
    def dump(self) -> dict[str, Any]:
        """The YAML form, with positional arguments."""
        prior = {PRIOR: self.priors[0]} if self.priors else {}
        if self.is_categorical:
            return {self.kind: list(self.categories), **prior}
        first = (self.lower, self.upper) if self.normal is None else (self.mean, self.sd)
        return {self.kind: [*first, *([] if self.q is None else [self.q])], **prior}

    @model_validator(mode="before")
    @classmethod
    def _from_yaml(cls, data: Any) -> Any:
        if not is_domain_form(data):
            return data
        kind = str(kind_of(data))
        return _fields(kind, data[kind]) | ({"priors": (data[PRIOR],)} if PRIOR in data else {})

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.is_categorical:
            _check_categories(self.kind, self.categories)
        else:
            _check_bounds(self)
            if self.q is not None:
                _check_q(self, self.q)
        if self.priors and (self.kind == "grid_search" or not self.contains(self.priors[0])):
            raise ValueError(_prior_fault(self, self.priors[0]))
        return self


def _prior_fault(domain: Domain, prior: object) -> str:
    if domain.kind == "grid_search":
        return f"grid_search tries every value: it takes no {PRIOR}"
    values = next(iter(domain.dump().values()))
    return f"{PRIOR} must be a value of {domain.kind} {show(values)}, got {show(prior)}"


def _fields(kind: str, raw: object) -> dict[str, Any]:
    if kind in LISTS:
        values = raw.get(LISTS[kind]) if isinstance(raw, dict) and len(raw) == 1 else raw
        if not isinstance(values, list):
            raise ValueError(f"{kind} takes a list of values, got {show(raw)}")
        return {"kind": kind, "lower": 0, "upper": len(values) - 1, "categories": tuple(values)}
    given = _arguments_by_name(kind, raw)
    whole = kind.endswith("randint")
    for name, value in given.items():
        _check_number(kind, name, value, whole=whole and name != "base")
    if given.pop("base", 10) <= 1:
        raise ValueError(f"{kind} needs base > 1")
    fields = given if whole else {k: float(v) for k, v in given.items()}
    if kind.endswith("randn"):
        fields = _RANDN_DEFAULTS | fields
        try:
            lower, upper = Normal(**fields).bounds()
        except ValueError as e:
            raise ValueError(f"{kind} {e}") from None
        fields |= {"lower": lower, "upper": upper}
    return {"kind": kind} | fields


def _arguments_by_name(kind: str, raw: object) -> dict[str, Any]:
    names, free = arguments(kind), optional_arguments(kind)
    given: dict[str, Any] | None = None
    if isinstance(raw, list) and len(raw) <= len(names):
        given = dict(zip(names, raw, strict=False))
    elif isinstance(raw, dict):
        given = dict(raw)
    if given is None or not set(names) - set(free) <= given.keys() <= set(names):
        raise ValueError(f"{kind} takes {_form(names, free)}, got {show(raw)}")
    return given


def _form(names: tuple[str, ...], free: tuple[str, ...]) -> str:
    """`[lower, upper(, base)]`: optional arguments are in round brackets."""
    if names == free:
        return f"[{', '.join(names)}], or fewer of them"
    form = ", ".join(name for name in names if name not in free)
    return f"[{form}{''.join(f'(, {name})' for name in free)}]"


def _check_number(kind: str, name: str, value: object, *, whole: bool) -> None:
    allowed = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed):
        rule = "a whole number" if whole else "a number"
        raise ValueError(f"{kind} needs {rule} for {name}, got {show(value)}")
    if not -sys.float_info.max <= value <= sys.float_info.max:
        raise ValueError(f"{kind} needs a finite {name}, got {show(value)}")
    greatest, shown = (MAX_COUNT, "2**53") if whole else (MAX_NUMBER, f"{MAX_NUMBER:g}")
    greatest = limit(greatest, math.inf)
    if not -greatest <= value <= greatest:
        raise ValueError(f"{kind} needs {name} from -{shown} to {shown}, got {show(value)}")


def _check_bounds(domain: Domain) -> None:
    kind, lower, upper = domain.kind, domain.lower, domain.upper
    if domain.log and lower <= 0:
        raise ValueError(f"{kind} needs lower > 0, got {lower}")
    if lower >= upper:
        raise ValueError(f"{kind} needs lower < upper, got [{lower}, {upper}]")


def _check_q(domain: Domain, q: int | float) -> None:
    kind = domain.kind
    if domain.integer and q == 1:
        # with q = 1 Ray Tune excludes upper, which it includes for every other q
        raise ValueError(f"{kind} needs q > 1, got 1; write {kind.removeprefix('q')} without it")
    if q <= 0:
        raise ValueError(f"{kind} needs q > 0, got {q}")
    if max(abs(domain.lower), abs(domain.upper)) / q > limit(MAX_COUNT, math.inf):
        raise ValueError(f"{kind} needs bounds of at most 2**53 times q, got q {q}")
    for name, bound in (("lower", domain.lower), ("upper", domain.upper)):
        if not is_multiple(bound, q):
            raise ValueError(f"{kind} needs {name} to be a multiple of q = {q}, got {bound}")


def _check_categories(kind: str, categories: tuple[Any, ...]) -> None:
    if not categories:
        raise ValueError(f"{kind} needs at least one value, got []")
    if len(categories) > limit(MAX_VALUES):
        raise ValueError(f"{kind} takes at most {MAX_VALUES} values, got {len(categories)}")
    for i, value in enumerate(categories):
        check_time()
        if value in categories[:i] or (value != value and any(c != c for c in categories[:i])):
            first = next(c for c in categories if same(value, c))
            raise ValueError(f"{kind} needs values that differ, got {show(first)}, {show(value)}")
        for _, part in walk(value):
            if holds_arguments(part):
                raise ValueError(f"{kind} cannot hold a domain, got {show(part)}")
