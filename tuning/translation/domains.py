"""Domains of a sweep file: for ranges of other programs, and for names and defaults in code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from search_spaces.domains.domain import MAX_VALUES

Number = int | float
_KNOWN: dict[str, dict[str, list[Any]]] = {
    r"lr|learning_?rate|eta": {"loguniform": [1e-5, 1e-1]},
    r"wd|weight_?decay|l2": {"loguniform": [1e-6, 1e-2]},
    r"dropout": {"uniform": [0.0, 0.5]},
    r"momentum": {"uniform": [0.5, 0.99]},
    r"bs|batch_?size": {"choice": [16, 32, 64, 128]},
    r"(num|n)_?layers|depth": {"randint": [1, 5]},
    r"hidden(_?(size|units|dim))?|width|(num|n)_?units": {"choice": [32, 64, 128, 256]},
}
"""Pattern of a name, perhaps with more words before it, to the domain if it has no default."""
_SHARE = re.compile(
    r"(.*_)?(dropout|drop\w*_rate|momentum|beta_?\d*|betas|gamma|ratio|fraction|prob\w*|p|smoothing|"
    r"(sub|col)sample\w*)"
)
_NOT_SEARCHED = re.compile(
    r"(.*_)?(seed|(max_?)?(epochs?|(time)?steps?|iters?|iterations?|trials)|n_iter|num_(epochs|steps)|"
    r"(num_)?(workers|gpus|threads)|port|rank|(world|ima?ge?|vocab|eval|test)_?size|patience|"
    r"every|interval|freq\w*|verbose|log_?\w*|(num|n)_(classes|labels)|save_?\w*|print_?\w*|"
    r"cuda|track|debug|\w*deterministic|wandb\w*|resume|download|"
    r"(input|in|output|out)_?(dim|size|features|channels)|(eval|val|valid|validation|test)_\w+)"
)
_PROGRESS = re.compile(
    r"(.*_)?(epochs?|steps?|iters?|iterations?|training_iteration|lr|time\w*|done)"
)
_MORE = re.compile(
    r"(?<![a-z])(acc|accuracy|auc|bleu|dice|f1|iou|map|precision|psnr|r2|recall|"
    r"return|reward|rouge|score)(?![a-z])"
)
_LESS = re.compile(r"(?<![a-z])(cost|err|error|loss|mae|mse|nll|perplexity|ppl|rmse)(?![a-z])")
_HELD_OUT = re.compile(r"(?<![a-z])(val|valid|validation|eval|dev|test)(?![a-z])")


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


def known_domain(name: str) -> dict[str, Any] | None:
    """The domain of a parameter without a default, by its name; None if the name says nothing."""
    text = _plain(name)
    found = (domain for words, domain in _KNOWN.items() if re.fullmatch(rf"(.*_)?({words})", text))
    return next(found, None)


def domain_around(name: str, default: object) -> dict[str, Any] | None:
    """A domain that has the default among its values; None if the parameter is not to be searched.

    A number of another scale than its neighbours is searched in its logarithm; so is a positive
    number of which nothing is known.
    """
    if not isinstance(default, int | float) or default < 0 or not is_searched(name):
        return None
    if isinstance(default, bool):
        return {"choice": [True, False]}
    is_share = default <= 1 if _SHARE.fullmatch(_plain(name)) else 0.9 <= default < 1  # a decay
    if is_share and isinstance(default, float):
        return {"uniform": [0.0, next(top for top in (0.5, 0.99, 1.0) if default <= top)]}
    if default == 0:
        return None
    if isinstance(default, float):
        return {"loguniform": [_rounded(default / 10), _rounded(default * 10)]}
    if default >= 8 and default & (default - 1) == 0:
        return {"choice": [default // 2, default, 2 * default]}
    kind = "randint" if default <= 8 else "lograndint"
    return {kind: [max(1, default // 2), 2 * default + 1]}


def is_searched(name: str) -> bool:
    """Whether a parameter of this name shapes the training, rather than its length or place."""
    return not _NOT_SEARCHED.fullmatch(_plain(name))


def choose_objective(metrics: Sequence[str]) -> tuple[str | None, str | None]:
    """The metric to optimize and its mode; None for what the names do not say.

    A metric of held-out data comes first, then one whose name says whether more is better.
    """
    found = [name for name in metrics if not is_progress(name)]
    ranked = sorted(found, key=lambda n: (not held_out(n), _mode(n) is None))
    return (ranked[0], _mode(ranked[0])) if ranked else (None, None)


def is_progress(metric: str) -> bool:
    """Whether a report's value is a count or a time rather than a score, by its name."""
    return bool(_PROGRESS.fullmatch(metric.lower()))


def held_out(text: str) -> re.Match[str] | None:
    """The first word of a text that names held-out data."""
    return _HELD_OUT.search(text.lower())


def _mode(metric: str) -> str | None:
    less, more = (bool(words.search(metric.lower())) for words in (_LESS, _MORE))
    return None if less == more else "min" if less else "max"


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
