"""Trains the later trial of each example in a fork, where no other trial has run.

    python -m tests.trainables.fresh FOLDER CACHE CHANGES EXAMPLE…

CHANGES is JSON, of hyperparameters. Each writes what `outcome` gives into `FOLDER/EXAMPLE.json`.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import transformers.models.llama.modeling_llama  # noqa: F401

from tests.trainables.examples import EXAMPLES, trainable_of
from tests.trainables.local import newest_checkpoint, run_trial
from trainables.registry import resolve

FIRST, LATER = {"learning_rate": 2e-3}, {"learning_rate": 5e-3}
"""Hyperparameters of two trials of one shape, whose seeds differ, too."""


def outcome(folder: Path, name: str, config: dict[str, Any], cache: Path, seed: int) -> Any:
    """Curve and digests of the last checkpoint's files, but for what measures time."""
    channel = run_trial(folder, trainable_of(name), config, cache=cache, seed=seed)
    files = newest_checkpoint(folder).manifest.files
    weights = {name: file.sha256 for name, file in files.items() if name.endswith(".safetensors")}
    return json.loads(json.dumps({"curve": channel.curve, "weights": weights}))


def main(folder: Path, cache: Path, changes: dict[str, Any], names: list[str]) -> None:
    torch.set_num_threads(1)
    for name in names:
        for module in resolve(trainable_of(name)).modules:
            import_module(module)  # once here instead of in every fork
    for name in names:
        if not os.fork():
            code = 1
            try:
                config = EXAMPLES[name].changed(**LATER, **changes)
                found = outcome(folder / name, name, config, cache, seed=1)
                (folder / f"{name}.json").write_text(json.dumps(found))
                code = 0
            finally:
                os._exit(code)
        os.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4:])
