"""One of two ranks, as a process of its own: trains the examples one after another.

    python -m tests.trainables.two_workers RANK FOLDER

Each trial is run whole, once more in two halves, and once begun by rank 0 alone. One is
told to leave between two reports. Prints rank 0's curves as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.trainables.examples import EXAMPLES, trainable_of
from tests.trainables.local import RecordingChannel, run_trial
from trainables.job import Answer
from trainables.runtime.preemption import Preempted, install_sigterm_handler
from trainables.training.run import TrainingRun

WORLD = 2


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder / 'rendezvous'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD)
    options: dict[str, Any] = {"rank": rank, "world_size": WORLD, "cache": folder / "cache"}
    curves = {}
    for name, example in EXAMPLES.items():
        trainable = trainable_of(name)
        whole = run_trial(folder / f"{name}_whole", trainable, example.config, **options)
        cut = RecordingChannel({example.steps[0]: Answer.STOP})
        run_trial(folder / f"{name}_cut", trainable, example.config, channel=cut, **options)
        rest = run_trial(folder / f"{name}_cut", trainable, example.config, attempt=2, **options)
        grown = RecordingChannel({example.steps[0]: Answer.STOP})
        if rank == 0:
            alone = {**options, "world_size": 1}
            run_trial(folder / f"{name}_grown", trainable, example.same, channel=grown, **alone)
        dist.barrier()
        more = run_trial(folder / f"{name}_grown", trainable, example.same, attempt=2, **options)
        curves[name] = [whole.curve, {**cut.curve, **rest.curve}, {**grown.curve, **more.curve}]
    cut, rest = leave_between_reports(folder / "left", rank == 1, **options)
    curves["left"] = [{**cut.curve, **rest.curve}]
    dist.destroy_process_group()
    sys.stdout.write(json.dumps(curves))


def leave_between_reports(
    folder: Path, told: bool, **options: Any
) -> tuple[RecordingChannel, RecordingChannel]:
    """A language model whose process gets SIGTERM in step 5, if `told`; it is resumed.

    Returns:
        The channels of both attempts.
    """
    advance, config, restore = (
        TrainingRun.advance,
        EXAMPLES["causal_lm"].config,
        install_sigterm_handler(),
    )

    def step(self: TrainingRun, number: int) -> None:
        if told and number == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        advance(self, number)

    TrainingRun.advance = step  # type: ignore[method-assign]
    first = RecordingChannel()
    with suppress(Preempted):
        run_trial(folder, "causal_lm", config, channel=first, **options)
    TrainingRun.advance = advance  # type: ignore[method-assign]
    restore()
    return first, run_trial(folder, "causal_lm", config, attempt=2, **options)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
