"""The machines of a Ray cluster, and those that its autoscaler may add."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from search_spaces.errors import UserError

AUTOSCALING = "TUNE_AUTOSCALING"
"""Variable of a cluster's machines: `{"max_nodes": 8, "cpus": 8, "gpus": 2}`.

Ray does not tell how far its autoscaler goes, and the autoscaler acts only on what waits.
"""


@dataclass(frozen=True)
class Node:
    """CPUs and GPUs of one machine, all or those available; Ray's id of it; its address.

    Attributes:
        started: whether it is there; else the autoscaler starts it when workers wait for it.
    """

    cpus: float
    gpus: float
    id: str = ""
    address: str = ""
    started: bool = True


def with_autoscaling(nodes: Sequence[Node], autoscaling: str | None) -> list[Node]:
    """The machines, and those that the autoscaler may add; `autoscaling` is that variable.

    Raises:
        UserError: it is not of that form.
    """
    if not autoscaling:
        return list(nodes)
    try:
        data = json.loads(autoscaling)
        new, most = Node(data["cpus"], data["gpus"], started=False), int(data["max_nodes"])
        there = sum(n.cpus >= new.cpus > 0 and n.gpus >= new.gpus for n in nodes)
    except (ValueError, TypeError, KeyError, OverflowError):
        example = '{"max_nodes": 8, "cpus": 8, "gpus": 2}'
        raise UserError(f"{AUTOSCALING}: must be like {example}, got {autoscaling}") from None
    return [*nodes, *[new] * (most - there)]
