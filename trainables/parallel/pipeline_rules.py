"""Which pipelines a trial fits; no torch, so that `tune plan` can check them quickly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.layout import Layout


def pipeline_field(layout: Layout, fields: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first field that has a value, in a layout with `pp`, and the mistake."""
    if layout.pp == 1:
        return None
    given = ((name, value) for name, value in fields.items() if value)
    return next(
        ((name, f"{v} does not work with layout pp {layout.pp}") for name, v in given), None
    )


def pipeline_problem(layout: Layout, samples: int, layers: str, count: int | None) -> str | None:
    """What prevents the stages and microbatches of a layout, if anything.

    Args:
        layout: of a trial.
        samples: of a data-parallel rank in a step.
        layers: what the model's parts are called.
        count: of them; None: unknown.
    """
    if layout.pp == 1:
        return None
    if layout.cp > 1:
        return f"pp {layout.pp} does not work with cp {layout.cp}"
    stages, parts = layout.num_stages, layout.num_microbatches
    if count is not None and count < stages:
        return f"pp {layout.pp} ({layout.schedule}) has {stages} stages, and {layers} is {count}"
    if samples % parts:
        return f"{parts} microbatches do not divide the {samples} samples of a data-parallel rank"
    if layout.schedule == "1f1b" and parts < stages:
        return f"schedule 1f1b takes a microbatch for each of {stages} stages, got {parts}"
    if layout.schedule == "zero_bubble" and layout.data_parallel > 1:  # gradients are wrong
        return "schedule zero_bubble does not work with data-parallel axes; take interleaved"
    rounds = max(1, parts // layout.pp)
    if layout.stages_per_rank > 1 and parts % rounds:
        return f"schedule {layout.schedule} takes a multiple of pp microbatches, got {parts}"
    return None
