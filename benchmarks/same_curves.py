"""Same seed, same curves: what each trainable reports and writes, to compare two commits.

    python -m benchmarks.same_curves [--ranks 2] [NAME ...] > FILE

Run it in a work tree of each commit, and compare the files. Each trial is run whole, and once more
in two halves, of which the second resumes. Prints by name the metrics of each report as exact
hexadecimal floats, and the SHA-256 of each file of the last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.trainables.examples import EXAMPLES, trainable_of
from tests.trainables.local import RecordingChannel, newest_checkpoint, run_trial
from trainables.job import Answer

CHANGES: dict[str, dict[str, Any]] = {
    "causal_lm": {},
    "causal_lm, bfloat16": {"dtype": "bfloat16", "micro_batch_size": 1, "grad_clip": 0.1},
    "causal_lm, float16": {"dtype": "float16", "optimizer": "lion", "schedule": "wsd"},
    "causal_lm, muon": {
        "optimizer": "muon",
        "packing": "documents",
        "activation_checkpointing": True,
        "schedule": "linear",
        "grad_clip": None,
    },
    "causal_lm, experts": {"experts": {"count": 4}, "communication": {"compress": "topk"}},
    "digits": {},
    "digits, sgd": {"optimizer": "sgd", "batch_norm": True},
    "digits, parts": {"micro_batch_size": 10, "communication": {"method": "ring"}},
    "image_classifier": {},
    "image_classifier, bfloat16": {
        "norm": "group",
        "optimizer": "adamw",
        "dtype": "bfloat16",
        "micro_batch_size": 24,
        "grad_clip": 0.5,
        "ema_decay": None,
        "learning_rate": 0.01,
    },
    "sft": {},
    "sft, LoRA": {},
    "sft, epochs": {"packing": "none", "micro_batch_size": 2, "max_steps": None, "epochs": 0.3},
    "grpo": {},
    "grpo, LoRA": {"lora": {"rank": 2}, "beta": 0.0, "micro_batch_size": 2},
    "dpo": {},
    "dpo, ipo": {"loss": "ipo", "micro_batch_size": 2, "dtype": "bfloat16"},
    "distill": {},
    "federated": {},
    "federated, text": {"task": "causal_lm", "server": "fedadam", "keep_optimizer": True},
}
"""By name: changes of the configuration of the example of that trainable; None removes a key."""
TEXT_CLIENT = {key: EXAMPLES["causal_lm"].config[key] for key in ("hidden_size", "data")}


def config_of(name: str) -> dict[str, Any]:
    """The configuration of a case."""
    example = EXAMPLES.get(name, EXAMPLES[trainable_of(name)]).config
    found = {k: v for k, v in {**example, **CHANGES[name]}.items() if v is not None}
    if found.get("task") == "causal_lm":
        found |= {"client": {**TEXT_CLIENT, "vocab_size": 300}, "partition": "iid"}
    if not dist.is_initialized():
        found.pop("communication", None)
    return found


def curves(name: str, folder: Path, **options: Any) -> dict[str, Any]:
    """Reports and files of a case, whole and resumed."""
    trainable, config = trainable_of(name), config_of(name)
    options = {"cache": folder / "cache", "seed": 3, **options}
    whole = run_trial(folder / f"{name}-whole", trainable, config, **options)
    steps = [report.step for report in whole.reports] or list(EXAMPLES[trainable].steps)
    cut = RecordingChannel({steps[0]: Answer.STOP})
    run_trial(folder / f"{name}-cut", trainable, config, channel=cut, **options)
    rest = run_trial(folder / f"{name}-cut", trainable, config, attempt=2, **options)
    return {
        "whole": _exact(whole.curve),
        "cut": _exact({**cut.curve, **rest.curve}),
        "files": {
            label: {n: f.sha256 for n, f in sorted(_files(folder / f"{name}-{label}").items())}
            for label in ("whole", "cut")
        },
    }


def _exact(curve: dict[int, dict[str, float]]) -> dict[str, dict[str, str]]:
    measured = ("_seconds", "_gib_s")
    return {
        str(step): {k: v.hex() for k, v in sorted(metrics.items()) if not k.endswith(measured)}
        for step, metrics in curve.items()
    }


def _files(folder: Path) -> Any:
    return newest_checkpoint(folder).manifest.files


def run(rank: int, ranks: int, folder: Path, names: list[str]) -> None:
    """The cases on one rank; rank 0 prints."""
    torch.set_num_threads(1)
    if ranks > 1:
        store = f"file://{folder / 'rendezvous'}"
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    found = {}
    for name in names:
        found[name] = curves(name, folder, rank=rank, world_size=ranks)
        print(f"{name}: done", file=sys.stderr)
    if rank == 0:
        print(json.dumps(found, indent=1, sort_keys=True))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    names = given.names or list(CHANGES)
    with tempfile.TemporaryDirectory() as folder:
        if given.ranks == 1:
            run(0, 1, Path(folder), names)
        else:
            mp.spawn(run, (given.ranks, Path(folder), names), nprocs=given.ranks)


if __name__ == "__main__":
    main()
