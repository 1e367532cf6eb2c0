"""Domains of a sweep file for ranges as other programs have them: both bounds included."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from search_spaces.domains.domain import MAX_VALUES

Number = int | float


def between(
    low: Number, high: Number, step: Number | None = None, *, log: bool = False
) -> dict[str, Any] | None:
    """The domain of the numbers from `low` to `high`; None if a sweep file has none.

    Args:
        low: the first value; whole numbers only if it, `high` and `step` are.
        high: the greatest value allowed.
        step: the others are `low` plus its multiples; None: any value, or any whole number.
        log: whether they are uniform in their logarithm.
    """
    whole = all(isinstance(x, int) for x in (low, high, step or 0))
    if low == high:
        return {"choice": [low]}
    kind = f"{'log' if log else ''}{'randint' if whole else 'uniform'}"
    if step is None or (whole and step == 1):
        return {kind: [low, high + 1] if whole else [float(low), float(high)]}
    first, last, q = (Decimal(str(x)) for x in (low, high, step))
    if not (q > 0 and first < last and all(x.is_finite() for x in (first, last, q))):
        return None
    last -= (last - first) % q
    number = int if whole else float
    if first == last:
        return {"choice": [low]}
    if first % q == 0:
        return {f"q{kind}": [number(x) for x in (first, last, q)]}
    count = int((last - first) / q) + 1
    if log or count > MAX_VALUES:
        return None
    return {"ordinal": [number(first + i * q) for i in range(count)]}
