"""Which code trains on a layout."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.layouts.one_rank import ours_sharded
from benchmarks.layouts.plain import PLAIN
from benchmarks.training.contenders import Contender, ours, plain


def contender_of(name: str, layout: Mapping[str, int]) -> Contender:
    """`ours`, `plain` on a layout, or one of those with one rank."""
    alone = {"ours": ours, "ours_sharded": ours_sharded, "plain_sharded": PLAIN["compiled"]}
    if name in alone:
        return alone[name]
    if "dp_replicate" in layout:
        return plain
    kind = next(axis for axis in ("ep", "tp", "pp", "cp", "dp_shard") if axis in layout)
    return PLAIN["fsdp" if kind == "dp_shard" else kind]
