"""What the axes of all plots have in common."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

_MAX_WHOLE = 10
"""A plot that chooses its ticks puts them at whole numbers over a longer range."""


def text(value: object) -> str:
    """Escape a user's text for a plot: plotly interprets some HTML in its labels."""
    return html.escape(str(value))


def whole_ticks(values: Sequence[float]) -> dict[str, Any]:
    """Settings of a plot's axis for whole numbers: no ticks in between, even if they are few."""
    low, high = math.floor(min(values, default=0)), math.ceil(max(values, default=0))
    return {"dtick": 1} if high - low <= _MAX_WHOLE else {}
