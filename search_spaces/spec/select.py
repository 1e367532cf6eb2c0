"""`metric` and `mode`: one objective, or a list of several; and the `select` section."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from search_spaces.errors import suggest
from search_spaces.limits import limit
from search_spaces.spec.base import Section

MAX_METRICS = 20
Mode = Literal["min", "max"]
Metrics = (
    Annotated[str, Field(min_length=1)]
    | Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=2)]
)
Modes = Mode | Annotated[list[Mode], Field(min_length=2)]


@dataclass(frozen=True)
class Objective:
    """A reported metric, and whether less or more of it is better."""

    metric: str
    mode: Mode


def objectives(metrics: Metrics, modes: Modes) -> tuple[Objective, ...]:
    """Pair metrics with modes; a single mode applies to all metrics."""
    names = [metrics] if isinstance(metrics, str) else metrics
    goals: list[Mode] = modes if isinstance(modes, list) else [modes] * len(names)
    return tuple(Objective(n, g) for n, g in zip(names, goals, strict=True))


_WORD = r"(?<![a-z])(?:{})(?![a-z])"
_MAXIMISED = _WORD.format(
    "acc|accuracy|ap|auc|auprc|auroc|bleu|correct|dice|em|f1|hits?|iou|kappa|likelihood|map|match|"
    "mcc|mfu|miou|mrr|ndcg|pass|pearson|per_second|precision|psnr|r2|recall|return|reward|rouge|"
    "rougel|score|spearman|ssim|success|throughput|top|win"
)
_MINIMISED = _WORD.format("cost|err|error|loss|mae|mse|nll|perplexity|ppl|regret|rmse|wer")
_NEGATED = _WORD.format("neg|negative")


def mode_of_name(metric: str) -> Mode | None:
    """Whether less or more is better by the words of a name like `val/accuracy`; None: unknown."""
    text = f"{metric} {re.sub('(?<=[a-z])(?=[A-Z])', '_', metric)}".lower()
    up, down, turned = (bool(re.search(w, text)) for w in (_MAXIMISED, _MINIMISED, _NEGATED))
    return None if up == down else "max" if up != turned else "min"


def default_mode(mode: object, info: ValidationInfo) -> object:
    """`min` where no mode is given.

    Raises:
        PydanticCustomError: the name of a metric says that more is better.
    """
    metrics = info.data.get("metrics", [])
    names = [metrics] if isinstance(metrics, str) else metrics
    if mode is None and (high := next((n for n in names if mode_of_name(n) == "max"), None)):
        text = f"{high} needs a mode: max if more is better, else min"
        raise PydanticCustomError("plain", "{text}", {"text": text, "path": ("metric",)})
    return "min" if mode is None else mode


def check_pairs(modes: Modes, info: ValidationInfo) -> Modes:
    """Refuse lists that do not match.

    Raises:
        ValueError: too many metrics, one is named twice, or modes and metrics differ in number.
    """
    metrics = info.data.get("metrics", [])
    names = [metrics] if isinstance(metrics, str) else metrics
    if len(set(names)) < len(names):
        raise ValueError(f"needs metrics that differ, got {', '.join(names)}")
    if len(names) > limit(MAX_METRICS):
        raise ValueError(f"takes at most {MAX_METRICS} metrics, got {len(names)}")
    if names and isinstance(modes, list) and len(modes) != len(names):
        raise ValueError(f"needs one mode, or one for each of {', '.join(names)}, got {len(modes)}")
    return modes


class SelectSpec(Section):
    """Choice of the winner: the value and, with several objectives, the rule."""

    at: Literal["last", "best", "smoothed"] = Field(
        "last",
        description="The value that counts: the last, the best of any step, or the last of the "
        "exponential moving average. Only the weights of the last value are always kept; "
        "checkpoint.keep_best keeps those of the best too.",
    )
    smoothing: float = Field(
        0.6, ge=0, lt=1, description="Weight of the past in the moving average (0 to 1)."
    )
    objectives: dict[str, Mode] = Field(
        default_factory=dict,
        validate_default=True,
        description="Two or more reported metrics, each with min or max: only trials on their "
        "Pareto front are considered. Default: what the sweep optimizes.",
    )
    rule: Literal["knee", "weighted"] = Field(
        "knee",
        description="Choice from the front: knee is nearest to the best of each objective; "
        "weighted has the least weighted sum. Each objective is scaled to 0..1 over the front.",
    )
    weights: dict[str, float] = Field(
        default_factory=dict, description="Weights of the weighted rule by objective; default 1."
    )

    @field_validator("objectives")
    @classmethod
    def _several(cls, objectives: dict[str, Mode], info: ValidationInfo) -> dict[str, Mode]:
        if len(objectives) == 1:
            raise ValueError("needs two metrics or more, got one; the sweep's own is metric:")
        if len(objectives) > limit(MAX_METRICS):
            raise ValueError(f"takes at most {MAX_METRICS} metrics, got {len(objectives)}")
        if objectives and info.data.get("at") == "best":
            raise ValueError(
                "cannot be compared at their best, which is at different steps for each: "
                "set select.at to last or smoothed"
            )
        return objectives

    @field_validator("weights")
    @classmethod
    def _of_objectives(cls, weights: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        if (objectives := info.data.get("objectives")) is None:  # they have a mistake themselves
            return weights
        for name, weight in weights.items():
            if name not in objectives:
                hint = suggest(name, objectives) if objectives else "; there are none"
                raise ValueError(f"'{name}' is not among the objectives{hint}")
            if weight < 0:
                raise ValueError(f"'{name}' needs a weight of at least 0, got {weight}")
        return weights


def default_objectives(select: SelectSpec, info: ValidationInfo) -> SelectSpec:
    """Select by the search's objectives, unless the selection has its own."""
    metrics, modes = info.data.get("metrics"), info.data.get("modes")
    if not isinstance(metrics, list) or modes is None or select.objectives:
        return select
    given = {o.metric: o.mode for o in objectives(metrics, modes)}
    return SelectSpec.model_validate(select.model_dump() | {"objectives": given})
