"""Runs the phases of a rehearsal in one worker, and sends what they measured to the head."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuning.doctor.phases import State
    from tuning.doctor.settings import Measured

LAST = "done"
"""What a worker is at after its last phase."""


def train_loop_per_worker(config: dict[str, Any]) -> None:
    """The loop of the `TorchTrainer`.

    Args:
        config: `task`, a `RehearsalTask`; `collector`, the actor that gets the measurements.
    """
    import ray
    import ray.train

    from results.storage.log_filter import start_log_filter
    from trainables.launch.ray_train import claim_device, this_machine

    begun = time.perf_counter()
    start_log_filter()
    context, task, collector = ray.train.get_context(), config["task"], config["collector"]
    rank, world_size = context.get_world_rank(), context.get_world_size()
    device = claim_device(task.gpus_per_worker)
    machine = this_machine()
    measured: Measured = {
        "rank": rank,
        "world_size": world_size,
        "node": machine.id,
        "host": f"{machine.name} ({machine.address})",
        "errors": {},
    }

    def post(phase: str) -> Any:
        return collector.post.remote(rank, {**measured, "at": phase})

    post("import")
    from tuning.doctor.phases import State

    measured["import_time"] = time.perf_counter() - begun
    run_phases(State(task, rank, world_size, device), measured, post)
    measured |= {"overall_time": time.perf_counter() - begun, "cpu_time": time.process_time()}
    ray.get(post(LAST))


def run_phases(state: State, measured: Measured, post: Callable[[str], Any]) -> None:
    """Run all phases; what one measured, or its error, is in `measured` afterwards.

    Args:
        post: called with the name of each phase before it begins.

    Raises:
        Exception: a phase in which all ranks take part failed.
    """
    from tuning.doctor.phases import COLLECTIVE, NEEDS, PHASES

    errors: dict[str, str] = measured["errors"]
    left_out: set[str] = set()
    for phase in PHASES:
        name = phase.__name__
        if {*NEEDS.get(name, "").split()} & (errors.keys() | left_out):
            left_out.add(name)
            continue
        post(name)
        begun = time.perf_counter()
        try:
            found = phase(state)
        except Exception as e:
            errors[name] = f"{type(e).__name__}: {(str(e).splitlines() or [''])[0]}"
            if name in COLLECTIVE:
                post(name)
                raise
        else:
            measured.update({f"{name}_time": time.perf_counter() - begun, **found})
