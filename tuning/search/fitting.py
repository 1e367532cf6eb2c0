"""Whether a trial of an earlier space is evidence in the one that is searched now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from results.records import TrialRecord
from search_spaces.branches import active
from search_spaces.domains import Domain
from search_spaces.schema import SweepSpec

_ABSENT = object()


def fitting(spec: SweepSpec, record: TrialRecord) -> dict[str, Any] | None:
    """The parameters of a space that a trial had, flat; None when the space could not have it.

    It fits when the space and what is fixed beside it can give its configuration, but for
    parameters that it did not have at all: these are unknown. So a trial fits when a parameter
    that was fixed is searched now, and its value lies in the domain; when a domain has become
    narrower or wider, and its value lies in it; when a parameter is pinned to the value that it
    had.
    """
    had = {n: v for n in spec.domains() if (v := _value(record, n)) is not _ABSENT}
    walked = active(spec.space, lambda name, _: had.get(name))
    leaves = {n: leaf for n, leaf, _ in walked if n in had and isinstance(leaf, Domain)}
    if not all(leaf.contains(had[name]) for name, leaf in leaves.items()):
        return None
    params = {name: had[name] for name in leaves}
    return params if spec.nest(params) == record.config else None


def _value(record: TrialRecord, name: str) -> Any:
    if name in record.params:
        return record.params[name]
    node: Any = record.config
    for key in name.split("."):
        if not isinstance(node, Mapping) or key not in node:
            return _ABSENT
        node = node[key]
    return node
