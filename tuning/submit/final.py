"""One configuration, trained by torchrun in pods: what the winner of a sweep becomes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import LoadedSweep, load_sweep
from search_spaces.spec.cluster import ClusterSpec
from tuning.controller.resources.placement import Node, worker_slots
from tuning.submit.portable import set_options

_VARIABLES = ("epochs", "max_steps", "batch_size", "learning_rate")
"""Parameters that have a variable, even if they are not searched."""
_NCCL = {
    "NCCL_DEBUG": "INFO",
    "NCCL_SOCKET_IFNAME": "eth0",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
}


def final_values(
    loaded: LoadedSweep, cluster: ClusterSpec, winner: Mapping[str, Any], *, single: bool = False
) -> dict[str, Any]:
    """Values for the manifests that train a configuration.

    Args:
        winner: its parameters, by dotted name.
        single: on one machine, with as many ranks as fit it; else on two machines or more, unless
            it has one rank only.

    Raises:
        UserError: it does not fit the file.
    """
    spec = loaded.spec
    asked = spec.resources.gpus_per_worker
    gpus = float(cluster.gpus > 0) if asked == "auto" else asked
    fitting = worker_slots(spec.resources, gpus, [Node(cluster.cpus, cluster.gpus)])
    ranks = min(spec.resources.max_workers, fitting) if single else spec.resources.max_workers
    per_node = ranks if single else _per_machine(ranks, fitting)
    given = {f"space.{name}": value for name, value in winner.items()}
    plain = {k: v for k, v in spec.fixed.items() if k in _VARIABLES and isinstance(v, int | float)}
    given |= {f"fixed.{name}": value for name, value in plain.items()}
    _check(loaded, winner, [f"{key}={_text(value)}" for key, value in given.items()])
    names = {key: re.sub(r"\W", "_", key.partition(".")[2]).upper() for key in given}
    changes = [*loaded.overrides, f"resources.workers={ranks}"]
    changes += [f"{key}=$({name})" for key, name in names.items()]
    train = ["-m", "tuning", "trial", f"sweep/{loaded.path.name}", "--folder", "$(OUTPUT_DIR)"]
    nccl = _NCCL | {key: str(value) for key, value in spec.resources.nccl.items()}
    return {
        "final": "trainjob.yaml" if ranks == per_node else "pytorchjob.yaml",
        "final_nodes": ranks // per_node,
        "final_workers": ranks // per_node - 1,
        "final_cpus": min(cluster.cpus, round(per_node * spec.resources.cpus_per_worker + 0.5)),
        "per_node": per_node,
        "train": [*train, *set_options(changes)],
        "parameters": _environment({names[key]: _text(value) for key, value in given.items()}),
        "nccl": _environment(nccl),
    }


def _environment(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _per_machine(ranks: int, fitting: int) -> int:
    """Ranks of each machine: as many as fit, equally many everywhere, on two machines at least."""
    most = min(fitting, max(1, ranks // 2))
    return next(count for count in range(most, 0, -1) if ranks % count == 0)


def _text(value: object) -> str:
    word = isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w.-]*", value)
    return str(value) if word and value not in ("true", "false", "null") else json.dumps(value)


def _check(loaded: LoadedSweep, winner: Mapping[str, Any], changes: list[str]) -> None:
    """Check that the changes leave nothing to search, and give the winner's configuration."""
    made = load_sweep(loaded.path, [*loaded.overrides, *changes]).spec
    searched = list(made.domains())  # the last one stays, with its only value
    if left := [name for name in searched if name not in winner]:
        raise UserError(
            f"cannot be rendered: the winner has no value for {', '.join(left)} of "
            f"{loaded.path.name}; is it of another file?"
        )
    if made.nest({name: winner[name] for name in searched}) != loaded.spec.nest(winner):
        raise UserError(f"cannot be rendered: the winner's values do not fit {loaded.path.name}")
