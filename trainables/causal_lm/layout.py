"""Which layouts a language model fits; no torch, so that `tune plan` can check them quickly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from search_spaces.spec.layout import Layout

_CUT = ("num_heads", "num_attention_heads", "num_key_value_heads", "intermediate_size")
"""Sizes that the ranks of `tp` share."""


def layout_problem(
    layout: Layout, whole_only: Mapping[str, str], sizes: Mapping[str, int], batch: int
) -> tuple[str, str] | None:
    """What prevents a layout, if anything: the name of a field, or "" for sizes, and the rule.

    Args:
        layout: of a trial.
        whole_only: fields that need a whole model on each rank, and their values.
        sizes: numbers of heads and units.
        batch: samples per step, of all ranks together.
    """
    if not layout.shares_model:
        return None
    axis, ranks = next((n, s) for n, s in reversed(layout.sizes.items()) if s > 1)
    for field, value in whole_only.items():
        return field, f"{value} does not work with layout {axis} {ranks}".strip()
    for name, size in sizes.items():
        if size % layout.tp:
            return "", f"tp {layout.tp} does not divide {name}, {size}"
    if batch % layout.data_parallel:
        return "", f"{layout.data_parallel} data-parallel ranks do not divide batch_size, {batch}"
    return None


def saved_sizes(model: str) -> dict[str, int]:
    """Numbers of heads and units of a model in a folder, by its `config.json`; none of a hub."""
    file = Path(model).expanduser() / "config.json"
    told = json.loads(file.read_text()) if file.is_file() else {}
    return {name: told[name] for name in _CUT if isinstance(told.get(name), int)}
