"""Refuse to average models that differ in their tensors or in their initial weights."""

from __future__ import annotations

import json
from collections.abc import Sequence

from results.averaging.soup.candidates import Candidate
from results.checkpoints.tensor_layout import layout_mismatch, read_layout
from results.trial_paths import ADAPTER_CONFIG, LINEAGE
from search_spaces.errors import UserError

_ADAPTER_KEYS = ("peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern")
"""Keys of an adapter's configuration that say which update its factors stand for."""


def check_models(candidates: Sequence[Candidate], force: bool = False) -> None:
    """Check that the models have the same tensors and started from the same weights.

    `force` allows different or unknown initial weights; tensors must fit in any case.

    Raises:
        UserError: one line for each candidate whose initial weights are unknown or differ from the
            first one's, or whose tensors or adapters differ.
    """
    first = candidates[0]
    problems = [
        f"trial {c.label}: {c.folder / LINEAGE} names no initial weights, so it is unknown "
        "whether it may be averaged; --force averages it anyway"
        for c in candidates
        if c.init is None and not force
    ]
    layout = read_layout(first.weights)
    for other in candidates[1:]:
        reason = layout_mismatch(layout, read_layout(other.weights))
        reason = reason or _adapter_mismatch(first, other)
        same_start = first.init is None or other.init in (first.init, None)
        if reason is None and not same_start and not force:
            reason = (
                "they started from different initial weights (share them with search.shared_init "
                "and the same sizes, or average them anyway with --force)"
            )
        if reason is not None:
            both = f"{first.label} and {other.label}"
            problems.append(f"trials {both} cannot be averaged: {reason}")
    if problems:
        raise UserError(*problems)


def check_base(candidates: Sequence[Candidate], digest: str | None, force: bool) -> None:
    """Check that the models started from the base of the task vectors.

    They have the same start (see `check_models`) unless forced. `digest` is that of the base; None
    where it is unknown. `force` allows another base.

    Raises:
        UserError: the models started from other weights, or that is unknown.
    """
    first = candidates[0]
    if force or (digest is not None and first.init in (digest, None)):
        return
    if digest is None:
        raise UserError(
            "it is unknown whether the models started from these weights, because the trainable "
            "has no digest(); --force uses them anyway"
        )
    raise UserError(
        f"{first.label} did not start from these weights (another base, or code that has changed "
        "since), so it has no task vector from them; --force uses them anyway"
    )


def _adapter_mismatch(first: Candidate, other: Candidate) -> str | None:
    """Why two adapters of the same shapes are not the same kind of update."""
    files = (c.weights.parent / ADAPTER_CONFIG for c in (first, other))
    mine, theirs = (json.loads(f.read_bytes()) if f.is_file() else {} for f in files)
    for key in _ADAPTER_KEYS:
        if mine.get(key) != theirs.get(key):
            both = f"{mine.get(key)} in one and {theirs.get(key)} in the other"
            return f"{ADAPTER_CONFIG} has {key}: {both}"
    return None
